//! Judges a run by the `Expect` document of its file. Knows nodes and labels from the scenario, never from the output.

mod assertion;
mod history;

use berth_simulator::brain::Brain;
use berth_simulator::scenario::{Scenario, run};
use history::History;
use serde_json::Value;

/// Everything that does not hold in one scenario file; empty when all holds.
pub(crate) fn judge_file(path: &std::path::Path) -> Vec<String> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) => return vec![format!("cannot be read: {e}")],
    };
    judge(&path.display().to_string(), &text).unwrap_or_else(|e| vec![e])
}

/// The same for a text.
pub(crate) fn judge(name: &str, text: &str) -> Result<Vec<String>, String> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).map_err(|e| e.to_string())?;
    let expect = documents.iter().find(|d| d["kind"] == "Expect").ok_or("has no document of kind Expect")?;
    let assertions = expect["assert"].as_array().filter(|a| !a.is_empty()).ok_or("Expect asserts nothing")?;
    let scenario = Scenario::read(&[(name.to_owned(), text.to_owned())]).map_err(|e| e.to_string())?;
    let report = run(&scenario, Brain::judged_thoroughly()).map_err(|e| e.to_string())?;
    let again = run(&scenario, Brain::judged_thoroughly()).map_err(|e| e.to_string())?;
    let mut wrong: Vec<String> = report.faults.iter().map(|f| format!("violation {f}")).collect();
    if report.digest != again.digest {
        wrong.push("two runs differ".into());
    }
    let history = History::of(&scenario, &report);
    for assertion in assertions {
        wrong.extend(assertion::hold(&history, assertion));
    }
    Ok(wrong)
}
