//! Exact non-negative fractions: shares are compared without rounding, so equal shares are equal.

use std::cmp::Ordering;

/// A fraction with a positive denominator. Equal values are equal whatever their terms.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    num: u128,
    den: u128,
}

impl Ratio {
    /// Nothing.
    pub const ZERO: Self = Self { num: 0, den: 1 };
    /// More than every other fraction.
    pub const INFINITE: Self = Self { num: 1, den: 0 };

    /// `num / den`; infinite if `den` is zero and `num` is not.
    #[must_use]
    pub fn new(num: u128, den: u128) -> Self {
        if num == 0 { Self::ZERO } else { Self { num, den } }
    }

    /// The value, rounded, for display only.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn to_f64(self) -> f64 {
        self.num as f64 / self.den as f64
    }

    /// `floor(value × times)`, saturating; for display and oracles.
    #[must_use]
    pub fn floor_times(self, times: u128) -> u128 {
        match self.num.checked_mul(times) {
            Some(product) if self.den > 0 => product / self.den,
            _ => u128::MAX,
        }
    }

    /// Whether it is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.num == 0
    }

    /// Compares by Euclid's steps, which need no wider integers than the terms: whole parts first, then the reciprocals
    /// of what is left.
    fn euclid(mut a: Self, mut b: Self) -> Ordering {
        let mut flipped = false;
        loop {
            let order = match (a.den, b.den) {
                (0, 0) => Ordering::Equal,
                (0, _) => Ordering::Greater,
                (_, 0) => Ordering::Less,
                _ => (a.num / a.den).cmp(&(b.num / b.den)),
            };
            if order != Ordering::Equal || a.den == 0 {
                return if flipped { order.reverse() } else { order };
            }
            (a, b) = (Self { num: a.den, den: a.num % a.den }, Self { num: b.den, den: b.num % b.den });
            flipped = !flipped;
        }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.num.checked_mul(other.den), other.num.checked_mul(self.den)) {
            (Some(mine), Some(theirs)) if self.den > 0 && other.den > 0 => mine.cmp(&theirs),
            _ => Self::euclid(*self, *other),
        }
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}

#[cfg(test)]
mod tests {
    use super::Ratio;
    use proptest::prelude::*;

    #[test]
    fn equal_values_with_other_terms_are_equal() {
        assert_eq!(Ratio::new(2, 6), Ratio::new(1, 3));
        assert_eq!(Ratio::new(0, 7), Ratio::ZERO);
        assert_eq!(Ratio::new(1 << 100, 3 << 100), Ratio::new(1, 3));
        assert!(Ratio::INFINITE > Ratio::new(u128::MAX, 1));
        assert!(Ratio::new(0, 0).is_zero());
    }

    #[test]
    fn terms_too_wide_to_multiply_still_compare_exactly() {
        let wide = 1u128 << 120;
        assert!(Ratio::new(wide + 1, wide) > Ratio::new(wide, wide));
        assert!(Ratio::new(wide, wide + 1) < Ratio::new(wide + 1, wide + 2));
        assert_eq!(Ratio::new(wide - 1, wide), Ratio::new(wide - 1, wide));
    }

    proptest! {
        #[test]
        fn euclid_agrees_with_multiplication(a in 0u128..999, b in 1u128..99, c in 0u128..999, d in 1u128..99) {
            prop_assert_eq!(Ratio::euclid(Ratio::new(a, b), Ratio::new(c, d)), (a * d).cmp(&(c * b)));
        }
    }
}
