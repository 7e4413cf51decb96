//! Durations and moments of the API as the planner counts them: both are exact to the microsecond.

use crds::{Duration, Timestamp};
use planner::{Span, Time};

/// A duration as a span; longer than the planner can count is for ever.
#[must_use]
pub fn span(duration: Duration) -> Span {
    i64::try_from(duration.as_micros()).map_or(Span::FOREVER, Span)
}

/// A limit: absent means for ever.
#[must_use]
pub fn limit(duration: Option<Duration>) -> Span {
    duration.map_or(Span::FOREVER, span)
}

/// A span as a duration; [`None`] for ever.
#[must_use]
pub fn duration(span: Span) -> Option<Duration> {
    if span.is_forever() { None } else { Some(Duration::from_micros(u64::try_from(span.0).unwrap_or(0))) }
}

/// A moment as the planner's time.
#[must_use]
pub fn time(moment: Timestamp) -> Time {
    Time(moment.as_micros())
}

/// A time as a moment; [`None`] for never and for times that no calendar has.
#[must_use]
pub fn timestamp(time: Time) -> Option<Timestamp> {
    if time.is_never() { None } else { Timestamp::from_micros(time.0).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_limits_are_for_ever_and_come_back_as_absent() {
        assert_eq!(limit(None), Span::FOREVER);
        assert_eq!(duration(Span::FOREVER), None);
        assert_eq!(timestamp(Time::NEVER), None);
        let hour = Duration::from_hours(1);
        assert_eq!(duration(span(hour)), Some(hour));
    }

    #[test]
    fn moments_keep_their_microseconds() {
        let at = Time(1_796_064_000_000_007);
        assert_eq!(timestamp(at).map(time), Some(at));
    }
}
