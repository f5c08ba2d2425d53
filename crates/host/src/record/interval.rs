//! The length of an interval: a number of retired instructions, or a time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use vtax_sys::terminal::units;

/// Instructions of one interval: fewer cost too much, more hide details.
pub const INSTRUCTIONS: std::ops::RangeInclusive<u64> = 2_000_000..=400_000_000;
/// Nanoseconds of one interval: 50 microseconds to 1 second.
pub const NANOSECONDS: std::ops::RangeInclusive<u64> = 50_000..=1_000_000_000;

/// The intended length of an interval. The row has the actual length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// A number of retired instructions.
    Instructions(u64),
    Time(Duration),
}

impl Interval {
    /// The sampling period of the reference event: instructions, or nanoseconds.
    pub fn period(self) -> u64 {
        match self {
            Self::Instructions(count) => count,
            Self::Time(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// The shortest time that the interval can take.
    ///
    /// No current core sustains more than 8 instructions a cycle at about 6 GHz for long.
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
        let text = text.trim();
        // Units of time are in lower case: `50M` means instructions.
        if text.ends_with(['s', 'm', 'h', 'd']) {
            let time = Self::Time(units::duration(text).map_err(|reason| named(text, &reason))?);
            return in_range(time, &NANOSECONDS, text, "50us to 1s");
        }
        let count = units::count(text).map_err(|reason| named(text, &reason))?;
        let range = "2M to 400M instructions";
        in_range(Self::Instructions(count), &INSTRUCTIONS, text, range)
    }
}

fn named(text: &str, reason: &str) -> String {
    format!("{text} is neither instructions, such as 50Mi, nor a time, such as 1ms: {reason}")
}

fn in_range(
    interval: Interval,
    range: &std::ops::RangeInclusive<u64>,
    text: &str,
    said: &str,
) -> Result<Interval, String> {
    if range.contains(&interval.period()) {
        Ok(interval)
    } else {
        Err(format!("{text} is outside the range {said}"))
    }
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
        assert_eq!("50M".parse(), Ok(Interval::Instructions(50_000_000)));
    }

    #[test]
    fn what_is_out_of_range_names_the_range() {
        for (text, range) in [
            ("1us", "50us to 1s"),
            ("2s", "50us to 1s"),
            ("1Mi", "2M to 400M"),
            ("1G", "2M to 400M"),
            ("1h30m", "50us to 1s"),
            ("50m", "50us to 1s"),
        ] {
            let error = text.parse::<Interval>().unwrap_err();
            assert!(error.contains(range), "{text}: {error}");
        }
        for text in ["fast", "-5ms"] {
            let error = text.parse::<Interval>().unwrap_err();
            assert!(error.contains("such as 50Mi"), "{error}");
        }
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
