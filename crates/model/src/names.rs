//! Errors for names that do not exist.

use strsim::levenshtein;

use crate::error::ModelError;

/// The error for a `name` that is not among `known`: it offers the nearest names, or all.
///
/// `field` is the path in the description or on the command line, `kind` says what the names stand
/// for.
pub fn unknown(field: &str, kind: &str, name: &str, known: &[&str]) -> ModelError {
    let distances = known.iter().map(|known| levenshtein(name, known));
    let nearest = distances.min().unwrap_or(usize::MAX);
    // When half of the name is wrong it is not a misspelling; then all names are more helpful.
    let near: Vec<&str> = known
        .iter()
        .copied()
        .filter(|known| levenshtein(name, known) == nearest)
        .collect();
    let hint = if nearest.saturating_mul(2) <= name.chars().count() {
        format!("did you mean {}?", near.join(" or "))
    } else {
        format!("there are {}", known.join(", "))
    };
    ModelError::field(field, format!("no {kind} is called {name:?}; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_gets_the_nearest_names_and_anything_else_all() {
        let error =
            |name| unknown("machine", "machine", name, &["zen4", "zen5", "xeon"]).to_string();
        assert_eq!(
            error("zen"),
            "machine: no machine is called \"zen\"; did you mean zen4 or zen5?"
        );
        assert_eq!(
            error("pentium"),
            "machine: no machine is called \"pentium\"; there are zen4, zen5, xeon"
        );
        assert!(error("").contains("there are zen4"));
    }
}
