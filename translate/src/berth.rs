//! Plans as objects: seats as grouped assignments and back, the hash of the nodes' paths, and the `Berth` of a decision.

use crate::error::{Fault, TranslateError};
use crate::lifecycle::naming;
use crate::time;
use crds::names::{annotations, finalizers, labels};
use crds::v1alpha1::{Assignment, BerthSpec, BerthState, BerthStatus, Clears, TrainingJob};
use crds::{Berth, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use planner::job::{JobSpec, Placement, Seat};
use planner::topology::Topology;
use planner::{NodeIdx, Time};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Most bytes of a Berth that the API server and etcd take with room to spare.
pub const MAX_BYTES: usize = 1 << 20;

/// A placement as grouped assignments, by role and index; ranks follow from them.
#[must_use]
pub fn assignments(roles: &[&str], placement: &Placement, topology: &Topology) -> Vec<Assignment> {
    let mut seats = placement.seats.clone();
    seats.sort_unstable();
    let mut groups: Vec<Assignment> = Vec::new();
    for run in seats.chunk_by(|a, b| a.role == b.role && a.node == b.node && a.index + 1 == b.index) {
        let first = run[0];
        let role = roles.get(usize::from(first.role)).copied().unwrap_or_default();
        let domain = &*topology.domain(topology.innermost(first.node)).path;
        let (index, each) = (signed(first.index), i32::try_from(run.len()).unwrap_or(i32::MAX));
        let node = topology.node_name(first.node).to_string();
        match groups.last_mut() {
            Some(last)
                if last.role == role && last.domain == domain && last.per_node == each && next_index(last) == index =>
            {
                last.nodes.push(node);
            }
            _ => groups.push(Assignment {
                domain: domain.to_owned(),
                role: role.to_owned(),
                first_index: index,
                per_node: each,
                nodes: vec![node],
            }),
        }
    }
    groups
}

fn signed(index: u32) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

fn next_index(group: &Assignment) -> i32 {
    let nodes = i32::try_from(group.nodes.len()).unwrap_or(i32::MAX);
    group.first_index.saturating_add(nodes.saturating_mul(group.per_node))
}

/// Names of all nodes of a Berth: the ones the planner must know before it is read, gone ones as lost.
pub fn nodes_named(berth: &Berth) -> BTreeSet<&str> {
    berth.spec.assignments.iter().flat_map(|a| a.nodes.iter().map(String::as_str)).collect()
}

/// The seats of a Berth.
///
/// # Errors
/// If it names a role that the job lacks, or a node that `find` does not know.
pub fn placement(
    berth: &Berth,
    roles: &[&str],
    find: impl Fn(&str) -> Option<NodeIdx>,
) -> Result<Placement, TranslateError> {
    let object = || format!("Berth {}", crate::key_of(berth));
    let mut seats = Vec::new();
    for (row, group) in berth.spec.assignments.iter().enumerate() {
        let role = roles.iter().position(|r| *r == group.role).and_then(|r| u8::try_from(r).ok());
        let role = role.ok_or_else(|| {
            Fault::UnknownRole(group.role.clone()).at(object(), format!("spec.assignments[{row}].role"))
        })?;
        for (index, name) in group.indexes() {
            let at = |fault: Fault| fault.at(object(), format!("spec.assignments[{row}]"));
            let node = find(name).ok_or_else(|| {
                at(Fault::Range { value: format!("node {name}"), accepted: "name nodes that the planner knows" })
            })?;
            let accepted = "indexes count from 0";
            let index = u32::try_from(index).map_err(|_| at(Fault::Range { value: index.to_string(), accepted }))?;
            seats.push(Seat { role, index, node });
        }
    }
    seats.sort_unstable();
    Ok(Placement { seats })
}

/// Names of a job's roles in order.
#[must_use]
pub fn role_names(job: &TrainingJob) -> Vec<&str> {
    job.spec.roles.iter().map(|r| r.name.as_str()).collect()
}

/// Hash of nodes' whole paths: differs when one of them was moved to another domain or pool meanwhile.
#[must_use]
pub fn hash_of_paths<'a>(paths: impl IntoIterator<Item = (&'a str, &'a str, String)>) -> String {
    let sorted: BTreeSet<(&str, &str, String)> = paths.into_iter().collect();
    let mut digest = Sha256::new();
    for (node, pool, path) in sorted {
        // Names hold no line breaks or tabs, so that nothing can pass for something else.
        digest.update(format!("{node}\t{pool}\t{path}\n").as_bytes());
    }
    let mut text = String::with_capacity(64);
    for byte in digest.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The same of nodes as the planner knows them.
#[must_use]
pub fn nodes_hash(topology: &Topology, nodes: &[NodeIdx]) -> String {
    hash_of_paths(nodes.iter().map(|&node| {
        let domain = topology.domain(topology.innermost(node));
        (&**topology.node_name(node), &*topology.pool(domain.pool).name, domain.path.to_string())
    }))
}

/// The same of nodes as they are just now, for the check before a commit.
#[must_use]
pub fn places_hash(pools: &crate::PoolMap, places: &[crate::pools::Place]) -> String {
    hash_of_paths(places.iter().map(|place| {
        let path: Vec<&str> = place.path.path.iter().map(AsRef::as_ref).collect();
        (&*place.path.name, &*pools.pools()[place.path.pool].name, path.join("/"))
    }))
}

/// What a decision says of one Berth.
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    /// How firm it is.
    pub state: BerthState,
    /// When it begins.
    pub start: Time,
    /// When its room is free at the latest.
    pub end: Time,
    /// Its seats.
    pub placement: &'a Placement,
    /// Whose room is being freed for it.
    pub clears: Vec<Clears>,
    /// Epoch of its Topology.
    pub epoch: i64,
    /// Term of the leader that decided.
    pub leader_epoch: i64,
}

