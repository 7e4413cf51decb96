//! How long a job waits before it starts again after its own failure: 10 s, doubling to 5 min, forgotten after it ran
//! for 10 min.

use planner::Span;

/// The first wait.
const FIRST: Span = Span::from_secs(10);
/// The longest wait.
const LONGEST: Span = Span::from_secs(300);
/// An incarnation that ran this long was no crash at start: the next wait is the first one again.
const FORGOTTEN_AFTER: Span = Span::from_secs(600);

/// The wait before the next start, after the `failures`-th counted failure of an incarnation that ran for `ran`.
#[must_use]
pub fn restart_delay(failures: u32, ran: Span) -> Span {
    if ran >= FORGOTTEN_AFTER { FIRST } else { doubling(FIRST, LONGEST, failures) }
}

/// The wait after the `times`-th refusal in a row: `first`, doubling to `longest`; none before the first.
#[must_use]
pub fn doubling(first: Span, longest: Span, times: u32) -> Span {
    if times == 0 {
        return Span::ZERO;
    }
    let factor = 1i64.checked_shl((times - 1).min(40)).unwrap_or(i64::MAX);
    Span(first.0.saturating_mul(factor).min(longest.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_five_minutes() {
        let waits: Vec<i64> = (0..8).map(|n| restart_delay(n, Span::ZERO).0 / 1_000_000).collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(restart_delay(u32::MAX, Span::ZERO), LONGEST);
    }

    #[test]
    fn a_long_run_is_forgiven() {
        assert_eq!(restart_delay(6, Span::from_secs(600)), FIRST);
        assert_eq!(restart_delay(6, Span::from_secs(599)), LONGEST);
    }
}
