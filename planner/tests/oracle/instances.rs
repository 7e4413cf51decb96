//! Small random instances, each a function of its number.

use crate::place_support::{World, floors, job, pool, role, sliced};
use berth_planner::ids::NodeIdx;
use berth_planner::job::{Communication, JobSpec};
use berth_planner::room::FixedRoom;
use berth_planner::shape::NodeSet;
use berth_planner::time::Time;
use berth_planner::topology::PoolSpec;

pub fn cases() -> u64 {
    std::env::var("BERTH_LAW_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(4000)
}

/// SplitMix64: instances are a function of their number.
pub struct Dice(u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    pub fn of<'t>(&mut self, options: &[&'t str]) -> &'t str {
        options[self.roll(options.len() as u64) as usize]
    }
}

pub const LEVELS: [&str; 3] = ["zone", "block", "rack"];

pub fn world(dice: &mut Dice) -> World {
    let pools: Vec<PoolSpec> = (0..1 + dice.roll(2))
        .map(|p| {
            let skip = dice.roll(4) as usize;
            pool(&format!("p{p}"), &LEVELS[skip.min(3)..])
        })
        .collect();
    let count = 1 + dice.roll(8) as usize;
    let mut rows: Vec<(usize, String, String, [i64; 2])> = Vec::new();
    for node in 0..count {
        let pool = dice.roll(pools.len() as u64) as usize;
        let mut path = Vec::new();
        for _ in 0..pools[pool].levels.len() {
            if dice.chance(8) {
                break;
            }
            let more = path.is_empty() && dice.chance(30);
            path.push(format!("d{}", dice.roll(2 + u64::from(more))));
        }
        let free = [dice.roll(5) as i64, dice.roll(7) as i64];
        rows.push((pool, path.join("/"), format!("n{node}"), free));
    }
    let nodes: Vec<(usize, &str, &str, &[i64])> =
        rows.iter().map(|r| (r.0, r.1.as_str(), r.2.as_str(), r.3.as_slice())).collect();
    World::new(&pools, &nodes)
}

pub fn random_job(dice: &mut Dice, world: &mut World) -> JobSpec {
    let nodes = world.topology.node_count();
    let shapes: Vec<_> = (0..1 + dice.roll(3))
        .map(|row| {
            let requests = [dice.roll(3) as i64, dice.roll(4) as i64];
            if dice.chance(20) {
                let bits = dice.roll(1 << nodes);
                world.shape_on(&requests, NodeSet::of(nodes, |n| bits >> n.0 & 1 == 1), &format!("f{row}"))
            } else {
                world.shape(&requests)
            }
        })
        .collect();
    let levels = ["zone", "block", "rack", "node"];
    let mut left = 9;
    let mut roles = Vec::new();
    for row in 0..1 + dice.roll(3) {
        let shape = shapes[dice.roll(shapes.len() as u64) as usize];
        let name = format!("r{row}");
        if dice.chance(30) {
            let size = 2 + dice.roll(2) as u32;
            let slices = (1 + dice.roll(3) as u32).min(left / size);
            if slices > 0 {
                left -= slices * size;
                roles.push(sliced(&name, shape, slices * size, size, dice.of(&levels)));
            }
        } else {
            let pods = (1 + dice.roll(5) as u32).min(left);
            if pods > 0 {
                left -= pods;
                roles.push(role(&name, shape, pods));
            }
        }
    }
    let mut spec = job(roles);
    let depth = dice.roll(4) as usize;
    if dice.chance(50) {
        spec.locality.required = Some(levels[depth].into());
    }
    if dice.chance(40) {
        let least = if spec.locality.required.is_some() { depth } else { 0 };
        spec.locality.preferred = Some(levels[least + dice.roll(4 - least as u64) as usize].into());
    }
    if dice.chance(10) {
        spec.communication = Communication::Independent;
    }
    spec
}

pub fn instance(number: u64) -> (World, JobSpec, Vec<u32>, u64) {
    instance_of(number, false)
}

/// With `wide`, most jobs may use a whole pool and so several domains of the wanted level.
pub fn instance_of(number: u64, wide: bool) -> (World, JobSpec, Vec<u32>, u64) {
    let mut dice = Dice(number.wrapping_mul(0xD129_0F1B_CA5D_1E2F) ^ 0xBE57);
    let mut world = world(&mut dice);
    let mut spec = random_job(&mut dice, &mut world);
    while spec.roles.is_empty() {
        spec = random_job(&mut dice, &mut world);
    }
    if wide && dice.chance(80) {
        spec.locality.required = None;
        spec.communication = Communication::AllReduce;
        world.free.iter_mut().for_each(|f| f.0[1..].iter_mut().for_each(|a| *a += 1));
    }
    let sizes = floors(&spec);
    (world, spec, sizes, dice.roll(u64::MAX))
}

/// Some nodes run something for a while, some are promised, some are suspect: none of it may change what fits.
pub fn room<'w>(world: &'w World, salt: u64) -> FixedRoom<'w> {
    let mut dice = Dice(salt);
    let mut room = world.room();
    for row in 0..world.topology.node_count() {
        let node = NodeIdx::of(row);
        if dice.chance(50) {
            room.set_wholly_free_at(node, Time::from_secs(dice.roll(6000) as i64));
        }
        room.set_promised(node, dice.chance(20));
        room.set_health(node, dice.roll(2) as u8);
    }
    room
}
