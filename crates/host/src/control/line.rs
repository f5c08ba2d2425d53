//! The report of a window.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_sys::clock::time_of_day;
use vtax_sys::kvm::PagingMode;

use crate::control::huge_pages::LEAST_GAIN;

/// The report of a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The end of the window, in seconds since 1970.
    pub time: f64,
    /// The mode of the host at its end; `None`: unknown.
    pub mode: Option<PagingMode>,
    /// Per second, all guests together: `exits`, `paging_exits`, `cr3_exits`, `instructions`,
    /// `cycles`, `tlb_misses`, `walk_cycles`, `vmm_cycles`, as far as they are counted. A name that
    /// begins with `model.` was counted by a model, not by hardware. `guests` is the number of guests.
    pub rates: BTreeMap<String, f64>,
    /// What is done.
    pub decision: Decision,
    /// Why it is done.
    pub reason: String,
    /// What leaving the mode saves at most, in percent of the guests' cycles; `None`: unknown.
    pub gain_percent: Option<f64>,
    /// What that estimate rests on.
    pub gain_source: Option<String>,
    /// What huge pages save where guests' memory has none, in percent of the guests' cycles; `None`:
    /// unknown.
    pub huge_gain_percent: Option<f64>,
    /// What that estimate rests on.
    pub huge_gain_source: Option<String>,
    /// Bytes of guests' memory that this controller made huge; `None`: without `--apply-huge`.
    pub huge_bytes: Option<u64>,
    /// The mode that the host is, or would be, switched to.
    pub to: Option<PagingMode>,
    /// The switch was made.
    pub applied: bool,
    /// The longest pause of a guest for the switch, including earlier attempts to save its state,
    /// in milliseconds.
    pub pause_ms: Option<f64>,
    pub policy: String,
    /// The policy's state, by the policy's own name.
    pub state: Option<String>,
    /// The policy leaves shadow paging above this many paging exits in one of its windows.
    pub threshold_vexit: Option<f64>,
    /// The policy leaves nested paging above this many TLB misses in one of its windows.
    pub threshold_tmiss: Option<f64>,
    /// Other events.
    pub events: Vec<String>,
}

/// What is done at the end of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The current mode stays.
    Hold,
    /// The host goes to the other mode, or would with `--apply`.
    Switch,
}

impl Line {
    /// A report of a window about which nothing is known.
    pub fn new(time: f64, policy: &str) -> Self {
        Self {
            time,
            mode: None,
            rates: BTreeMap::new(),
            decision: Decision::Hold,
            reason: String::new(),
            gain_percent: None,
            gain_source: None,
            huge_gain_percent: None,
            huge_gain_source: None,
            huge_bytes: None,
            to: None,
            applied: false,
            pause_ms: None,
            policy: policy.to_owned(),
            state: None,
            threshold_vexit: None,
            threshold_tmiss: None,
            events: Vec::new(),
        }
    }

    /// The decision in words.
    fn verb(&self) -> String {
        match (self.decision, self.to, self.applied) {
            (Decision::Hold, ..) | (_, None, _) => "hold".to_owned(),
            (Decision::Switch, Some(to), true) => format!("switched to {}", to.name()),
            (Decision::Switch, Some(to), false) => format!("would switch to {}", to.name()),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = self.mode.map_or("unknown", PagingMode::name);
        write!(
            formatter,
            "{}  {mode}  {}: {}",
            time_of_day(self.time),
            self.verb(),
            self.reason
        )?;
        for (name, rate) in &self.rates {
            match name.as_str() {
                "guests" => write!(formatter, "; guests: {rate}")?,
                "paging_exits" => write!(formatter, "; {} paging exits/s", short(*rate))?,
                "cr3_exits" => write!(formatter, "; {} loads of CR3/s", short(*rate))?,
                "exits" => write!(formatter, "; {} exits/s", short(*rate))?,
                _ => {}
            }
        }
        if let Some(gain) = self.gain_percent {
            write!(formatter, "; the other mode saves at most {gain:.1} %")?;
        }
        if let (Some(gain), None) = (self.huge_gain_percent, self.huge_bytes)
            && gain >= LEAST_GAIN
        {
            write!(
                formatter,
                "; with --apply-huge huge pages may save {gain:.1} %"
            )?;
        }
        for event in &self.events {
            write!(formatter, "; {event}")?;
        }
        Ok(())
    }
}

/// A number for people: three digits and a letter.
pub fn short(number: f64) -> String {
    let scales = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    for (scale, letter) in scales {
        if number >= scale {
            let shown = number / scale;
            let decimals = usize::from(shown < 100.0);
            return format!("{shown:.decimals$}{letter}");
        }
    }
    format!("{number:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_people_and_one_for_programs() {
        let mut line = Line::new(36_061.5, "naive");
        line.mode = Some(PagingMode::Shadow);
        line.rates.insert("paging_exits".into(), 41_234.0);
        line.rates.insert("guests".into(), 2.0);
        line.reason = "naive wants it".into();
        (line.decision, line.to) = (Decision::Switch, Some(PagingMode::Nested));
        line.gain_percent = Some(12.34);
        line.huge_gain_percent = Some(3.21);
        line.events.push("guest 1-2 came".into());
        assert_eq!(
            line.to_string(),
            "10:01:01Z  shadow  would switch to nested: naive wants it; guests: 2; \
             41.2k paging exits/s; the other mode saves at most 12.3 %; with --apply-huge huge pages \
             may save 3.2 %; guest 1-2 came"
        );
        let json = serde_json::to_value(&line).unwrap();
        for (name, value) in [("mode", "shadow"), ("decision", "switch"), ("to", "nested")] {
            assert_eq!(json[name], value);
        }
        assert_eq!(json["rates"]["paging_exits"], 41_234.0);
        assert_eq!(json["gain_percent"], 12.34);
        assert_eq!(serde_json::from_value::<Line>(json).unwrap(), line);
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 999.0, 1e3, 123_456.0, 2.5e9].map(short);
        assert_eq!(shown, ["0", "999", "1.0k", "123k", "2.5G"]);
    }
}
