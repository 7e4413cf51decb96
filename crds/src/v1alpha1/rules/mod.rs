//! The rules one object can be judged by alone, as CEL in its CRD. Each message names field, value and remedy.
//!
//! The API server bounds what a rule may cost before it accepts a CRD, from the schema's maxItems, maxLength and
//! maxProperties: a list or text that a rule walks must have one.

pub(crate) mod berth;
pub(crate) mod queue;
pub(crate) mod topology;
pub(crate) mod training_job;

use kube::core::{Message, Rule};

/// `rule` must hold; `message` is a CEL expression for what the user reads otherwise; `field` is the path it is about,
/// relative to where the rule stands ("" for that place itself).
fn rule(rule: impl Into<String>, message: impl Into<String>, field: &str) -> Rule {
    let made = Rule::new(rule).message(Message::Expression(message.into()));
    if field.is_empty() { made } else { made.field_path(field) }
}
