//! Two replicas on one clock: a leader that stands still over a fail-over writes nothing of effect when it wakes up.

use super::clock::run;
use super::figures;
use berth_e2e::fake_api::{Key, Store};
use berth_e2e::world::World;
use berth_e2e::world::objects::{job, live_pods, phase};
use std::time::Duration;

/// What came of one fail-over.
struct FailOver {
    seconds: f64,
    fenced: u64,
    violations: Vec<String>,
    story: String,
}

/// The leader stands still so long after a job was submitted, and goes on when another has taken over.
async fn fail_over(after: Duration, policy: bool) -> FailOver {
    let world = World::new(1);
    world.api.shared().with(|server, _| server.policies.fence = policy);
    world.furnish(4);
    world.replicas.start("r0");
    world.pass(2).await;
    world.replicas.start("r1");
    world.pass(3).await;
    world.create(&job("{name: j, roles: [{name: launcher, replicas: 1, gpus: 4}, {name: worker, replicas: 2}]}"));
    tokio::time::sleep(after).await;
    world.replicas.pause("r0");
    let begun = tokio::time::Instant::now();
    if !policy {
        // The worst moment: another leads, and has not looked yet.
        while world.see(|s| leader(s).starts_with("r0")) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        world.replicas.resume("r0");
    }
    let taken = world.until(120, |s| phase(s, "j") == "Running").await;
    let seconds = begun.elapsed().as_secs_f64();
    world.replicas.resume("r0");
    world.settle(20).await;
    let fine = world.see(|s| live_pods(s, "j") == 3) && taken;
    let fenced = world.api.shared().lock().policies.fenced;
    let ledger = world.ledger();
    let mut violations = ledger.violations().to_vec();
    if !fine {
        violations.push("the job does not run after the fail-over".to_owned());
    }
    FailOver { seconds, fenced, violations, story: ledger.story() }
}

fn leader(store: &Store) -> String {
    let lease = Key { kind: "Lease", namespace: crds::names::NAMESPACE.into(), name: crds::names::LEASE.into() };
    store.get(&lease).and_then(|l| l["spec"]["holderIdentity"].as_str()).unwrap_or_default().to_owned()
}

/// Moments at which the leader stands still: all through a start.
fn moments() -> impl Iterator<Item = Duration> {
    (0..150).step_by(2).map(Duration::from_millis)
}

pub(crate) fn stale_writes_without_a_policy() -> Vec<String> {
    moments().flat_map(|after| run(fail_over(after, false)).violations).collect()
}

#[test]
fn a_leader_that_was_paused_over_a_fail_over_changes_nothing_any_more() {
    let (mut longest, mut fenced, mut lives) = (0.0_f64, 0, 0);
    for after in moments() {
        let done = run(fail_over(after, true));
        assert!(done.violations.is_empty(), "{after:?}: {}\n{:?}", done.story, done.violations);
        longest = longest.max(done.seconds);
        fenced += done.fenced;
        lives += 1;
    }
    println!(
        "{lives} fail-overs: the job runs at most {longest:.1} s after its leader stood still, with a Lease of 15 s; {fenced} late writes refused by the policy"
    );
    figures::note("fail_overs", lives);
    figures::note("late_writes_refused", fenced);
    assert!(fenced > 0, "no write of the loser was late: the moments are wrong");
    assert!(longest < 40.0, "{longest}");
}
