//! Named workloads that vtax carries.

use super::Workload;
use crate::error::ModelError;

/// Name and description, in the order of the DAV2M paper's figure 4, then the others.
const PROFILES: [(&str, &str); 13] = [
    ("swim", include_str!("../../workloads/swim.toml")),
    ("apsi", include_str!("../../workloads/apsi.toml")),
    ("zeusmp", include_str!("../../workloads/zeusmp.toml")),
    ("gcc", include_str!("../../workloads/gcc.toml")),
    ("gzip", include_str!("../../workloads/gzip.toml")),
    ("fma3d", include_str!("../../workloads/fma3d.toml")),
    ("crafty", include_str!("../../workloads/crafty.toml")),
    ("mcf", include_str!("../../workloads/mcf.toml")),
    ("vpr", include_str!("../../workloads/vpr.toml")),
    ("cactusADM", include_str!("../../workloads/cactusADM.toml")),
    ("forks", include_str!("../../workloads/forks.toml")),
    ("random", include_str!("../../workloads/random.toml")),
    (
        "sequential",
        include_str!("../../workloads/sequential.toml"),
    ),
];

pub fn names() -> Vec<&'static str> {
    PROFILES.iter().map(|(name, _)| *name).collect()
}

/// The workload with this name.
///
/// # Errors
/// When there is no workload of that name; the error lists all names.
pub fn by_name(name: &str) -> Result<Workload, ModelError> {
    Workload::parse(description(name)?)
}

/// The text of the workload `name`, to copy and change.
///
/// # Errors
/// As [`by_name`].
pub fn description(name: &str) -> Result<&'static str, ModelError> {
    let found = PROFILES.iter().find(|(own, _)| *own == name);
    found.map(|(_, text)| *text).ok_or_else(|| {
        let reason = format!("{name:?} is unknown: there are {}", names().join(", "));
        ModelError::field("workload", reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_valid_and_says_what_it_rests_on() {
        for name in names() {
            let workload = by_name(name).unwrap();
            assert_eq!(workload.name, name);
            let basis = workload.basis;
            assert!(
                basis.starts_with("Synthetic.") || basis.starts_with("Made for"),
                "{name}"
            );
        }
        assert!(
            by_name("swimm")
                .unwrap_err()
                .to_string()
                .contains("swim, apsi")
        );
    }
}
