//! Policies by name, with parameters from a description.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Policy;
use super::dav2m::{Dav2m, Dav2mParameters};
use super::fixed::{Fixed, FixedParameters};
use super::naive::{Naive, NaiveParameters};
use super::rpms::{Rpms, RpmsParameters};
use super::vtax::{Vtax, VtaxParameters};
use crate::error::ModelError;
use crate::model::machine::Costs;
use crate::names::unknown;
use vtax_sys::kvm::PagingMode;

/// Makes a policy from its table of parameters, the machine's costs and the window.
type Make = fn(toml::Table, &Costs, u64) -> Result<Box<dyn Policy>, ModelError>;

/// All policies; a new policy is one file and one line here.
const POLICIES: &[(&str, Make)] = &[
    ("shadow", |table, _, window| {
        fixed(PagingMode::Shadow, table, window)
    }),
    ("nested", |table, _, window| {
        fixed(PagingMode::Nested, table, window)
    }),
    ("naive", |table, _, window| {
        let defaults = NaiveParameters::scaled(window_in(&table, "window", window));
        Ok(Box::new(Naive::new(overlay(&defaults, table)?)?))
    }),
    ("dav2m", |table, _, window| {
        let defaults = Dav2mParameters::scaled(window_in(&table, "window_inst", window));
        Ok(Box::new(Dav2m::new(overlay(&defaults, table)?)?))
    }),
    ("rpms", |table, _, window| {
        let defaults = RpmsParameters::with_window(window);
        Ok(Box::new(Rpms::new(overlay(&defaults, table)?)?))
    }),
    ("vtax", |table, costs, window| {
        let defaults = VtaxParameters::with_window(window);
        Ok(Box::new(Vtax::new(overlay(&defaults, table)?, costs)?))
    }),
];

/// The names of all policies, in the order of tables.
pub fn names() -> Vec<&'static str> {
    POLICIES.iter().map(|(name, _)| *name).collect()
}

/// The policy `name` for windows of `window` retired instructions on a machine with `costs`.
///
/// `parameters` override the policy's defaults, which are scaled to the window. Fails on an unknown
/// name (and suggests a near one), and on an unknown, ill-typed or invalid parameter (and names the
/// field).
pub fn by_name(
    name: &str,
    parameters: Option<toml::Table>,
    costs: &Costs,
    window: u64,
) -> Result<Box<dyn Policy>, ModelError> {
    let (_, make) = POLICIES
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| unknown("policy", "policy", name, &names()))?;
    make(parameters.unwrap_or_default(), costs, window)
}

fn fixed(mode: PagingMode, table: toml::Table, window: u64) -> Result<Box<dyn Policy>, ModelError> {
    let parameters = overlay(&FixedParameters { window }, table)?;
    Ok(Box::new(Fixed::new(mode, parameters)?))
}

/// The base window: a table that sets it also scales all other defaults.
fn window_in(table: &toml::Table, key: &str, window: u64) -> u64 {
    table
        .get(key)
        .and_then(toml::Value::as_integer)
        .and_then(|given| u64::try_from(given).ok())
        .unwrap_or(window)
}

/// `defaults`, overridden by the keys of `table`.
fn overlay<T: Serialize + DeserializeOwned>(
    defaults: &T,
    table: toml::Table,
) -> Result<T, ModelError> {
    let mut all = toml::Table::try_from(defaults)
        .map_err(|error| ModelError::field("window", first_line(&error.to_string())))?;
    all.extend(table);
    serde_path_to_error::deserialize(all).map_err(|error| {
        let field = error.path().to_string();
        ModelError::field(field, first_line(&error.inner().to_string()))
    })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        toml::Table::new()
            .into_iter()
            .chain(
                COST_FIELDS
                    .iter()
                    .map(|field| ((*field).to_owned(), toml::Value::Integer(1000))),
            )
            .collect::<toml::Table>()
            .try_into()
            .unwrap()
    }

    const COST_FIELDS: [&str; 21] = [
        "exit",
        "nested_fault",
        "shadow_fill",
        "reflect_fault",
        "table_write",
        "unsync",
        "sync_table",
        "sync_entry",
        "zap",
        "invlpg",
        "load_cr3",
        "build_root",
        "other",
        "policy",
        "switch_to_nested",
        "switch_to_shadow",
        "guest_fault",
        "system_call",
        "context_switch",
        "guest_load_cr3",
        "guest_invlpg",
    ];

    fn make(name: &str, parameters: &str) -> Result<Box<dyn Policy>, ModelError> {
        let mut costs = costs();
        costs.exit = 1000;
        by_name(name, Some(parameters.parse().unwrap()), &costs, 1_000_000)
    }

    fn error(name: &str, parameters: &str) -> String {
        make(name, parameters).err().unwrap().to_string()
    }

    #[test]
    fn every_name_makes_the_policy_of_that_name() {
        for name in names() {
            let policy = make(name, "").unwrap();
            assert_eq!(policy.name(), name);
            assert_eq!(policy.window_instructions(), 1_000_000);
        }
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_ones() {
        assert_eq!(
            error("davm2", ""),
            "policy: no policy is called \"davm2\"; did you mean dav2m?"
        );
        assert!(error("quicksort", "").contains("there are shadow, nested, naive, dav2m"));
    }

    #[test]
    fn defaults_are_scaled_to_the_window_and_overridden_by_name() {
        let policy = make("dav2m", "").unwrap();
        assert_eq!(policy.view().threshold_vexit, Some(10.0));
        assert_eq!(policy.view().threshold_tmiss, Some(100.0));
        let policy = make("dav2m", "window_inst = 1000000000\np_factor = 2").unwrap();
        assert_eq!(policy.window_instructions(), 1_000_000_000);
        assert_eq!(policy.view().threshold_vexit, Some(1e4));
    }

    #[test]
    fn a_wrong_parameter_names_the_field() {
        assert!(error("dav2m", "p_factor = \"big\"").starts_with("p_factor: invalid type"));
        assert!(error("dav2m", "pfactor = 1.2").contains("unknown field `pfactor`"));
        assert!(error("naive", "start = \"native\"").starts_with("start: unknown variant"));
        assert!(error("naive", "window = -5").starts_with("window: "));
        assert!(error("shadow", "window = 0").starts_with("window: "));
    }
}
