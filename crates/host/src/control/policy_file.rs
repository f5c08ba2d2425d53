//! The file that says how to decide.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use vtax_model::error::ModelError;
use vtax_model::model::machine::{Costs, Machine};
use vtax_model::policy::{Policy, registry};
use vtax_model::presets;
use vtax_sys::kvm::PagingMode;
use vtax_sys::terminal::Error;

use crate::control::sensors::perf::Events;

/// More bytes than any policy file has.
const MAX_BYTES: u64 = 1 << 20;
/// The default policy.
pub const POLICY: &str = "vtax";
/// The default instructions of a window: those of the DAV2M paper.
const WINDOW: u64 = 1_000_000_000;
/// Policies that know only one mode and have no start mode.
const FIXED: [&str; 2] = ["shadow", "nested"];
const REMEDY: &str = "docs/host.md says what may be in it";

/// How to decide.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    policy: Option<String>,
    window: Option<u64>,
    machine: Option<String>,
    #[serde(default)]
    parameters: toml::Table,
    #[serde(default)]
    perf: Events,
}

/// A policy that can be created in either mode.
#[derive(Debug, Clone)]
pub struct Recipe {
    name: String,
    window: u64,
    machine: Machine,
    parameters: toml::Table,
    /// Raw perf events for quantities that the kernel has no name for.
    pub events: Events,
}

impl Recipe {
    /// The recipe that `--policy` asks for: the name of a policy, or a file; `None`: the default.
    ///
    /// Fails when the file cannot be read, is not TOML, or describes no policy; names the field.
    pub fn read(policy: Option<&str>, default: &str) -> Result<Self, Error> {
        let known = policy.is_none_or(|policy| !is_file(policy));
        let text = match policy {
            Some(file) if !known => contents(file)?,
            _ => String::new(),
        };
        let named = policy.filter(|_| known);
        let shown = policy.filter(|_| !known).unwrap_or("--policy");
        Self::parse(&text, named, default).map_err(|reason| Error::misuse(shown, reason, REMEDY))
    }

