//! The values of options: `a,b=c`, or a JSON object.

use serde_json::{Map, Value};

/// Names of the first part of a value, where it has one.
const KINDS: [&str; 4] = ["qom-type", "backend", "type", "driver"];

/// The parts of `a,b=c`: names and values; a part without `=` has an empty name. A JSON object gives
/// the same.
pub(super) fn pairs(value: &str) -> Vec<(String, String)> {
    if let Some(pairs) = members(value) {
        return pairs;
    }
    let mut parts = vec![String::new()];
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        // Two commas are one comma in a value.
        if letter == ',' && letters.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts
        .into_iter()
        .map(|part| match part.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (String::new(), part),
        })
        .collect()
}

pub(super) fn add(text: &mut String, name: &str, value: &str) {
    text.push(',');
    if !name.is_empty() {
        text.push_str(name);
        text.push('=');
    }
    text.push_str(&escaped(value));
}

pub(super) fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

/// The first part of a value, which may also be written as `qom-type=`, `backend=` or `type=`.
pub(super) fn first(value: &str) -> String {
    match pairs(value).into_iter().next() {
        Some((name, part)) if name.is_empty() || KINDS.contains(&name.as_str()) => part,
        Some((name, part)) => format!("{name}={part}"),
        None => String::new(),
    }
}

pub(super) fn key(value: &str, name: &str) -> Option<String> {
    pairs(value)
        .into_iter()
        .rev()
        .find(|(found, _)| found == name)
        .map(|(_, value)| value)
}

/// The members of a JSON object, its kind first.
fn members(value: &str) -> Option<Vec<(String, String)>> {
    let object = value.starts_with('{').then_some(value)?;
    let object: Map<String, Value> = serde_json::from_str(object).ok()?;
    let mut members: Vec<_> = object
        .into_iter()
        .map(|(name, value)| match value {
            Value::String(text) => (name, text),
            Value::Bool(on) => (name, if on { "on" } else { "off" }.to_owned()),
            other => (name, other.to_string()),
        })
        .collect();
    members.sort_by_key(|(name, _)| !KINDS.contains(&name.as_str()));
    Some(members)
}

/// A size as QEMU takes it: bytes, or with one of the letters k, M, G, T.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let letter = text.chars().last()?;
    let shift = match letter.to_ascii_lowercase() {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => return text.parse().ok(),
    };
    let number: u64 = text.strip_suffix(letter)?.parse().ok()?;
    number.checked_mul(1 << shift)
}
