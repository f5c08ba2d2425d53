//! The machines that vtax carries.
use vtax_paging::error::ModelError;
use vtax_paging::machine::Machine;

const PRESETS: [(&str, &str); 5] = [
    (
        "opteron2350",
        include_str!("../../vtax-paging/machines/opteron2350.toml"),
    ),
    (
        "phenom2x550",
        include_str!("../../vtax-paging/machines/phenom2x550.toml"),
    ),
    (
        "xeon8269cy",
        include_str!("../../vtax-paging/machines/xeon8269cy.toml"),
    ),
    ("zen4", include_str!("../../vtax-paging/machines/zen4.toml")),
    (
        "sapphirerapids",
        include_str!("../../vtax-paging/machines/sapphirerapids.toml"),
    ),
];

pub(crate) fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

pub(crate) fn by_name(name: &str) -> Result<Machine, ModelError> {
    match PRESETS.iter().find(|(own, _)| *own == name) {
        Some((_, text)) => Machine::parse(text),
        None => Err(ModelError::field("machine", format!("{name:?} is unknown"))),
    }
}
