//! Host ports as resources: `hostport/TCP/8080`, of which every node has one.
//!
//! A node's capacity lists only the ports that some pod uses, so that the planner's rows stay few: whoever translates
//! pods calls [`grant`] on every node when [`ResourceTable::len`] has grown.
//! Ports bound to one address of the host count like ports bound to all of them: stricter than a kubelet, never laxer.

use crate::amounts::Named;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use planner::ResourceIdx;
use planner::resources::{Amounts, ResourceTable};

/// Begin of the name of every host port's resource.
pub const PREFIX: &str = "hostport/";

/// Name of a port's resource.
#[must_use]
pub fn resource(protocol: &str, port: i32) -> String {
    format!("{PREFIX}{protocol}/{port}")
}

/// The host ports of a pod: those of its containers and sidecars, each once.
#[must_use]
pub fn of_pod(spec: &PodSpec) -> Named {
    let on_host = spec.host_network.unwrap_or(false);
    let sidecars = spec.init_containers.iter().flatten().filter(|c| is_sidecar(c));
    let mut ports = Named::new();
    for port in spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten()) {
        // The API server does the same for pods on the host's network.
        let number = port.host_port.or(on_host.then_some(port.container_port)).unwrap_or(0);
        if number > 0 {
            ports.insert(resource(port.protocol.as_deref().unwrap_or("TCP"), number), 1);
        }
    }
    ports
}

/// Gives a node one of each port in the table.
pub fn grant(allocatable: &mut Amounts, table: &ResourceTable) {
    for row in (0..table.len()).map(ResourceIdx::of) {
        if table.name(row).starts_with(PREFIX) {
            allocatable.set(row, 1);
        }
    }
}

/// Whether an init container runs beside the others until the end.
#[must_use]
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ContainerPort;

    fn mk_container(ports: Vec<ContainerPort>) -> Container {
        Container { name: "main".into(), ports: Some(ports), ..Container::default() }
    }

    #[test]
    fn ports_are_named_by_protocol_and_taken_once() {
        let port = |protocol: Option<&str>, host_port| ContainerPort {
            container_port: 80,
            host_port,
            protocol: protocol.map(str::to_owned),
            ..ContainerPort::default()
        };
        let mut spec = PodSpec {
            containers: vec![mk_container(vec![port(None, Some(8080)), port(Some("UDP"), Some(53)), port(None, None)])],
            ..PodSpec::default()
        };
        let names: Vec<String> = of_pod(&spec).into_keys().collect();
        assert_eq!(names, ["hostport/TCP/8080", "hostport/UDP/53"]);
        spec.host_network = Some(true);
        assert!(of_pod(&spec).contains_key("hostport/TCP/80"), "the host's network exposes the container's port");
    }

    #[test]
    fn nodes_have_one_of_each_port_in_use() {
        let mut table = ResourceTable::default();
        let port = table.intern(&resource("TCP", 8080));
        let gpu = table.intern("nvidia.com/gpu");
        let mut node = Amounts::default();
        grant(&mut node, &table);
        assert_eq!((node.get(port), node.get(gpu)), (1, 0));
    }
}
