//! Parameters by their names.

use serde::Serialize;
use serde_json::{Map, Value};

/// Names and values as ATLAS writes them; flags are 0 and 1.
pub fn fields<P: Serialize>(parameters: &P) -> Map<String, Value> {
    let named = match serde_json::to_value(parameters) {
        Ok(Value::Object(named)) => named,
        _ => Map::new(),
    };
    let number = |value: Value| value.as_bool().map_or(value, |flag| i32::from(flag).into());
    let each = named.into_iter();
    each.map(|(name, value)| (name, number(value))).collect()
}
