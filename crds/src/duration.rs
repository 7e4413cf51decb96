//! Durations as Go writes them (`90s`, `1h30m`), exact to the microsecond; never negative, never days.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What the schema and the parser both accept: units in falling order, each at most once.
/// The digits allowed before and after the point keep every value a whole number of microseconds and the sum within
/// what CEL's own `duration()` can hold.
pub const PATTERN: &str = r"^(0|([0-9]{1,6}(\.[0-9]{1,6})?h)?([0-9]{1,7}(\.[0-9]{1,6})?m)?([0-9]{1,9}(\.[0-9]{1,6})?s)?([0-9]{1,9}(\.[0-9]{1,3})?ms)?([0-9]{1,9}us)?)$";

/// Unit, microseconds in it, most digits before the point, most digits after it.
const UNITS: [(&str, u64, usize, usize); 5] =
    [("h", 3_600_000_000, 6, 6), ("m", 60_000_000, 7, 6), ("s", 1_000_000, 9, 6), ("ms", 1_000, 9, 3), ("us", 1, 9, 0)];

/// A length of time, in whole microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

/// Why a text is no duration; the message says what is accepted instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: {fault}; write it as 90s, 10m, 1h30m or 1.5h")]
pub struct DurationError {
    text: String,
    fault: &'static str,
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A duration of this many microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// A duration of this many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// A duration of this many minutes.
    pub const fn from_mins(mins: u64) -> Self {
        Self::from_secs(mins.saturating_mul(60))
    }

    /// A duration of this many hours.
    pub const fn from_hours(hours: u64) -> Self {
        Self::from_secs(hours.saturating_mul(3_600))
    }

    /// The exact value in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds, rounded up, so that a limit is never cut short.
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Whole seconds, rounded up, so that a grace period is never cut short.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// True for no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        Self::from_micros(duration.0)
    }
}

impl fmt::Display for Duration {
    /// The shortest exact text: `1h30m`, `90s` becomes `1m30s`, zero is `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, micros, ..) in UNITS {
            let count = rest / micros;
            rest %= micros;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |fault| DurationError { text: text.to_owned(), fault };
        match text {
            "0" => return Ok(Self::ZERO),
            "" => return Err(fail("it is empty")),
            _ if text.starts_with('-') => return Err(fail("it is negative")),
            _ => {}
        }
        let (mut rest, mut units, mut sum) = (text, UNITS.iter(), 0u64);
        while !rest.is_empty() {
            let (number, tail) = split_before(rest, |c| !c.is_ascii_digit() && c != '.');
            let (unit, tail) = split_before(tail, |c| c.is_ascii_digit());
            let known = UNITS.iter().any(|(name, ..)| *name == unit);
            // Searching on from the last unit found is what keeps the order falling and each unit single.
            let Some((_, micros, whole, fraction)) = units.find(|(name, ..)| *name == unit) else {
                return Err(fail(unit_fault(unit, known)));
            };
            let value =
                scaled(number, *micros, *whole, *fraction).ok_or_else(|| fail("a number in it is malformed"))?;
            sum = sum.checked_add(value).ok_or_else(|| fail("it is too long"))?;
            rest = tail;
        }
        Ok(Self(sum))
    }
}

fn unit_fault(unit: &str, known: bool) -> &'static str {
    match unit {
        "" => "a unit is missing",
        "d" => "days are not accepted, write 48h for two",
        _ if known => "units must come in the order h, m, s, ms, us, each once",
        _ => "its unit is none of h, m, s, ms, us",
    }
}

fn split_before(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

/// `number` times `micros`, exactly; None if it is malformed or longer than the pattern allows.
fn scaled(number: &str, micros: u64, whole_max: usize, fraction_max: usize) -> Option<u64> {
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (number, ""),
    };
    if whole.is_empty() || whole.len() > whole_max || fraction.len() > fraction_max {
        return None;
    }
    let value = whole.parse::<u64>().ok()?.checked_mul(micros)?;
    if fraction.is_empty() {
        return Some(value);
    }
    let scale = 10u64.pow(u32::try_from(fraction.len()).ok()?);
    value.checked_add(fraction.parse::<u64>().ok()? * micros / scale)
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1, "maxLength": 48, "pattern": PATTERN})
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn micros(text: &str) -> Option<u64> {
        text.parse::<Duration>().ok().map(Duration::as_micros)
    }

    #[test]
    fn go_style_texts_are_read_exactly() {
        for (text, want) in [
            ("0", 0),
            ("0s", 0),
            ("90s", 90_000_000),
            ("1h30m", 5_400_000_000),
            ("1.5h", 5_400_000_000),
            ("0.1s", 100_000),
            ("1h0m0s", 3_600_000_000),
            ("250ms", 250_000),
            ("1.5ms", 1_500),
            ("7us", 7),
            ("0.000001h", 3_600),
        ] {
            assert_eq!(micros(text), Some(want), "{text}");
        }
    }

    #[test]
    fn days_bare_numbers_and_disorder_are_refused() {
        for text in
            ["", "2d", "90", "1h30", "-5s", "1m1h", "1s1s", "s", ".5s", "1.s", "1..5s", "5 s", "1.5us", "1e3s", "١s"]
        {
            assert_eq!(micros(text), None, "{text}");
        }
        let refused = "2d".parse::<Duration>().expect_err("days are not accepted");
        assert_eq!(
            refused.to_string(),
            r#""2d" is not a duration: days are not accepted, write 48h for two; write it as 90s, 10m, 1h30m or 1.5h"#
        );
    }

    #[test]
    fn text_is_short_and_exact() {
        for (micros, want) in
            [(0, "0s"), (90_000_000, "1m30s"), (5_400_000_000, "1h30m"), (1, "1us"), (1_500, "1ms500us")]
        {
            assert_eq!(Duration::from_micros(micros).to_string(), want);
        }
    }

    proptest! {
        #[test]
        fn every_duration_survives_its_text(micros in 0u64..3_600_000_000_000_000) {
            let duration = Duration::from_micros(micros);
            prop_assert_eq!(duration.to_string().parse::<Duration>(), Ok(duration));
        }
    }
}