/// The spec of a job's Berth.
#[must_use]
pub fn spec(
    job: &TrainingJob,
    queue: &str,
    incarnation: i64,
    decision: &Decision<'_>,
    topology: &Topology,
) -> BerthSpec {
    let nodes = decision.placement.nodes();
    let shared = topology.shared_depth(nodes.iter().copied());
    let domain = shared.map(|(depth, domain)| {
        let pool = topology.pool(topology.domain(domain).pool);
        match nodes.first() {
            Some(node) if depth == pool.node_depth() => topology.node_name(*node).to_string(),
            _ => topology.domain(domain).path.to_string(),
        }
    });
    let pool = shared.map(|(_, domain)| topology.pool(topology.domain(domain).pool).name.to_string());
    BerthSpec {
        job: job.metadata.name.clone().unwrap_or_default(),
        job_uid: job.metadata.uid.clone().unwrap_or_default(),
        incarnation,
        queue: queue.to_owned(),
        state: decision.state,
        start: time::timestamp(decision.start),
        end: time::timestamp(decision.end),
        topology: pool.filter(|p| !p.is_empty()),
        epoch: decision.epoch,
        nodes_hash: nodes_hash(topology, &nodes),
        leader_epoch: decision.leader_epoch,
        job_generation: job.metadata.generation,
        domain: domain.filter(|d| !d.is_empty()),
        assignments: assignments(&role_names(job), decision.placement, topology),
        clears: decision.clears.clone(),
        stopping: None,
    }
}

