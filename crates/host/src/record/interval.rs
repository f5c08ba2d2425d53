//! The length of an interval: a number of retired instructions, a time, or a number of events.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use vtax_sys::terminal::units;

use crate::record::sources::{self, Event, Origin, Unit, select};

/// Instructions of one interval: fewer cost too much, more hide details.
pub const INSTRUCTIONS: std::ops::RangeInclusive<u64> = 2_000_000..=400_000_000;
/// Nanoseconds of one interval: 50 microseconds to 1 second.
pub const NANOSECONDS: std::ops::RangeInclusive<u64> = 50_000..=1_000_000_000;
/// The shortest time between two events of all CPUs together that rings are made for: a loop of the
/// shortest system calls, on each of two CPUs.
const EVENT_TIME: Duration = Duration::from_nanos(50);

/// The intended length of an interval. The row has the actual length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interval {
    /// A number of retired instructions.
    Instructions(u64),
    Time(Duration),
    /// A number of counted events, on all CPUs together.
    Events {
        event: String,
        count: u64,
    },
}

impl Interval {
    /// The sampling period of the reference event: instructions, nanoseconds, or events.
    pub fn period(&self) -> u64 {
        match self {
            Self::Instructions(count) | Self::Events { count, .. } => *count,
            Self::Time(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// The shortest time that the interval can take.
    ///
    /// No current core sustains more than 8 instructions a cycle at about 6 GHz for long.
    pub fn shortest(&self) -> Duration {
        match self {
            Self::Instructions(count) => Duration::from_nanos(count / 48),
            Self::Time(time) => *time,
            Self::Events { count, .. } => {
                EVENT_TIME.saturating_mul(u32::try_from(*count).unwrap_or(u32::MAX))
            }
        }
    }

    /// The event that ends the intervals, where programs count it.
    pub fn event(&self) -> Option<&str> {
        match self {
            Self::Events { event, .. } => Some(event),
            Self::Instructions(_) | Self::Time(_) => None,
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instructions(count) => write!(formatter, "{count} instructions"),
            Self::Time(time) => write!(formatter, "{time:?}"),
            Self::Events { event, count } => write!(formatter, "{event}:{count}"),
        }
    }
}

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some((event, count)) = text.rsplit_once(':') {
            return events(event, count);
        }
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

fn events(name: &str, count: &str) -> Result<Interval, String> {
    let all = sources::all();
    let Some(event) = all.iter().find(|event| event.name == name) else {
        let reason = select::unlike(&all, name);
        return Err(format!("event {name}: {reason} (see vtax record --list)"));
    };
    can_end_intervals(event)?;
    let number = units::count(count).map_err(|reason| format!("'{count}' is {reason}"))?;
    if number == 0 {
        return Err(format!("0 is no number of events (such as {name}:1000)"));
    }
    Ok(Interval::Events {
        event: event.name.clone(),
        count: number,
    })
}

fn can_end_intervals(event: &Event) -> Result<(), String> {
    let name = &event.name;
    match (&event.origin, event.unit) {
        (Origin::Counted { .. }, Unit::Count) => Ok(()),
        (Origin::Counted { .. }, Unit::Ns | Unit::Bytes) => Err(format!(
            "{name} is a sum, no number of events (give an event that it belongs to, such as \
             kvm.exits:1000)"
        )),
        (Origin::Perf(_) | Origin::Steal, _) => Err(format!(
            "{name} is read, not counted event by event (give a number of instructions, such as \
             50Mi, or a time, such as 1ms)"
        )),
    }
}

fn named(text: &str, reason: &str) -> String {
    format!(
        "{text} is neither instructions, such as 50Mi, nor a time, such as 1ms, nor events, such as \
             kvm.exits:1000: {reason}"
    )
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

    #[test]
    fn events_are_counted_ones_by_their_whole_names() {
        let events = |event: &str, count| {
            let event = event.to_owned();
            Ok(Interval::Events { event, count })
        };
        assert_eq!("kvm.exits:1000".parse(), events("kvm.exits", 1000));
        assert_eq!(" calls.read:2Ki ".parse(), events("calls.read", 2048));
        for (text, said) in [
            ("kvm.exit:1000", "no such event; the nearest: kvm.exits"),
            ("shced.switches:5", "sched.switches"),
            ("hw.cycles:1000", "such as 50Mi, or a time"),
            ("sw.page_faults:1000", "is read, not counted"),
            ("steal.time:1000", "is read, not counted"),
            ("kvm.guest_time:1000", "is a sum"),
            ("calls.read_bytes:1M", "is a sum"),
            ("kvm.exits:0", "0 is no number of events"),
            ("kvm.exits:", "'' is not a number"),
            ("kvm.exits:1ms", "'1ms' is not a number"),
            (":7", "no such event"),
        ] {
            let error = text.parse::<Interval>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,12}", event in "kvm[.]exits:.{0,12}") {
            let _ = text.parse::<Interval>();
            let _ = event.parse::<Interval>();
        }

        #[test]
        fn a_number_of_any_counted_event_is_kept(
            count in 1_u64..=1_000_000_000_000_000_000,
            chosen in any::<proptest::sample::Index>(),
        ) {
            let all = sources::all();
            let counted: Vec<&Event> =
                all.iter().filter(|event| can_end_intervals(event).is_ok()).collect();
            let text = format!("{}:{count}", chosen.get(&counted).name);
            let interval: Interval = text.parse().unwrap();
            prop_assert_eq!(interval.period(), count);
            prop_assert_eq!(interval.to_string(), text);
        }

        #[test]
        fn every_interval_in_range_is_kept(nanoseconds in 50_000_u64..=1_000_000_000) {
            let interval: Interval = format!("{nanoseconds}ns").parse().unwrap();
            prop_assert_eq!(interval.period(), nanoseconds);
        }
    }
}
