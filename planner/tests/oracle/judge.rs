//! What every answer must satisfy.

use crate::place_support::World;
use crate::solver::{cell_at, counted_depths};
use berth_planner::ids::{DomainIdx, NodeIdx};
use berth_planner::job::{Communication, JobSpec, Placement};
use berth_planner::topology::Depth;

pub fn check(world: &World, spec: &JobSpec, sizes: &[u32], placement: &Placement, within: Option<DomainIdx>) {
    let topology = &world.topology;
    for (row, size) in sizes.iter().enumerate() {
        let indexes: Vec<u32> =
            placement.seats.iter().filter(|s| usize::from(s.role) == row).map(|s| s.index).collect();
        assert_eq!(indexes, (0..*size).collect::<Vec<u32>>(), "role {row} has all its indexes, in order");
    }
    assert_eq!(placement.len(), sizes.iter().sum::<u32>() as usize);
    let mut free = world.free.clone();
    for seat in &placement.seats {
        let shape = world.shapes.get(spec.roles[usize::from(seat.role)].shape);
        assert!(shape.eligible.contains(seat.node));
        free[seat.node.row()].add(&shape.requests, -1);
        assert!(free[seat.node.row()].0.iter().all(|a| *a >= 0), "over capacity");
        assert!(within.is_none_or(|d| topology.domain(d).nodes.contains(&seat.node.0)));
    }
    let together = |nodes: Vec<NodeIdx>, level: &str| {
        let first = nodes[0];
        let pool = topology.pool(topology.pool_of(first));
        nodes.iter().all(|n| *n == first)
            || pool.depth_of(level).is_some_and(|d| {
                nodes.iter().all(|n| topology.pool_of(*n) == topology.pool_of(first))
                    && nodes.iter().all(|n| cell_at(topology, *n, d) == cell_at(topology, first, d))
            })
    };
    if let Some(level) = &spec.locality.required {
        assert!(together(placement.nodes(), level), "required level violated");
    } else if spec.communication != Communication::Independent {
        let pool = topology.pool_of(placement.seats[0].node);
        assert!(placement.nodes().iter().all(|n| topology.pool_of(*n) == pool), "spans pools");
    }
    for (row, role) in spec.roles.iter().enumerate() {
        let Some(slice) = &role.slice else { continue };
        let seats: Vec<NodeIdx> =
            placement.seats.iter().filter(|s| usize::from(s.role) == row).map(|s| s.node).collect();
        for chunk in seats.chunks(slice.size as usize) {
            assert!(together(chunk.to_vec(), &slice.within), "slice torn");
        }
    }
}

/// Domains by level of a placement, the wanted level first.
pub fn domains_of(world: &World, spec: &JobSpec, placement: &Placement) -> Vec<u32> {
    let topology = &world.topology;
    let root = topology.pool(topology.pool_of(placement.seats[0].node)).root;
    let counted = counted_depths(world, spec, root);
    let count = |depth: &Depth| {
        let mut cells: Vec<u64> = placement.nodes().iter().map(|n| cell_at(topology, *n, *depth)).collect();
        cells.sort_unstable();
        cells.dedup();
        cells.len() as u32
    };
    counted.iter().map(count).collect()
}
