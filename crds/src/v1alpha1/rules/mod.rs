//! The rules one object can be judged by alone, as CEL in its CRD. Each message names field, value and remedy.
//!
//! The API server bounds what a rule may cost before it accepts a CRD, from the schema's maxItems, maxLength and
//! maxProperties: a list or text that a rule walks must have one.

pub(crate) mod berth;
pub(crate) mod queue;
pub(crate) mod topology;
pub(crate) mod training_job;

use kube::core::{Message, Rule};

/// `rule` must hold, else the user reads `text` with its `%s` and `%d` replaced by the expressions `args`; `field` is
/// the path it is about, relative to where the rule stands ("" for that place itself).
///
/// `format` and not `+`: the server bounds the cost of a message too, and knows no bound for `string(int)`.
fn rule(rule: impl Into<String>, text: &str, args: &[&str], field: &str) -> Rule {
    let text = text.replace('\\', "\\\\").replace('\'', "\\'");
    let message = if args.is_empty() { format!("'{text}'") } else { format!("'{text}'.format([{}])", args.join(", ")) };
    let made = Rule::new(rule).message(Message::Expression(message));
    if field.is_empty() { made } else { made.field_path(field) }
}
