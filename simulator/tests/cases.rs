//! Every case of planning that went wrong elsewhere has a scenario: this table says which, and fails where one has none.
#![allow(clippy::unwrap_used, clippy::panic)] // the lints are for code outside tests

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Numbers of the cases that a plan decides. The others are about the API server, discovery, labels or NCCL's logs and
/// have stories and golden tests; those on speed alone (25, 84) have a row in the benchmarks.
const OF_PLANNING: &[u32] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 32, 33, 34, 35, 36, 37, 38,
    39, 40, 41, 43, 44, 45, 47, 49, 50, 51, 52, 53, 55, 56, 57, 58, 59, 60, 63, 74, 76, 78, 79, 80, 81, 82, 83, 87, 88,
    89, 90, 91, 95, 96, 97, 98, 99, 100, 101, 102, 127, 128, 129, 141,
];

/// The cases that scenarios name in their `source:`, each with the files that do.
fn named() -> BTreeMap<u32, Vec<String>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut named: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the folder of scenarios") {
        let path = entry.expect("a readable entry").path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for number in text.lines().filter_map(|l| l.strip_prefix("source:")).flat_map(cases_in) {
            named.entry(number).or_default().push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    named
}

/// `C12` in a text is case 12.
fn cases_in(text: &str) -> Vec<u32> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(|w| w.strip_prefix('C')?.parse().ok()).collect()
}

#[test]
fn every_case_of_planning_has_a_scenario() {
    let named = named();
    let without: Vec<u32> = OF_PLANNING.iter().copied().filter(|c| !named.contains_key(c)).collect();
    assert!(without.is_empty(), "cases without a scenario: {without:?}");
    let unlisted: Vec<u32> = named.keys().copied().filter(|c| !OF_PLANNING.contains(c)).collect();
    assert!(unlisted.is_empty(), "scenarios of cases that the table does not list: {unlisted:?}");
}

#[test]
fn numbers_are_read_out_of_a_source() {
    assert_eq!(cases_in(" C102 (Slurm), C51 (KAI 2058)"), [102, 51]);
    assert_eq!(cases_in(" Cargo, 12"), Vec::<u32>::new());
}
