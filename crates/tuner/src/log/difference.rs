//! The first difference of two descriptions, in words.

use serde_json::{Map, Value};

/// What differs, such as `processor.family: this has 26, the log 25`; `None`: there is no
/// difference.
///
/// For lists, the difference is an element that only one has.
pub fn difference(ours: &str, a: &Value, theirs: &str, b: &Value) -> Option<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => objects(ours, a, theirs, b),
        (Value::Array(a), Value::Array(b)) => lists(ours, a, theirs, b),
        _ => (a != b).then(|| format!(": {ours} has {}, {theirs} {}", shown(a), shown(b))),
    }
}

fn objects(
    ours: &str,
    a: &Map<String, Value>,
    theirs: &str,
    b: &Map<String, Value>,
) -> Option<String> {
    let names = a
        .keys()
        .chain(b.keys().filter(|name| !a.contains_key(*name)));
    let value =
        |map: &Map<String, Value>, name: &String| map.get(name).cloned().unwrap_or(Value::Null);
    names.into_iter().find_map(|name| {
        let found = difference(ours, &value(a, name), theirs, &value(b, name))?;
        let dot = if found.starts_with(':') { "" } else { "." };
        Some(format!("{name}{dot}{found}"))
    })
}

fn lists(ours: &str, a: &[Value], theirs: &str, b: &[Value]) -> Option<String> {
    let only = |of: &[Value], other: &[Value]| {
        let own = of.iter().filter(|value| !other.contains(value));
        own.map(shown).collect::<Vec<_>>().join(" ")
    };
    let (first, second) = (only(a, b), only(b, a));
    let each = [(ours, first), (theirs, second)];
    let each = each.iter().filter(|(_, names)| !names.is_empty());
    let each: Vec<String> = each
        .map(|(who, names)| format!("only {who} has {names}"))
        .collect();
    (!each.is_empty()).then(|| format!(": {}", each.join(", ")))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
