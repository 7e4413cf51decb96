//! Laws 1 to 6 and 8 over whole runs: every plan is judged, applied and planned again; promises are kept to the end.

use crate::support::build::Telling;
use crate::support::drive::{SEEN, Sim};
use crate::support::law;
use crate::support::world::{Kind, World, world};

fn holds(world: &World) -> Result<(), String> {
    Sim::new(world, Telling::default(), berth_planner::plan).run()
}

#[test]
fn small_troubled_clusters_obey_every_law() {
    law("1-6 and 8, small clusters in trouble", 1500, &world(Kind::SMALL), |w| holds(&w));
    println!("actions so far: {:?}", SEEN.lock().unwrap());
}

#[test]
fn small_calm_clusters_obey_every_law() {
    let kind = Kind { troubled: false, ..Kind::SMALL };
    law("1-6 and 8, small calm clusters", 1000, &world(kind), |w| holds(&w));
}

#[test]
#[ignore = "open: 2 in 1,000 were left (a spared victim, law 6, since judged by promises too): to be counted anew at 10,000"]
fn medium_clusters_obey_every_law() {
    law("1-6 and 8, medium clusters in trouble", 150, &world(Kind::MEDIUM), |w| holds(&w));
}

#[test]
#[ignore = "a tool: counts what breaks instead of stopping at the first"]
fn survey() {
    let kind = match std::env::var("BERTH_LAW_KIND").as_deref() {
        Ok("calm") => Kind { troubled: false, ..Kind::SMALL },
        Ok("plain") => Kind { troubled: false, shared: false, ..Kind::SMALL },
        Ok("medium") => Kind::MEDIUM,
        _ => Kind::SMALL,
    };
    crate::support::survey(400, &world(kind), holds);
    println!("actions: {:?}", SEEN.lock().unwrap());
}
