//! Moments exact to the microsecond, written as RFC 3339 with a fraction only where there is one.

use std::{borrow::Cow, fmt, str::FromStr};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Microseconds since 1970-01-01T00:00:00Z. Unlike metav1.Time it loses nothing, unlike MicroTime whole seconds read
/// well in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

/// A text or number that is no moment between the years -9999 and 9999.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time: write it as 2026-01-31T09:00:00Z")]
pub struct TimestampError(String);

impl Timestamp {
    /// The moment this many microseconds after the epoch.
    pub fn from_micros(micros: i64) -> Result<Self, TimestampError> {
        jiff::Timestamp::from_microsecond(micros).map(Self).map_err(|_| TimestampError(micros.to_string()))
    }

    /// Microseconds since the epoch.
    pub fn as_micros(self) -> i64 {
        self.0.as_microsecond()
    }

    /// The first whole second that is not before it: for people, who do not read microseconds.
    #[must_use]
    pub fn whole_seconds(self) -> Self {
        let seconds = self.as_micros().div_euclid(1_000_000) + i64::from(self.as_micros().rem_euclid(1_000_000) > 0);
        Self::from_micros(seconds.saturating_mul(1_000_000)).unwrap_or(self)
    }

    /// The same moment for the types of Kubernetes.
    pub fn to_jiff(self) -> jiff::Timestamp {
        self.0
    }
}

impl From<jiff::Timestamp> for Timestamp {
    /// Cut to whole microseconds, so that what is compared is what was written.
    fn from(moment: jiff::Timestamp) -> Self {
        Self(jiff::Timestamp::from_microsecond(moment.as_microsecond()).unwrap_or(moment))
    }
}

impl From<Timestamp> for Time {
    fn from(moment: Timestamp) -> Self {
        Self(moment.0)
    }
}

impl From<Timestamp> for MicroTime {
    fn from(moment: Timestamp) -> Self {
        Self(moment.0)
    }
}

impl From<Time> for Timestamp {
    fn from(time: Time) -> Self {
        time.0.into()
    }
}

impl From<MicroTime> for Timestamp {
    fn from(time: MicroTime) -> Self {
        time.0.into()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>().map(Self::from).map_err(|_| TimestampError(text.to_owned()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_read_well_and_microseconds_survive() {
        for (micros, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_796_054_400_000_000, "2026-11-30T16:00:00Z"),
            (1_796_054_400_000_007, "2026-11-30T16:00:00.000007Z"),
        ] {
            let moment = Timestamp::from_micros(micros).expect("within the years of four digits");
            assert_eq!(moment.to_string(), want);
            assert_eq!(want.parse::<Timestamp>().map(Timestamp::as_micros), Ok(micros));
        }
    }

    #[test]
    fn people_read_the_first_whole_second_not_before() {
        for (micros, want) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2), (-1_500_000, -1)] {
            let moment = Timestamp::from_micros(micros).expect("within the years of four digits");
            assert_eq!(moment.whole_seconds().as_micros(), want * 1_000_000);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "tomorrow", "2026-11-30", "1796054400"] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
