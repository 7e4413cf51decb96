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
