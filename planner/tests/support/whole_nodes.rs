//! The plainest gang: pods that take whole nodes of eight GPUs.

use berth_planner::Span;
use berth_planner::job::{Communication, JobSpec, Locality, Role};
use berth_planner::resources::{Amounts, ResourceTable};
use berth_planner::shape::{NodeSet, Shape};
use berth_planner::state::ClusterState;

/// What a node holds: eight GPUs and room for 110 pods.
pub(crate) fn node(state: &mut ClusterState) -> Amounts {
    amounts(state, 110)
}

/// A gang of `pods` whole nodes in a queue, with a limit; it may be stopped and asks for no level.
pub(crate) fn gang(state: &mut ClusterState, queue: &str, name: &str, pods: u32, limit: Span) -> JobSpec {
    let requests = amounts(state, 1);
    let count = state.nodes().len();
    let shape = state.shapes.intern(Shape { requests, filter: "".into(), eligible: NodeSet::of(count, |_| true) });
    JobSpec {
        key: name.into(),
        uid: name.into(),
        user: "u".into(),
        queue: state.find_queue(queue).expect("the queue was made"),
        priority: 0,
        preemptible: true,
        max_runtime: limit,
        grace: Span::ZERO,
        expected_runtime: None,
        checkpoint_every: None,
        locality: Locality::default(),
        communication: Communication::AllReduce,
        resizable: true,
        replaces_members: false,
        roles: vec![Role { name: "worker".into(), shape, replicas: pods, floor: pods, slice: None }],
    }
}

fn amounts(state: &mut ClusterState, pods: i64) -> Amounts {
    let mut amounts = Amounts::default();
    amounts.set(state.resources.intern("nvidia.com/gpu"), 8);
    amounts.set(ResourceTable::PODS, pods);
    amounts
}
