//! Random clusters, queues and jobs, and a small simulation that drives the planner over them.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod build;
pub mod drive;
pub mod render;
pub mod world;

/// How many instances a law is tried on: `BERTH_LAW_CASES`, else what CI has time for.
pub fn cases(standard: u32) -> u32 {
    std::env::var("BERTH_LAW_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(standard)
}

/// Runs a property over that many instances, then prints the count that CI reads.
pub fn law<S: proptest::strategy::Strategy>(
    name: &str,
    standard: u32,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<(), String>,
) {
    use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
    let count = cases(standard);
    let config = Config {
        cases: count,
        max_shrink_iters: 4_000,
        failure_persistence: None,
        source_file: None,
        ..Config::default()
    };
    // The same instances every time, unless BERTH_LAW_SEED asks for others.
    let mut seed = [7u8; 32];
    if let Some(n) = std::env::var("BERTH_LAW_SEED").ok().and_then(|s| s.parse::<u64>().ok()) {
        seed[..8].copy_from_slice(&n.to_le_bytes());
    }
    let rng = proptest::test_runner::TestRng::from_seed(proptest::test_runner::RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(strategy, |value| test(value).map_err(TestCaseError::fail));
    match outcome {
        Ok(()) => println!("law {name}: {count} instances"),
        Err(TestError::Fail(why, smallest)) => panic!("law {name} is broken: {why}\nsmallest instance: {smallest:#?}"),
        Err(TestError::Abort(why)) => panic!("law {name} could not be tried: {why}"),
    }
}

/// Tries many instances without stopping at the first failure and counts what breaks, with the shortest example of each:
/// the way to look at a planner that is still being written.
pub fn survey<S: proptest::strategy::Strategy>(
    standard: u32,
    strategy: &S,
    test: impl Fn(&S::Value) -> Result<(), String>,
) {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[9u8; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut kinds: std::collections::BTreeMap<String, (u32, usize, String)> = std::collections::BTreeMap::new();
    let count = cases(standard);
    let only: Option<u32> = std::env::var("BERTH_LAW_ONE").ok().and_then(|n| n.parse().ok());
    for row in 0..count {
        let mut tree = strategy.new_tree(&mut runner).expect("strategies do not reject");
        if only.is_some_and(|only| only != row) {
            continue;
        }
        let tried = |value: &S::Value| {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(value)));
            outcome.unwrap_or_else(|panic| Err(format!("panic {:?}", panic.downcast_ref::<String>())))
        };
        let Err(mut text) = tried(&tree.current()) else { continue };
        let kind = kind_of(&text);
        if only.is_some() {
            text = smallest(&mut tree, &kind, tried, text);
        }
        let entry = kinds.entry(kind).or_insert((0, usize::MAX, String::new()));
        entry.0 += 1;
        let value = tree.current();
        let world = format!("{value:?}");
        if world.len() < entry.1 {
            entry.1 = world.len();
            entry.2 = if only.is_some() { format!("{text}\n{value:#?}") } else { format!("instance {row}: {text}") };
        }
    }
    println!("survey of {count} instances");
    for (kind, (times, _, example)) in &kinds {
        println!("=== {times} times: {kind}\n{example}\n");
    }
}

/// What breaks, without the numbers of one instance.
fn kind_of(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let kind: String = first.chars().map(|c| if c.is_ascii_digit() || c == '-' { '#' } else { c }).collect();
    let mut kind = kind.split_once(" s: ").map_or(kind.clone(), |(_, k)| k.to_owned());
    while kind.contains("##") {
        kind = kind.replace("##", "#");
    }
    kind.truncate(160);
    kind
}

/// Makes an instance smaller as long as the same kind of thing breaks; what it then says.
fn smallest<T: proptest::strategy::ValueTree>(
    tree: &mut T,
    kind: &str,
    tried: impl Fn(&T::Value) -> Result<(), String>,
    mut text: String,
) -> String {
    let most = std::env::var("BERTH_LAW_SHRINKS").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000);
    let mut larger = true;
    for _ in 0..most {
        if !(if larger { tree.simplify() } else { tree.complicate() }) {
            break;
        }
        let fails = tried(&tree.current()).err().filter(|t| kind_of(t).get(..48) == kind.get(..48));
        larger = fails.is_some();
        text = fails.unwrap_or(text);
    }
    while !larger && tree.complicate() {
        larger = tried(&tree.current()).err().is_some_and(|t| kind_of(&t).get(..48) == kind.get(..48));
    }
    text
}
