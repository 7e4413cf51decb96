//! Small worlds for placement tests: nodes with free units, jobs with roles.
#![allow(dead_code, missing_docs, unreachable_pub)]

use berth_planner::ids::{NodeIdx, QueueIdx, ShapeIdx};
use berth_planner::job::{Communication, JobSpec, Locality, Placement, Role, Slice};
use berth_planner::place::{Ask, Found, NoFit, place};
use berth_planner::resources::Amounts;
use berth_planner::room::{FixedRoom, Room};
use berth_planner::shape::{NodeSet, Shape, ShapeTable};
use berth_planner::time::{Span, Time};
use berth_planner::topology::{Level, NodePath, PoolSpec, Topology};

/// Nodes given as (path, name, free amounts).
pub struct World {
    pub topology: Topology,
    pub shapes: ShapeTable,
    pub free: Vec<Amounts>,
}

pub fn pool(name: &str, levels: &[&str]) -> PoolSpec {
    let level = |l: &&str| Level { name: (*l).into(), gigabytes_per_second: 0.0 };
    PoolSpec { name: name.into(), levels: levels.iter().map(level).collect(), growable: false }
}

impl World {
    pub fn new(pools: &[PoolSpec], nodes: &[(usize, &str, &str, &[i64])]) -> Self {
        let path = |p: &str| p.split('/').filter(|s| !s.is_empty()).map(Into::into).collect();
        let paths: Vec<NodePath> = nodes
            .iter()
            .map(|(pool, p, name, _)| NodePath { pool: *pool, path: path(p), name: (*name).into() })
            .collect();
        let topology = Topology::build(pools, &paths);
        let free = (0..topology.node_count())
            .map(|row| {
                let name = topology.node_name(NodeIdx::of(row));
                let (.., amounts) = nodes.iter().find(|n| *n.2 == **name).expect("known to the test");
                Amounts(std::iter::once(110).chain(amounts.iter().copied()).collect())
            })
            .collect();
        Self { topology, shapes: ShapeTable::default(), free }
    }

    /// One pool; nodes named after their path and position, `counts[i]` free units each.
    pub fn racks(levels: &[&str], racks: &[(&str, &[i64])]) -> Self {
        let named: Vec<(String, String, i64)> = racks
            .iter()
            .flat_map(|(path, counts)| {
                counts
                    .iter()
                    .enumerate()
                    .map(move |(i, c)| ((*path).to_owned(), format!("{}-n{i}", path.replace('/', "-")), *c))
            })
            .collect();
        let amounts: Vec<[i64; 1]> = named.iter().map(|n| [n.2]).collect();
        let nodes: Vec<(usize, &str, &str, &[i64])> =
            named.iter().zip(&amounts).map(|(n, a)| (0, n.0.as_str(), n.1.as_str(), a.as_slice())).collect();
        Self::new(&[pool("main", levels)], &nodes)
    }

    pub fn shape(&mut self, requests: &[i64]) -> ShapeIdx {
        let all = NodeSet::of(self.topology.node_count(), |_| true);
        self.shape_on(requests, all, "")
    }

    pub fn shape_on(&mut self, requests: &[i64], eligible: NodeSet, filter: &str) -> ShapeIdx {
        let requests = Amounts(std::iter::once(1).chain(requests.iter().copied()).collect());
        self.shapes.intern(Shape { requests, filter: filter.into(), eligible })
    }

    pub fn room(&self) -> FixedRoom<'_> {
        FixedRoom::new(&self.topology, &self.shapes, self.free.clone())
    }

    pub fn node(&self, name: &str) -> NodeIdx {
        (0..self.topology.node_count())
            .map(NodeIdx::of)
            .find(|n| &**self.topology.node_name(*n) == name)
            .expect("known to the test")
    }

    pub fn names(&self, placement: &Placement) -> Vec<String> {
        placement.seats.iter().map(|s| self.topology.node_name(s.node).to_string()).collect()
    }
}

pub fn role(name: &str, shape: ShapeIdx, pods: u32) -> Role {
    Role { name: name.into(), shape, replicas: pods, floor: pods, slice: None }
}

pub fn sliced(name: &str, shape: ShapeIdx, pods: u32, size: u32, within: &str) -> Role {
    Role { slice: Some(Slice { size, within: within.into() }), ..role(name, shape, pods) }
}

pub fn job(roles: Vec<Role>) -> JobSpec {
    JobSpec {
        key: "default/job".into(),
        uid: "1".into(),
        user: "".into(),
        queue: QueueIdx(1),
        priority: 0,
        preemptible: true,
        max_runtime: Span::from_secs(3600),
        grace: Span::ZERO,
        expected_runtime: None,
        checkpoint_every: None,
        locality: Locality::default(),
        communication: Communication::AllReduce,
        resizable: true,
        replaces_members: true,
        roles,
    }
}

pub fn required(mut spec: JobSpec, level: &str) -> JobSpec {
    spec.locality.required = Some(level.into());
    spec
}

pub fn preferred(mut spec: JobSpec, level: &str) -> JobSpec {
    spec.locality.preferred = Some(level.into());
    spec
}

pub fn floors(spec: &JobSpec) -> Vec<u32> {
    spec.roles.iter().map(|r| r.floor).collect()
}

pub fn ask<'a>(spec: &'a JobSpec, sizes: &'a [u32]) -> Ask<'a> {
    Ask {
        spec,
        sizes,
        start: Time::ZERO,
        predicted_end: Time::from_secs(3600),
        most_domains: None,
        search_limit: 20_000,
        within: None,
    }
}

pub fn placed<R: Room>(room: &R, spec: &JobSpec) -> Result<Found, NoFit> {
    place(room, &ask(spec, &floors(spec)))
}