/// A new Berth object, owned by its job.
///
/// # Errors
/// If the job has no uid, that is, was never stored.
pub fn object(job: &TrainingJob, spec: BerthSpec) -> Result<Berth, TranslateError> {
    let name = naming::berth_name(&spec.job, spec.incarnation);
    let owner = owner_of(job)?;
    let nodes = i32::try_from(spec.node_count()).unwrap_or(i32::MAX);
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: job.metadata.namespace.clone(),
        labels: Some(BTreeMap::from([
            (labels::JOB.to_owned(), spec.job.clone()),
            (labels::INCARNATION.to_owned(), spec.incarnation.to_string()),
        ])),
        annotations: Some(BTreeMap::from([(annotations::LEADER_EPOCH.to_owned(), spec.leader_epoch.to_string())])),
        finalizers: Some(vec![finalizers::BERTH.to_owned()]),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let status = BerthStatus { nodes: Some(nodes), promised: spec.start, ..BerthStatus::default() };
    Ok(Berth { metadata, spec, status: Some(status) })
}

/// Reference to a job as the owner of what is made for it.
///
/// # Errors
/// If the job has no uid, that is, was never stored.
pub fn owner_of(job: &TrainingJob) -> Result<OwnerReference, TranslateError> {
    job.controller_owner_ref(&()).ok_or_else(|| Fault::Missing.at(crate::job::object(job), "metadata.uid"))
}

/// Bytes of a Berth as stored; above [`MAX_BYTES`] its plan is refused.
#[must_use]
pub fn encoded_size(berth: &Berth) -> usize {
    serde_json::to_vec(berth).map_or(usize::MAX, |bytes| bytes.len())
}

/// When the Berth's window starts and ends as the planner counts.
#[must_use]
pub fn window(spec: &BerthSpec) -> (Option<Time>, Time) {
    let at = |moment: Option<Timestamp>| moment.map(time::time);
    (at(spec.start), at(spec.end).unwrap_or(Time::NEVER))
}

