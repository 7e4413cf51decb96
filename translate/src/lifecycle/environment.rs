//! The variables by which the pods of a gang find each other. A value the user set himself is never overwritten; ours
//! stand before his, so that his may refer to them as `$(BERTH_RANK)`.

use super::naming;
use crds::names::env;
use crds::v1alpha1::{Berth, RendezvousKind, TrainingJob};
use k8s_openapi::api::core::v1::{Container, EnvVar};

/// Where the host file of an Mpi job is mounted.
pub const HOSTS_DIR: &str = "/etc/mpi";
/// Its name in there.
pub const HOST_FILE: &str = "hostfile";

/// One pod's place in its gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Row of its role.
    pub role: usize,
    /// Name of its role.
    pub role_name: &'a str,
    /// Index in the role.
    pub index: i32,
    /// Rank in the job: stable, and with gaps where roles run below their replicas.
    pub rank: i64,
    /// Place among the pods that the Berth holds, without gaps.
    pub position: i64,
    /// Pods that the Berth holds.
    pub world: i64,
    /// Path of its domain.
    pub domain: &'a str,
    /// Its node.
    pub node: &'a str,
}

/// All members of a Berth in rank order. Seats of roles that the job does not have (any more) are left out.
#[must_use]
pub fn members<'a>(job: &'a TrainingJob, berth: &'a Berth) -> Vec<Member<'a>> {
    let mut all = Vec::with_capacity(berth.spec.pods());
    for group in &berth.spec.assignments {
        let Some(role) = job.spec.roles.iter().position(|r| r.name == group.role) else { continue };
        let (role_name, first_rank) = (job.spec.roles[role].name.as_str(), crate::job::first_rank(job, role));
        let domain = group.domain.as_str();
        all.extend(group.indexes().map(|(index, node)| {
            let rank = first_rank + i64::from(index);
            Member { role, role_name, index, rank, position: 0, world: 0, domain, node }
        }));
    }
    all.sort_by_key(|m| m.rank);
    let world = i64::try_from(all.len()).unwrap_or(i64::MAX);
    for (position, member) in (0..).zip(&mut all) {
        (member.position, member.world) = (position, world);
    }
    all
}

/// The member at one seat of a Berth; none if the Berth or the job has no such seat. For all of them use [`members`].
#[must_use]
pub fn member<'a>(job: &'a TrainingJob, berth: &'a Berth, role: &str, index: i32) -> Option<Member<'a>> {
    members(job, berth).into_iter().find(|m| m.role_name == role && m.index == index)
}

/// Every variable of a member, in the order they are set.
#[must_use]
pub fn variables(job: &TrainingJob, berth: &Berth, member: &Member<'_>) -> Vec<(&'static str, String)> {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let coordinator = coordinator(job, name);
    let mut all = vec![
        (env::JOB, name.to_owned()),
        (env::ROLE, member.role_name.to_owned()),
        (env::INDEX, member.index.to_string()),
        (env::RANK, member.rank.to_string()),
        (env::WORLD_SIZE, member.world.to_string()),
        (env::COORDINATOR, coordinator.clone()),
        (env::DOMAIN_PATH, member.domain.to_owned()),
        (env::INCARNATION, berth.spec.incarnation.to_string()),
    ];
    let port = job.spec.rendezvous.port;
    match job.spec.rendezvous.kind {
        RendezvousKind::Torch => all.extend(torch(job, berth, member, &coordinator, port)),
        RendezvousKind::Jax => all.extend([
            (env::JAX_COORDINATOR_ADDRESS, format!("{coordinator}:{port}")),
            (env::JAX_NUM_PROCESSES, member.world.to_string()),
            // Jax wants process ids without gaps; without gaps in the ranks they are the ranks.
            (env::JAX_PROCESS_ID, member.position.to_string()),
        ]),
        RendezvousKind::Mpi => all.extend(mpi()),
        RendezvousKind::None => {}
    }
    all
}

/// Address of rank 0: the first pod of the first role.
fn coordinator(job: &TrainingJob, name: &str) -> String {
    let first = job.spec.roles.first().map_or("", |r| r.name.as_str());
    naming::address(name, first, 0)
}

fn torch(job: &TrainingJob, berth: &Berth, member: &Member<'_>, host: &str, port: i32) -> Vec<(&'static str, String)> {
    let elastic = job.spec.roles.iter().any(crds::v1alpha1::Role::is_elastic);
    let nodes =
        if elastic { format!("{}:{}", job.spec.floor_pods(), job.spec.max_pods()) } else { member.world.to_string() };
    let mut all = vec![
        (env::MASTER_ADDR, host.to_owned()),
        (env::MASTER_PORT, port.to_string()),
        (env::PET_NNODES, nodes),
        (env::PET_NODE_RANK, member.position.to_string()),
        (env::PET_MASTER_ADDR, host.to_owned()),
        (env::PET_MASTER_PORT, port.to_string()),
    ];
    if elastic {
        all.extend([
            (env::PET_RDZV_BACKEND, "c10d".to_owned()),
            (env::PET_RDZV_ENDPOINT, format!("{host}:{port}")),
            (env::PET_RDZV_ID, format!("{}-{}", berth.spec.job_uid, berth.spec.incarnation)),
        ]);
    }
    all
}

/// Where Open MPI, Intel MPI and MPICH look for the host file.
fn mpi() -> [(&'static str, String); 4] {
    let file = format!("{HOSTS_DIR}/{HOST_FILE}");
    [
        ("OMPI_MCA_orte_default_hostfile", file.clone()),
        ("PRTE_MCA_prte_default_hostfile", file.clone()),
        ("I_MPI_HYDRA_HOST_FILE", file.clone()),
        ("HYDRA_HOST_FILE", file),
    ]
}

/// Puts variables before a container's own, except those that it sets itself.
pub fn set(container: &mut Container, variables: &[(&'static str, String)]) {
    let own = container.env.take().unwrap_or_default();
    let free = variables.iter().filter(|(name, _)| !own.iter().any(|e| e.name == *name));
    let mut all: Vec<EnvVar> = free
        .map(|(name, value)| EnvVar { name: (*name).to_owned(), value: Some(value.clone()), ..EnvVar::default() })
        .collect();
    all.extend(own);
    container.env = Some(all);
}
