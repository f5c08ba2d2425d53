//! Why a field is null.

use std::collections::BTreeMap;

/// The names of an object's fields that are null, each with its reason.
pub type Reasons = BTreeMap<&'static str, String>;

/// The value, or `None` with its reason kept.
pub fn keep<T>(
    reasons: &mut Reasons,
    field: &'static str,
    found: Result<T, impl Into<String>>,
) -> Option<T> {
    found
        .map_err(|reason| reasons.insert(field, reason.into()))
        .ok()
}