    /// Read a recipe from a text. `name` is the policy, and `default` the machine, where the text
    /// names none.
    ///
    /// Fails with the reason, which names the field.
    pub fn parse(text: &str, name: Option<&str>, default: &str) -> Result<Self, String> {
        let text: Text = toml::from_str(text).map_err(|error| one_line(&error.to_string()))?;
        let named = text.policy.as_deref().or(name).unwrap_or(POLICY);
        let machine = text.machine.as_deref().unwrap_or(default);
        let recipe = Self {
            name: named.to_owned(),
            window: text.window.unwrap_or(WINDOW),
            machine: presets::by_name(machine).map_err(|error| error.to_string())?,
            parameters: text.parameters,
            events: text.perf,
        };
        // Report what cannot be created at once, not in some later window.
        for mode in [PagingMode::Shadow, PagingMode::Nested] {
            recipe.make(mode, 0.0).map_err(|error| error.to_string())?;
        }
        Ok(recipe)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does the policy use counts? A policy that knows only one mode does not.
    pub fn counts(&self) -> bool {
        !FIXED.contains(&self.name.as_str())
    }

    /// The name of the machine whose costs the policy assumes.
    pub fn machine(&self) -> &str {
        &self.machine.name
    }

    /// What exits cost on that machine: a model's numbers.
    pub fn costs(&self) -> &Costs {
        &self.machine.costs
    }

    /// Create the policy, starting in `mode`; a change of mode costs `change_cycles`, for all
    /// guests together.
    ///
    /// Fails on parameters that mean nothing; names the field.
    pub fn make(
        &self,
        mode: PagingMode,
        change_cycles: f64,
    ) -> Result<Box<dyn Policy>, ModelError> {
        // Not negative, and the cast saturates.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let change = change_cycles.round() as u32;
        let costs = Costs {
            switch_to_nested: self.machine.costs.switch_to_nested.max(change),
            switch_to_shadow: self.machine.costs.switch_to_shadow.max(change),
            ..self.machine.costs.clone()
        };
        let mut parameters = self.parameters.clone();
        if self.counts() {
            // The host's mode counts, whatever start mode the file gives.
            parameters.insert("start".into(), mode.name().into());
        }
        registry::by_name(&self.name, Some(parameters), &costs, self.window)
    }
}

/// Is this word of `--policy` a file? A word without a dot or a slash is the name of a policy,
/// unless there is such a file.
fn is_file(word: &str) -> bool {
    let named = registry::names().contains(&word);
    !named && (word.contains(['.', '/']) || Path::new(word).is_file())
}

/// The text of a policy file.
fn contents(file: &str) -> Result<String, Error> {
    let mut text = String::new();
    let read = File::open(file).and_then(|opened| opened.take(MAX_BYTES).read_to_string(&mut text));
    match read {
        Ok(_) => Ok(text),
        Err(error) => {
            let thing = format!("--policy {file}");
            Err(Error::misuse(thing, vtax_sys::reason(&error), REMEDY))
        }
    }
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.lines().map(str::trim).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Recipe, String> {
        Recipe::parse(text, None, "zen4")
    }

    #[test]
    fn nothing_given_is_vtaxs_policy() {
        let recipe = parse("").unwrap();
        assert_eq!((recipe.name(), recipe.machine()), ("vtax", "zen4"));
        for mode in [PagingMode::Shadow, PagingMode::Nested] {
            let policy = recipe.make(mode, 1e6).unwrap();
            assert_eq!(policy.wanted(), mode);
            assert_eq!(policy.window_instructions(), 1_000_000_000);
        }
    }

    #[test]
    fn every_policy_can_be_named_and_starts_in_the_mode_that_is() {
        for name in registry::names() {
            let recipe = Recipe::parse("window = 1000000", Some(name), "zen4").unwrap();
            let policy = recipe.make(PagingMode::Nested, 0.0).unwrap();
            assert_eq!(policy.name(), name);
            let fixed = FIXED.contains(&name) && name == "shadow";
            let wanted = if fixed {
                PagingMode::Shadow
            } else {
                PagingMode::Nested
            };
            assert_eq!(policy.wanted(), wanted);
        }
    }

    #[test]
    fn parameters_and_events_are_taken() {
        let recipe = parse(
            "policy = \"naive\"\nwindow = 1000\nmachine = \"opteron2350\"\n\
             [parameters]\nthreshold_vexit = 7\nstart = \"shadow\"\n[perf]\nwalk_cycles = 0x1008",
        )
        .unwrap();
        let view = recipe.make(PagingMode::Nested, 0.0).unwrap().view();
        assert_eq!(view.threshold_vexit, Some(7.0));
        assert_eq!(view.state, "Nested");
        assert_eq!(recipe.events.walk_cycles, Some(0x1008));
        assert_eq!(recipe.machine(), "opteron2350");
    }

    #[test]
    fn a_broken_file_names_the_field() {
        let error = |text: &str| parse(text).unwrap_err();
        assert!(error("policy = \"vtaxx\"").contains("did you mean vtax?"));
        assert!(error("polcy = 1").contains("unknown field `polcy`"));
        assert!(error("[parameters]\nretry = -1").starts_with("retry: "));
        assert!(error("machine = \"zen\"").contains("machine"));
        assert!(error("policy = \"naive\"\nwindow = 0").starts_with("window: "));
        assert!(!error("policy = [").contains('\n'));
    }

    #[test]
    fn a_policy_is_a_name_or_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy");
        std::fs::write(&file, "policy = \"naive\"").unwrap();
        let read = |policy: &str| Recipe::read(Some(policy), "zen4");
        assert_eq!(read(file.to_str().unwrap()).unwrap().name(), "naive");
        assert_eq!(read("naive").unwrap().name(), "naive");
        let error = |policy| read(policy).unwrap_err().to_string();
        assert!(error("nave").contains("did you mean naive?"));
        assert!(error("none.toml").contains("No such file"));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "(policy|window|machine|\\[parameters\\]|\\[perf\\]|[a-z0-9=\" .\\n-]){0,40}") {
            let _ = parse(&text);
        }
    }
}
