//! Exact numbers from text: decimal seconds to microseconds, dates to seconds since 1970.

/// Microseconds of a decimal number of seconds (`162`, `162.0`, `-1`, `1e3` is not accepted); digits beyond the
/// sixth after the point are dropped.
#[must_use]
pub fn micros(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut sixth: i64 = 0;
    for place in 0..6 {
        sixth = sixth * 10 + i64::from(fraction.as_bytes().get(place).map_or(0, |b| b - b'0'));
    }
    let value = whole.checked_mul(1_000_000)?.checked_add(sixth)?;
    Some(if negative { -value } else { value })
}

/// Seconds since 1970 of `2017-10-09 07:01:55` (read as UTC; logs are only ever compared with themselves).
#[must_use]
pub fn date_seconds(text: &str) -> Option<i64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut parts = date.split('-').map(|p| p.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let mut clock = time.trim_end_matches('Z').split(':').map(|p| p.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let in_range = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    (in_range && parts.next().is_none() && clock.next().is_none())
        .then(|| days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days since 1970-01-01 in the Gregorian calendar, counting years from March so that leap days come last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_seconds_are_read_exactly() {
        for (text, want) in [
            ("0", Some(0)),
            ("162.0", Some(162_000_000)),
            ("0.1", Some(100_000)),
            ("-1", Some(-1_000_000)),
            ("12.3456789", Some(12_345_678)),
            (".5", Some(500_000)),
            ("", None),
            (".", None),
            ("1e3", None),
            ("nan", None),
        ] {
            assert_eq!(micros(text), want, "{text}");
        }
    }

    #[test]
    fn dates_count_from_1970() {
        assert_eq!(date_seconds("1970-01-01 00:00:00"), Some(0));
        assert_eq!(date_seconds("2017-10-09 07:01:55"), Some(1_507_532_515));
        assert_eq!(date_seconds("2000-02-29T12:00:00Z"), Some(951_825_600));
        assert_eq!(date_seconds("2017-13-09 07:01:55"), None);
        assert_eq!(date_seconds("yesterday"), None);
    }
}
