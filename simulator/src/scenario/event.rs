//! What a run tells: one line an event, in order.

use planner::Time;
use serde::{Serialize, Serializer};

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// When.
    #[serde(serialize_with = "seconds")]
    pub t: Time,
    /// The job, as the file names it.
    pub job: String,
    /// What happened to it.
    #[serde(flatten)]
    pub what: What,
}

/// A pod's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rank {
    /// Rank.
    pub rank: u32,
    /// Role.
    pub role: String,
    /// Index in the role.
    pub index: u32,
    /// Node.
    pub node: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event")]
pub enum What {
    /// Admission refused it.
    Rejected {
        /// One of the closed table.
        code: String,
        /// In words.
        message: String,
    },
    /// Admission refused a change of it; it goes on as it was.
    EditRefused {
        /// One of the closed table.
        code: String,
        /// In words.
        message: String,
    },
    /// A change of it takes effect only with its next start, since it would move a promise.
    ChangeDeferred {
        /// In words.
        message: String,
    },
    /// It runs.
    Started {
        /// Number of the start.
        incarnation: i64,
        /// Its pods.
        ranks: Vec<Rank>,
        /// Narrowest level that holds it in one domain.
        level: String,
        /// Path of that domain.
        domain: String,
        /// Domains of the wanted level in use.
        domains: u32,
    },
    /// It was promised a start.
    Reserved {
        /// When.
        #[serde(serialize_with = "seconds")]
        start: Time,
        /// On these nodes.
        nodes: Vec<String>,
        /// Narrowest domain that holds them.
        domain: String,
    },
    /// It waits, for another reason than before.
    Pending {
        /// One of the closed table.
        code: String,
        /// In words.
        message: String,
    },
    /// It runs on at another size.
    Resized {
        /// All its pods.
        ranks: Vec<Rank>,
        /// For whom it shrank.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// It was told to stop.
    Stopped {
        /// Why.
        cause: String,
        /// For whom.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// Seconds of its work that are lost.
        #[serde(serialize_with = "seconds")]
        lost: Time,
    },
    /// One lost pod runs on another node.
    NodeReplaced {
        /// Its rank.
        rank: u32,
        /// Where it was.
        from: String,
        /// Where it is.
        to: String,
    },
    /// Its promise changed; none: it was dropped.
    ReservationMoved {
        /// Start so far.
        #[serde(serialize_with = "seconds")]
        from: Time,
        /// New start.
        #[serde(serialize_with = "seconds_or_null")]
        to: Option<Time>,
        /// `Code(object)`; none when it is only sooner.
        cause: Option<String>,
    },
    /// It ended.
    Finished {
        /// `Succeeded`, `Failed` or `RuntimeExceeded`.
        result: String,
    },
}

/// Seconds from 0: whole where they are whole.
///
/// # Errors
/// Those of the serializer.
pub fn seconds<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    if time.0 % 1_000_000 == 0 {
        serializer.serialize_i64(time.0 / 1_000_000)
    } else {
        serializer.serialize_f64(time.as_secs_f64())
    }
}

/// The same for what may be absent.
///
/// # Errors
/// Those of the serializer.
pub fn seconds_or_null<S: Serializer>(time: &Option<Time>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => seconds(time, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_flat_and_times_are_seconds() {
        let moved =
            What::ReservationMoved { from: Time::from_secs(3600), to: None, cause: Some("JobEdited(j)".into()) };
        let event = Event { t: Time(1_500_000), job: "j".into(), what: moved };
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"t":1.5,"job":"j","event":"ReservationMoved","from":3600,"to":null,"cause":"JobEdited(j)"}"#
        );
        let stopped = What::Stopped { cause: "Suspended".into(), by: None, lost: Time::from_secs(60) };
        assert_eq!(
            serde_json::to_string(&Event { t: Time::ZERO, job: "j".into(), what: stopped }).unwrap(),
            r#"{"t":0,"job":"j","event":"Stopped","cause":"Suspended","lost":60}"#
        );
    }
}
