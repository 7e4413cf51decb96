//! What can be wrong with an object, as data: which object, which field, and what would be accepted.

use crds::Code;
use planner::resources::QuantityError;
use thiserror::Error;

/// An object that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{object}: {field}: {fault}")]
pub struct TranslateError {
    /// Kind and name: `TrainingJob team-a/llama`.
    pub object: String,
    /// Path of the field.
    pub field: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A quantity below zero.
    #[error("{0} is negative; write an amount of at least 0")]
    Negative(String),
    /// An operator that the field does not have.
    #[error("operator \"{value}\" is unknown; use one of {accepted}")]
    Operator {
        /// As written.
        value: String,
        /// What the field knows.
        accepted: &'static str,
    },
    /// An operand that is missing, superfluous or not a whole number.
    #[error("operator {operator} does not take {value}; it takes {accepted}")]
    Operand {
        /// The operator.
        operator: String,
        /// The values as written.
        value: String,
        /// What the operator takes.
        accepted: &'static str,
    },
    /// A field that selectors of nodes do not have.
    #[error("\"{0}\" is no field that nodes are selected by; use metadata.name")]
    NodeField(String),
    /// A label selector that does not parse.
    #[error("{0}; use matchLabels, or matchExpressions with In, NotIn, Exists, DoesNotExist")]
    Selector(String),
    /// A window that does not parse.
    #[error(
        "\"{0}\" is no window; write START/END with both in RFC 3339, such as 2026-01-31T09:00:00Z/2026-01-31T17:00:00Z"
    )]
    Window(String),
    /// A queue that does not exist.
    #[error("queue \"{0}\" does not exist; name one that kubectl get bq shows, or have it made")]
    UnknownQueue(String),
    /// A priority class that does not exist.
    #[error("PriorityClass \"{0}\" does not exist; name one that kubectl get priorityclass shows")]
    UnknownPriorityClass(String),
    /// A queue's parent that does not exist.
    #[error("parent queue \"{0}\" does not exist; make it first, or name another")]
    UnknownParent(String),
    /// A queue that is its own ancestor.
    #[error("the queue would be its own ancestor through \"{0}\"; choose another parent")]
    QueueCycle(String),
    /// A quota key for a pool that does not exist.
    #[error(
        "\"{pool}\" in \"{key}\" is no Topology; name one that kubectl get btopo shows, or write the resource alone"
    )]
    UnknownPool {
        /// The key as written.
        key: String,
        /// Its first part.
        pool: String,
    },
    /// A number outside its range.
    #[error("{value} is out of range; {accepted}")]
    Range {
        /// As written.
        value: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// A role that the job does not have (any more).
    #[error("the job has no role \"{0}\"; its Berth belongs to an earlier spec")]
    UnknownRole(String),
    /// Roles that wait for each other.
    #[error("roles depend on each other in a circle through \"{0}\"; remove one of the dependencies")]
    DependencyCycle(String),
    /// Something that every stored object has.
    #[error("is missing; the API server sets it")]
    Missing,
}

impl Fault {
    /// The code that conditions and metrics show for it.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::UnknownQueue(_) => Code::UnknownQueue,
            Self::UnknownPriorityClass(_) => Code::UnknownPriorityClass,
            Self::UnknownParent(_) => Code::QueueParentMissing,
            Self::QueueCycle(_) => Code::QueueCycle,
            Self::DependencyCycle(_) => Code::DependencyCycle,
            Self::UnknownRole(_) => Code::UnknownRole,
            _ => Code::InvalidObject,
        }
    }

    /// The fault at a field of an object.
    #[must_use]
    pub fn at(self, object: impl Into<String>, field: impl Into<String>) -> TranslateError {
        TranslateError { object: object.into(), field: field.into(), fault: self }
    }
}

/// A fault of a part whose object is not known yet: its field, relative to that part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFault {
    /// Path of the field inside the part.
    pub field: String,
    /// What is wrong.
    pub fault: Fault,
}

impl FieldFault {
    /// A fault at a field.
    #[must_use]
    pub fn new(field: impl Into<String>, fault: Fault) -> Self {
        Self { field: field.into(), fault }
    }

    /// The same seen from the part that contains this one.
    #[must_use]
    pub fn under(self, prefix: &str) -> Self {
        Self { field: format!("{prefix}{}", self.field), fault: self.fault }
    }

    /// The same as an error of an object.
    #[must_use]
    pub fn of(self, object: impl Into<String>) -> TranslateError {
        self.fault.at(object, self.field)
    }
}
