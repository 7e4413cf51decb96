//! Lengths of time in scenario files: Go-style text, or a plain number of seconds.

use planner::{Span, Time};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// A length of time, or a moment counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Length(pub Span);

impl Length {
    /// As a moment from 0.
    #[must_use]
    pub fn moment(self) -> Time {
        Time::ZERO + self.0
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Number(number) => crate::number::micros(&number.to_string())
                .filter(|m| *m >= 0)
                .map(|m| Self(Span(m)))
                .ok_or_else(|| de::Error::custom(format!("{number} is no number of seconds of 0 or more"))),
            Value::String(text) => text
                .parse::<crds::Duration>()
                .map(|d| Self(Span(i64::try_from(d.as_micros()).unwrap_or(i64::MAX))))
                .map_err(de::Error::custom),
            other => Err(de::Error::custom(format!("{other} is no duration; write 90s, 10m or 1h30m, or seconds"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_numbers_are_both_lengths() {
        let read = |json: &str| serde_json::from_str::<Length>(json).map(|l| l.0).map_err(|e| e.to_string());
        assert_eq!(read("\"1h30m\""), Ok(Span::from_secs(5400)));
        assert_eq!(read("90"), Ok(Span::from_secs(90)));
        assert_eq!(read("0.5"), Ok(Span(500_000)));
        assert!(read("-1").is_err() && read("\"2d\"").unwrap_err().contains("48h") && read("[]").is_err());
    }
}
