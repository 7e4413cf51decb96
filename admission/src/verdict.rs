//! The answer to one request: refusals, warnings, and what was looked for in vain.

use crds::Code;
use std::fmt;

/// One reason to refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Its code.
    pub code: Code,
    /// Path of the field.
    pub field: String,
    /// The value as given; empty where there is none.
    pub value: String,
    /// Field, value and remedy in words.
    pub message: String,
}

impl fmt::Display for Rejection {
    /// `Code: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// An object that a rule looked for in vain. Caches may be behind: read it live before refusing for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Missing {
    /// A Queue.
    Queue(String),
    /// A PriorityClass.
    PriorityClass(String),
    /// A Namespace.
    Namespace(String),
    /// A level: some Topology that has it may have come.
    Level(String),
    /// Room: nodes or Topologies that would give it may have come.
    Room,
}

/// The answer to one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// Why it is refused; empty if it is accepted.
    pub rejections: Vec<Rejection>,
    /// What its user should know although it is accepted.
    pub warnings: Vec<String>,
    /// What was looked for in vain.
    pub missing: Vec<Missing>,
}

impl Verdict {
    /// Whether it is accepted.
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.rejections.is_empty()
    }

    /// Every refusal in one text.
    #[must_use]
    pub fn message(&self) -> String {
        let each: Vec<String> = self.rejections.iter().map(ToString::to_string).collect();
        each.join("; ")
    }

    /// Refuses. The message begins with the field and its value, and ends with the remedy.
    pub(crate) fn refuse(&mut self, code: Code, field: impl Into<String>, value: impl fmt::Display, fault: &str) {
        let (field, value) = (field.into(), value.to_string());
        let message =
            if value.is_empty() { format!("{field}: {fault}") } else { format!("{field} is {value}: {fault}") };
        self.rejections.push(Rejection { code, field, value, message });
    }

    pub(crate) fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    pub(crate) fn miss(&mut self, missing: Missing) {
        self.missing.push(missing);
    }
}

/// A text value in quotes.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// Names in a sentence: `a, b or c`; `none exists` without any. The first twenty.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().take(20).collect();
    match names.pop() {
        None => "none exists".to_owned(),
        Some(last) if names.is_empty() => last.to_owned(),
        Some(last) => format!("{} or {last}", names.join(", ")),
    }
}
