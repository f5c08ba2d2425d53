//! The length of an interval: so many retired instructions, or so much time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Instructions of one interval; fewer cost too much, more hide what is looked for.
pub const INSTRUCTIONS: std::ops::RangeInclusive<u64> = 2_000_000..=400_000_000;
/// Nanoseconds of one interval: 50 microseconds to 1 second.
pub const NANOSECONDS: std::ops::RangeInclusive<u64> = 50_000..=1_000_000_000;

/// How long one interval is meant to be. What it was is in the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// Retired instructions.
    Instructions(u64),
    /// Time.
    Time(Duration),
}

/// Suffixes of instructions, as of bytes elsewhere: 1 Ki is 1024.
const COUNTS: [(&str, u64); 6] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
];
const TIMES: [(&str, u64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

impl Interval {
    /// The sampling period of the reference event: instructions, or nanoseconds.
    pub fn period(self) -> u64 {
        match self {
            Self::Instructions(count) => count,
            Self::Time(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// The shortest time that it can take.
    ///
    /// No core of today retires more than 8 instructions a cycle at about 6 GHz for long.
    pub fn shortest(self) -> Duration {
        match self {
            Self::Instructions(count) => Duration::from_nanos(count / 48),
            Self::Time(time) => time,
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instructions(count) => write!(formatter, "{count} instructions"),
            Self::Time(time) => write!(formatter, "{time:?}"),
        }
    }
}

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(nanoseconds) = scaled(text, &TIMES)? {
            let range = "50us to 1s";
            return in_range(nanoseconds, &NANOSECONDS, text, range)
                .map(|value| Self::Time(Duration::from_nanos(value)));
        }
        let count = match scaled(text, &COUNTS)? {
            Some(count) => count,
            None => text.parse().map_err(|_| {
                format!("{text} is neither instructions, such as 50Mi, nor a time, such as 1ms")
            })?,
        };
        in_range(count, &INSTRUCTIONS, text, "2M to 400M instructions").map(Self::Instructions)
    }
}

fn in_range(
    value: u64,
    range: &std::ops::RangeInclusive<u64>,
    text: &str,
    said: &str,
) -> Result<u64, String> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(format!("{text} is outside the range {said}"))
    }
}

/// The number before one of the suffixes; `None` when it has none of them.
fn scaled(text: &str, suffixes: &[(&str, u64)]) -> Result<Option<u64>, String> {
    for (suffix, factor) in suffixes {
        let Some(number) = text.strip_suffix(suffix) else {
            continue;
        };
        if !number.ends_with(|last: char| last.is_ascii_digit()) {
            continue;
        }
        let number: f64 = number
            .parse()
            .map_err(|_| format!("{text}: {number} is no number"))?;
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float becomes the nearest integer in range, which is then checked"
        )]
        return Ok(Some((number * *factor as f64).round() as u64));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn instructions_and_times_are_told_apart() {
        assert_eq!("50Mi".parse(), Ok(Interval::Instructions(50 << 20)));
        assert_eq!("2500000".parse(), Ok(Interval::Instructions(2_500_000)));
        let time = |micros| Ok(Interval::Time(Duration::from_micros(micros)));
        assert_eq!("1ms".parse(), time(1000));
        assert_eq!("0.1ms".parse(), time(100));
        assert_eq!("50us".parse(), time(50));
    }

    #[test]
    fn what_is_out_of_range_names_the_range() {
        for (text, range) in [
            ("1us", "50us to 1s"),
            ("2s", "50us to 1s"),
            ("1Mi", "2M to 400M"),
            ("1G", "2M to 400M"),
            ("-5ms", "50us to 1s"),
        ] {
            let error = text.parse::<Interval>().unwrap_err();
            assert!(error.contains(range), "{text}: {error}");
        }
        let error = "fast".parse::<Interval>().unwrap_err();
        assert!(error.contains("such as 50Mi"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,12}") {
            let _ = text.parse::<Interval>();
        }

        #[test]
        fn every_interval_in_range_is_kept(nanoseconds in 50_000_u64..=1_000_000_000) {
            let interval: Interval = format!("{nanoseconds}ns").parse().unwrap();
            prop_assert_eq!(interval.period(), nanoseconds);
        }
    }
}