/// The pods of a planner's placement by role row, for status texts.
#[must_use]
pub fn counts(spec: &JobSpec, placement: &Placement) -> Vec<u32> {
    (0..spec.roles.len()).map(|role| placement.count(role)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::mk_job;
    use planner::topology::{Level, NodePath, PoolSpec};
    use serde_json::json;

    fn mk_topology(racks: usize, nodes: usize) -> Topology {
        let pool = PoolSpec {
            name: "default".into(),
            levels: vec![Level { name: "rack".into(), gigabytes_per_second: 0.0 }],
            growable: false,
        };
        let path = |rack: usize, node: usize| NodePath {
            pool: 0,
            path: vec![format!("r{rack}").into()],
            name: format!("r{rack}n{node}").into(),
        };
        let paths: Vec<NodePath> = (0..racks).flat_map(|r| (0..nodes).map(move |n| path(r, n))).collect();
        Topology::build(&[pool], &paths)
    }

    fn seats(of: &[(u8, u32, u32)]) -> Placement {
        Placement { seats: of.iter().map(|&(role, index, node)| Seat { role, index, node: NodeIdx(node) }).collect() }
    }

    fn find(topology: &Topology) -> impl Fn(&str) -> Option<NodeIdx> + '_ {
        |name| (0..topology.node_count()).map(NodeIdx::of).find(|n| &**topology.node_name(*n) == name)
    }

    #[test]
    fn equal_runs_in_one_domain_are_one_group() {
        let topology = mk_topology(2, 2);
        let placement = seats(&[(0, 0, 3), (1, 0, 0), (1, 1, 0), (1, 2, 1), (1, 3, 1), (1, 4, 2)]);
        let groups = assignments(&["launcher", "worker"], &placement, &topology);
        let short: Vec<(&str, &str, i32, i32, usize)> = groups
            .iter()
            .map(|g| (g.domain.as_str(), g.role.as_str(), g.first_index, g.per_node, g.nodes.len()))
            .collect();
        assert_eq!(short, [("r1", "launcher", 0, 1, 1), ("r0", "worker", 0, 2, 2), ("r1", "worker", 4, 1, 1)]);
    }

    #[test]
    fn gaps_and_returns_to_a_node_survive() {
        let topology = mk_topology(2, 2);
        let job = mk_job(json!({}));
        let placement = seats(&[(0, 0, 0), (1, 0, 1), (1, 1, 0), (1, 3, 0)]);
        let decision = mk_decision(&placement);
        let berth = object(&job, spec(&job, "a", 1, &decision, &topology)).expect("stored");
        let back = super::placement(&berth, &role_names(&job), find(&topology)).expect("readable");
        assert_eq!(back, placement);
    }

    fn mk_decision(placement: &Placement) -> Decision<'_> {
        Decision {
            state: BerthState::Committed,
            start: Time::from_secs(10),
            end: Time::NEVER,
            placement,
            clears: Vec::new(),
            epoch: 3,
            leader_epoch: 7,
        }
    }

    #[test]
    fn a_berth_says_whose_it_is_where_and_until_when() {
        let topology = mk_topology(2, 2);
        let job = mk_job(json!({}));
        let placement = seats(&[(0, 0, 0), (1, 0, 0), (1, 1, 1)]);
        let berth = object(&job, spec(&job, "a", 2, &mk_decision(&placement), &topology)).expect("stored");
        assert_eq!(berth.metadata.name.as_deref(), Some("llama-2"));
        assert_eq!(berth.metadata.owner_references.as_ref().map(|o| o[0].uid.as_str()), Some("job-uid"));
        assert_eq!((berth.spec.topology.as_deref(), berth.spec.domain.as_deref()), (Some("default"), Some("r0")));
        assert_eq!(window(&berth.spec), (Some(Time::from_secs(10)), Time::NEVER));
        assert_eq!(nodes_named(&berth).into_iter().collect::<Vec<_>>(), ["r0n0", "r0n1"]);
    }

    #[test]
    fn the_hash_changes_with_a_node_s_path_and_not_with_the_order() {
        let (a, b) = (("n1", "p", "b/r".to_owned()), ("n2", "p", "b/s".to_owned()));
        let both = hash_of_paths([a.clone(), b.clone()]);
        assert_eq!(both, hash_of_paths([b, a.clone()]));
        assert_ne!(both, hash_of_paths([a.clone(), ("n2", "p", "b/r".to_owned())]));
        assert_ne!(both, hash_of_paths([a, ("n2", "q", "b/s".to_owned())]));
        assert_eq!(both.len(), 64);
    }

    #[test]
    fn twenty_thousand_pods_on_nodes_of_long_names_fit_into_one_object() {
        let topology = mk_topology(1, 1);
        let job = mk_job(json!({}));
        let placement = seats(&[(0, 0, 0)]);
        let mut berth = object(&job, spec(&job, "a", 1, &mk_decision(&placement), &topology)).expect("stored");
        let name = |n: usize| format!("{n:0>45}");
        berth.spec.assignments = (0..625)
            .map(|rack| Assignment {
                domain: format!("block-{}/rack-{rack}", rack / 8),
                role: "worker".into(),
                first_index: rack * 32,
                per_node: 1,
                nodes: (0..32).map(|n| name(usize::try_from(rack).expect("small") * 32 + n)).collect(),
            })
            .collect();
        assert!(berth.spec.pods() >= 20_000);
        assert!(encoded_size(&berth) < MAX_BYTES, "{}", encoded_size(&berth));
    }

    #[test]
    fn roles_and_nodes_that_are_gone_are_named() {
        let topology = mk_topology(1, 2);
        let job = mk_job(json!({}));
        let placement = seats(&[(1, 0, 0)]);
        let berth = object(&job, spec(&job, "a", 1, &mk_decision(&placement), &topology)).expect("stored");
        let error = super::placement(&berth, &["other"], find(&topology)).expect_err("no such role").to_string();
        assert!(error.starts_with("Berth team-a/llama-1: spec.assignments[0].role: "), "{error}");
        let error = super::placement(&berth, &role_names(&job), |_| None).expect_err("no such node").to_string();
        assert!(error.contains("node r0n0"), "{error}");
    }
}
