//! One measured quantity beside the claims about it.

use serde::Serialize;

use vtax_tuner::statistics::Interval;

/// What a source claims a quantity to be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// The source: `sysfs`, `cpuid`, `cpuinfo` or `architecture`.
    pub by: &'static str,
    /// The claim, in the quantity's unit.
    pub value: f64,
}

/// A quantity's name, here and in ATLAS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_field_names, reason = "the contract calls it name")]
pub struct Name {
    /// The name here.
    pub name: &'static str,
    /// The name in the paper's table 3 or figure 2, after ATLAS.
    pub atlas: Option<&'static str>,
    pub unit: &'static str,
}

/// A quantity: `value` is null with a `reason` where it could not be measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quantity {
    pub name: &'static str,
    /// ATLAS's name for it, if it has one.
    pub atlas: Option<&'static str>,
    /// The median of the runs.
    pub value: Option<f64>,
    /// The unit of all numbers here.
    pub unit: &'static str,
    /// The lower end of the 95 % interval.
    pub low: Option<f64>,
    /// The upper end of the 95 % interval.
    pub high: Option<f64>,
    /// The first of the claims.
    pub claimed: Option<f64>,
    pub claims: Vec<Claim>,
    /// Are all claims in the interval? `None`: there is nothing to compare.
    pub agrees: Option<bool>,
    /// The number of runs behind the value.
    pub runs: usize,
    /// Why the value is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Name {
    /// A name that ATLAS does not have.
    pub const fn new(name: &'static str, unit: &'static str) -> Self {
        let atlas = None;
        Self { name, atlas, unit }
    }

    pub const fn atlas(name: &'static str, atlas: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            atlas: Some(atlas),
            unit,
        }
    }

    /// The measured quantity, beside the claims.
    pub fn found(self, found: Result<Interval, String>, claims: Vec<Claim>) -> Quantity {
        let finite = found.and_then(|found| {
            let all = [found.value, found.low, found.high];
            let whole = all.iter().all(|one| one.is_finite());
            whole
                .then_some(found)
                .ok_or("the counter stood still".to_owned())
        });
        let (interval, reason) = match finite {
            Ok(interval) => (Some(interval), None),
            Err(reason) => (None, Some(reason)),
        };
        Quantity {
            name: self.name,
            atlas: self.atlas,
            unit: self.unit,
            value: interval.map(|found| found.value),
            low: interval.map(|found| found.low),
            high: interval.map(|found| found.high),
            claimed: claims.first().map(|claim| claim.value),
            agrees: interval
                .filter(|_| !claims.is_empty())
                .map(|found| claims.iter().all(|claim| contains(&found, claim.value))),
            claims,
            runs: interval.map_or(0, |found| found.runs),
            reason,
        }
    }

    /// A measured quantity without claims.
    pub fn alone(self, found: Result<Interval, String>) -> Quantity {
        self.found(found, Vec::new())
    }
}

fn contains(found: &Interval, claimed: f64) -> bool {
    found.low <= claimed && claimed <= found.high
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Name = Name::atlas("l1_size", "L1 Cache Size", "bytes");

    fn claim(value: f64) -> Vec<Claim> {
        vec![Claim { by: "sysfs", value }]
    }

    fn interval() -> Interval {
        Interval {
            value: 32.0,
            low: 32.0,
            high: 40.0,
            runs: 20,
        }
    }

    #[test]
    fn a_claim_in_the_interval_agrees_and_another_does_not() {
        assert_eq!(SIZE.found(Ok(interval()), claim(32.0)).agrees, Some(true));
        assert_eq!(SIZE.found(Ok(interval()), claim(48.0)).agrees, Some(false));
        assert_eq!(SIZE.alone(Ok(interval())).agrees, None);
    }

    #[test]
    fn what_was_not_measured_has_a_reason_and_keeps_its_claim() {
        let found = SIZE.found(Err("no time".into()), claim(32.0));
        assert_eq!((found.value, found.claimed), (None, Some(32.0)));
        assert_eq!(found.reason.as_deref(), Some("no time"));
        let broken = Interval {
            high: f64::INFINITY,
            ..interval()
        };
        let found = SIZE.alone(Ok(broken));
        assert!(found.value.is_none() && found.reason.is_some());
    }
}
