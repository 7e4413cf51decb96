//! Ranking rules as planner priorities: a higher priority goes first, equal ones by submission and tie.

use super::options::OrderRule;
use planner::{Span, Time};

/// The priority that makes the planner's order the wanted one.
#[must_use]
pub fn priority(rule: OrderRule, estimate: Span, units: u64, submit: Time) -> i64 {
    match rule {
        OrderRule::Fcfs | OrderRule::Fair => 0,
        OrderRule::Sjf => -estimate.0,
        OrderRule::F1 => -ordered_bits(f1(estimate, units, submit)),
    }
}

/// log10(estimate) × units + 870 × log10(submit), a value ≤ 0 counting as 0.1 inside the logarithm.
#[allow(clippy::cast_precision_loss)]
fn f1(estimate: Span, units: u64, submit: Time) -> f64 {
    let log = |seconds: f64| if seconds > 0.0 { seconds.log10() } else { 0.1f64.log10() };
    log(estimate.as_secs_f64()) * units as f64 + 870.0 * log(submit.as_secs_f64())
}

/// An integer in the same order as the number: F1 scores differ in their last digits, so no rounding is allowed.
fn ordered_bits(number: f64) -> i64 {
    let bits = number.to_bits().cast_signed();
    // Negative numbers sort backwards by their bits.
    if bits < 0 { i64::MIN.wrapping_sub(bits).max(-i64::MAX) } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_numbers_survives_as_order_of_integers() {
        let numbers = [-1e9, -1.5, -1.0, -0.0, 0.0, 1e-300, 1.0, 1.0 + f64::EPSILON, 2.0, 1e300];
        for pair in numbers.windows(2) {
            assert!(ordered_bits(pair[0]) <= ordered_bits(pair[1]), "{pair:?}");
        }
        assert!(ordered_bits(1.0) < ordered_bits(1.0 + f64::EPSILON));
        assert!(ordered_bits(-1.5) < ordered_bits(-1.0));
    }

    #[test]
    fn shorter_and_smaller_jobs_go_first() {
        let at = Time::from_secs(5000);
        let short = priority(OrderRule::Sjf, Span::from_secs(10), 8, at);
        assert!(short > priority(OrderRule::Sjf, Span::from_secs(11), 8, at));
        let small = priority(OrderRule::F1, Span::from_secs(100), 1, at);
        assert!(small > priority(OrderRule::F1, Span::from_secs(100), 2, at));
        assert_eq!(priority(OrderRule::Fcfs, Span::from_secs(1), 1, at), 0);
    }
}
