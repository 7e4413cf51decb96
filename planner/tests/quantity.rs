//! The quantity parser against an existing crate, and against plain arithmetic where that crate is not exact.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests

use berth_planner::resources::{QuantityError, Rounding, parse_quantity};
use kube_quantity::ParsedQuantity;
use proptest::prelude::*;

/// Suffixes that multiply, with their power of 10 and of 2.
const SUFFIXES: [(&str, i32, u32); 16] = [
    ("", 0, 0),
    ("n", -9, 0),
    ("u", -6, 0),
    ("m", -3, 0),
    ("k", 3, 0),
    ("M", 6, 0),
    ("G", 9, 0),
    ("T", 12, 0),
    ("P", 15, 0),
    ("E", 18, 0),
    ("Ki", 0, 10),
    ("Mi", 0, 20),
    ("Gi", 0, 30),
    ("Ti", 0, 40),
    ("Pi", 0, 50),
    ("Ei", 0, 60),
];

fn both(text: &str, scale: u32) -> (i64, i64) {
    let ask = |rounding| parse_quantity(text, scale, rounding).expect("known to the test");
    (ask(Rounding::Capacity), ask(Rounding::Request))
}

fn theirs(text: &str) -> ParsedQuantity {
    ParsedQuantity::try_from(text).expect("known to the test")
}

fn cases(standard: u32) -> ProptestConfig {
    let count = std::env::var("BERTH_LAW_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(standard);
    println!("quantities: {count} instances");
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(count) }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn whole_numbers_with_any_suffix_are_what_the_other_crate_says(number in 0i64..1_000_000, row in 4usize..15) {
        let (suffix, ..) = SUFFIXES[row];
        // The other crate takes a bare E for the start of an exponent.
        prop_assume!(suffix != "E");
        let text = format!("{number}{suffix}");
        let exact = theirs(&text).to_bytes_i128().expect("known to the test");
        match i64::try_from(exact) {
            Ok(exact) => prop_assert_eq!(both(&text, 1), (exact, exact)),
            Err(_) => prop_assert!(parse_quantity(&text, 1, Rounding::Request).is_err()),
        }
    }

    #[test]
    fn cpu_in_thousandths_brackets_what_the_other_crate_says(
        whole in 0i64..10_000, fraction in 0u32..100_000, digits in 0usize..6, row in 2usize..4,
    ) {
        let fraction = format!("{fraction:05}");
        let suffix = if row == 2 { "" } else { "m" };
        let text = if digits == 0 { format!("{whole}{suffix}") } else { format!("{whole}.{}{suffix}", &fraction[..digits]) };
        let (least, most) = both(&text, 1000);
        let value = theirs(&text);
        let (low, high) = (theirs(&format!("{least}m")), theirs(&format!("{most}m")));
        prop_assert!(low <= value && value <= high);
        prop_assert!(most - least <= 1);
        prop_assert_eq!(least == most, theirs(&format!("{least}m")) == value);
    }

    #[test]
    fn any_quantity_is_rounded_from_its_exact_value(
        negative: bool, whole in 0i64..1_000_000_000, fraction in 0i64..1_000_000, digits in 0u32..7, row in 0usize..16,
        cpu: bool,
    ) {
        let (suffix, ten, two) = SUFFIXES[row];
        let fraction = fraction % 10i64.pow(digits);
        let width = digits as usize;
        let number = if digits == 0 { format!("{whole}") } else { format!("{whole}.{fraction:0width$}") };
        let text = format!("{}{number}{suffix}", if negative { "-" } else { "" });
        // value = mantissa × 10^(ten − digits) × 2^two × scale, as a fraction of whole numbers.
        let mantissa = i128::from(whole) * 10i128.pow(digits) + i128::from(fraction);
        let scale = if cpu { 1000 } else { 1 };
        let exponent = ten - i32::try_from(digits).expect("known to the test");
        let over = mantissa * (1i128 << two) * scale * 10i128.pow(exponent.max(0).unsigned_abs());
        let over = if negative { -over } else { over };
        let under = 10i128.pow((-exponent).max(0).unsigned_abs());
        let (floor, ceiling) = (over.div_euclid(under), -(-over).div_euclid(under));
        let ours = |rounding| parse_quantity(&text, u32::try_from(scale).expect("known to the test"), rounding).ok();
        prop_assert_eq!(ours(Rounding::Capacity), i64::try_from(floor).ok(), "{}", text);
        prop_assert_eq!(ours(Rounding::Request), i64::try_from(ceiling).ok(), "{}", text);
    }

    #[test]
    fn exponents_shift_the_point(number in 0i64..100_000, power in -6i32..9, upper: bool) {
        let text = format!("{number}{}{power}", if upper { "E" } else { "e" });
        let plain = match power {
            0.. => both(&format!("{}", number * 10i64.pow(power.unsigned_abs())), 1),
            _ => {
                let unit = 10i64.pow(power.unsigned_abs());
                (number / unit, (number + unit - 1) / unit)
            }
        };
        prop_assert_eq!(both(&text, 1), plain);
    }

    #[test]
    fn texts_of_any_kind_never_panic(text in "[0-9.eEkKMGTPmnui+-]{0,12}|.{0,8}") {
        let _ = parse_quantity(&text, 1000, Rounding::Request);
    }
}

#[test]
fn what_is_no_quantity_is_refused_by_name() {
    for text in ["", "-", ".", "1.2.3", "1 Gi", "Gi", "1gi", "1K", "0x10", "1e", "1e1.5", "1Gib", "--1", "٣"] {
        assert_eq!(
            parse_quantity(text, 1, Rounding::Request),
            Err(QuantityError::Malformed(text.to_owned())),
            "{text:?}"
        );
    }
    for text in ["9223372036854775808", "8Ei", "1e40", "100000000000000000000000000000000"] {
        assert_eq!(
            parse_quantity(text, 1, Rounding::Request),
            Err(QuantityError::TooLarge(text.to_owned())),
            "{text:?}"
        );
    }
    assert_eq!(both("9223372036854775807", 1), (i64::MAX, i64::MAX));
    assert_eq!(both("0.0000000001", 1), (0, 1));
    assert_eq!(both("+1.50Gi", 1), (1_610_612_736, 1_610_612_736));
}
