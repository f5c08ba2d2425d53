//! The list of published measurements, typed.

use serde::Deserialize;

const LIST: &str = include_str!("../../calibration/measurements.toml");

/// What a comparison is worth: see the head of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    Fit,
    Check,
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    NullCall,
    PageFault,
    ProtectionFault,
    Fork,
    Exec,
    Shell,
    Boot,
}

/// Which number of a scenario is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    Nested,
    Shadow,
    Extra,
    LoadCr3Share,
    ExceptionShare,
    InvlpgShare,
}

/// How the model is compared with a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    pub scenario: Scenario,
    pub isolation: bool,
    pub quantity: Quantity,
    pub low: f64,
    pub high: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    pub name: String,
    pub machine: String,
    #[serde(rename = "use")]
    pub used: Use,
    pub value: f64,
    pub unit: String,
    pub source: String,
    pub reason: String,
    scenario: Option<Scenario>,
    isolation: Option<bool>,
    quantity: Option<Quantity>,
    low: Option<f64>,
    high: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    measurement: Vec<Measurement>,
}

impl Measurement {
    /// The scenario to run; `None` when something is missing for it.
    pub fn play(&self) -> Option<Play> {
        Some(Play {
            scenario: self.scenario?,
            isolation: self.isolation?,
            quantity: self.quantity?,
            low: self.low?,
            high: self.high?,
        })
    }
}

pub fn all() -> Result<Vec<Measurement>, toml::de::Error> {
    let list: List = toml::from_str(LIST)?;
    Ok(list.measurement)
}
