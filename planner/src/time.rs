//! Points and lengths of time in whole microseconds: exact, ordered, and never read from a clock here.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};

/// A point in time: microseconds since 1970-01-01T00:00:00Z (simulated runs start there).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub i64);

/// A length of time in microseconds, never negative in the planner's inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span(pub i64);

impl Time {
    /// 1970-01-01T00:00:00Z.
    pub const ZERO: Self = Self(0);
    /// Later than everything: the end of a job without a limit.
    pub const NEVER: Self = Self(i64::MAX);

    /// The point `seconds` after the epoch.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds * 1_000_000)
    }

    /// Seconds since the epoch.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whether this is [`Time::NEVER`].
    #[must_use]
    pub fn is_never(self) -> bool {
        self == Self::NEVER
    }

    /// The time since `earlier`, zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0).max(0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than everything: the run time of a job without a limit.
    pub const FOREVER: Self = Self(i64::MAX);

    /// A length of whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds * 1_000_000)
    }

    /// The length in seconds.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whether this is [`Span::FOREVER`].
    #[must_use]
    pub fn is_forever(self) -> bool {
        self == Self::FOREVER
    }
}

impl Add<Span> for Time {
    type Output = Self;
    /// Saturates: anything plus forever is never.
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Span {
    /// Go style, as the API writes durations: `1h30m`, `90s` as `1m30s`, `250ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_forever() {
            return f.write_str("unlimited");
        }
        let (hours, rest) = (self.0 / 3_600_000_000, self.0 % 3_600_000_000);
        let (minutes, rest) = (rest / 60_000_000, rest % 60_000_000);
        let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        if seconds > 0 || (micros == 0 && hours == 0 && minutes == 0) {
            write!(f, "{seconds}s")?;
        }
        if micros > 0 {
            #[allow(clippy::cast_precision_loss)]
            write!(f, "{}ms", micros as f64 / 1e3)?;
        }
        Ok(())
    }
}
