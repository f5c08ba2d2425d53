//! The answer for people.

use std::fmt::Write;

use crate::probe::Probed;
use crate::probe::quantity::Quantity;

/// A table of the quantities, then the steps of the curves and the notes.
pub fn describe(probed: &Probed) -> String {
    let mut text = format!(
        "{:<22} {:>10}  {:<21} {:<9} {:<18} {}\n",
        "quantity", "median", "95 % interval", "unit", "claimed", "in ATLAS"
    );
    for quantity in &probed.probes {
        let _ = writeln!(text, "{}", row(quantity).trim_end());
    }
    for curve in &probed.curves {
        let edges: Vec<String> = curve.edges.iter().map(|edge| size(edge.bytes)).collect();
        let steps = if edges.is_empty() {
            "none".into()
        } else {
            edges.join(", ")
        };
        let _ = writeln!(text, "steps of {} after: {steps}", curve.name);
    }
    for note in &probed.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let cpu = probed
        .cpu
        .map_or("any CPU".into(), |cpu| format!("CPU {cpu}"));
    let _ = write!(
        text,
        "{} runs on {cpu}, {:.1} s",
        probed.runs, probed.seconds
    );
    text
}

fn row(quantity: &Quantity) -> String {
    let number = |value: f64| number(value, quantity.unit);
    let unit = if quantity.unit == "bytes" {
        ""
    } else {
        quantity.unit
    };
    let claims = quantity.claims.iter();
    let claims: Vec<String> = claims
        .map(|claim| format!("{} ({})", number(claim.value), claim.by))
        .collect();
    let differs = if quantity.agrees == Some(false) {
        " DIFFERS"
    } else {
        ""
    };
    let claimed = format!("{}{differs}", claims.join(", "));
    let atlas = quantity.atlas.unwrap_or_default();
    let (Some(value), Some(low), Some(high)) = (quantity.value, quantity.low, quantity.high) else {
        let reason = quantity.reason.as_deref().unwrap_or("no reason given");
        let claimed = if claimed.is_empty() {
            claimed
        } else {
            format!(" (claimed: {claimed})")
        };
        return format!("{:<22} {:>10}  {reason}{claimed}", quantity.name, "-");
    };
    let interval = format!("{} to {}", number(low), number(high));
    format!(
        "{:<22} {:>10}  {interval:<21} {unit:<9} {claimed:<18} {atlas}",
        quantity.name,
        number(value)
    )
}

fn number(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => size(value),
        "ways" | "registers" | "chains" => format!("{value:.0}"),
        _ if value.abs() < 10.0 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

/// Bytes in the largest unit that leaves at least one.
fn size(bytes: f64) -> String {
    const UNITS: [(f64, &str); 3] = [
        (1_073_741_824.0, "GiB"),
        (1_048_576.0, "MiB"),
        (1024.0, "KiB"),
    ];
    let unit = UNITS.iter().find(|(scale, _)| bytes >= *scale);
    let (scaled, name) = unit.map_or((bytes, "B"), |(scale, name)| (bytes / scale, name));
    let text = format!("{scaled:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::quantity::{Claim, Name};
    use vtax_tuner::statistics::Interval;

    #[test]
    fn sizes_are_short() {
        let sizes = [64.0, 32768.0, 1_310_720.0, 536_870_912.0, 6_442_450_944.0].map(size);
        assert_eq!(sizes, ["64 B", "32 KiB", "1.25 MiB", "512 MiB", "6 GiB"]);
    }

    #[test]
    fn a_disagreement_and_a_reason_are_seen() {
        let claim = vec![Claim {
            by: "cpuid",
            value: 49152.0,
        }];
        let name = Name::atlas("l1_size", "L1 Cache Size", "bytes");
        let interval = Interval {
            value: 32768.0,
            low: 32768.0,
            high: 40960.0,
            runs: 20,
        };
        let found = row(&name.found(Ok(interval), claim.clone()));
        assert!(found.contains("32 KiB to 40 KiB") && found.contains("48 KiB (cpuid) DIFFERS"));
        assert!(found.contains("L1 Cache Size"));
        let missing = row(&name.found(Err("no time".into()), claim));
        assert!(
            missing.contains("no time (claimed: 48 KiB (cpuid))"),
            "{missing}"
        );
    }
}
