//! Machines that vtax carries: `machines/*.toml`, each number with its source.

use crate::error::ModelError;
use crate::model::machine::Machine;
use crate::names;

/// Name and description, the DAV2M paper's two machines first. A new machine is one file and one
/// line.
const PRESETS: &[(&str, &str)] = &[
    ("opteron2350", include_str!("../machines/opteron2350.toml")),
    ("phenom2x550", include_str!("../machines/phenom2x550.toml")),
    ("xeon8269cy", include_str!("../machines/xeon8269cy.toml")),
    ("zen4", include_str!("../machines/zen4.toml")),
    (
        "sapphirerapids",
        include_str!("../machines/sapphirerapids.toml"),
    ),
];

/// The names of all machines, in the order of tables.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

/// The machine `name`. Fails on an unknown name, and suggests a near one.
pub fn by_name(name: &str) -> Result<Machine, ModelError> {
    Machine::parse(description(name)?)
}

/// The text of the machine `name`, to copy and change. Fails on an unknown name.
pub fn description(name: &str) -> Result<&'static str, ModelError> {
    PRESETS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| names::unknown("machine", "machine", name, &names()))
}

#[cfg(test)]
mod tests;
