//! The modes to simulate: fixed ones, policies with parameters, policies in Python, the oracle.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use vtax_model::error::ModelError;
use vtax_model::policy::dav2m::TRANSITIONS;
use vtax_model::simulation::{Choice, Setup};

use crate::policy::{Failure, PythonPolicy, Steering};

/// The names of all modes: fixed ones, policies, the oracle.
#[pyfunction]
pub(crate) fn mode_names() -> Vec<&'static str> {
    Choice::names()
}

/// The names of the policies that take parameters.
#[pyfunction]
pub(crate) fn policy_names() -> Vec<&'static str> {
    Choice::policies()
}

/// The transitions of the paper's diagram of DAV2M: from, to, condition, action.
#[pyfunction]
pub(crate) fn dav2m_transitions() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    let arrows = TRANSITIONS.iter().filter(|arrow| arrow.in_paper);
    arrows
        .map(|a| (a.from.name(), a.to.name(), a.condition, a.action))
        .collect()
}

/// One mode, read from the attributes of `vtax.paging.modes.Mode`.
#[derive(FromPyObject)]
pub(crate) struct Mode {
    name: String,
    parameters: BTreeMap<String, Value>,
    steering: Option<Steering>,
}

/// The value of a parameter. The order matters: a Python bool is an int too.
#[derive(FromPyObject)]
enum Value {
    Flag(bool),
    Whole(i64),
    Real(f64),
    Text(String),
}

impl From<Value> for toml::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Flag(flag) => Self::Boolean(flag),
            Value::Whole(number) => Self::Integer(number),
            Value::Real(number) => Self::Float(number),
            Value::Text(text) => Self::String(text),
        }
    }
}

impl Mode {
    /// The mode in the model's own form. `failure` gets the exception of a policy in Python.
    pub(crate) fn choice(
        self,
        setup: &Setup,
        failure: &Failure,
    ) -> Result<(String, Choice), ModelError> {
        if let Some(steering) = self.steering {
            let policy = PythonPolicy::new(self.name.clone(), steering, failure.clone())?;
            return Ok((self.name, Choice::Policy(Box::new(policy))));
        }
        let parameters = self.parameters.into_iter();
        let table = parameters.map(|(key, value)| (key, value.into())).collect();
        let choice = Choice::by_name(&self.name, Some(table), setup);
        let choice = choice.map_err(|error| within(&self.name, error))?;
        Ok((self.name, choice))
    }
}

/// Add the policy's name to the field of its parameter.
fn within(policy: &str, error: ModelError) -> ModelError {
    match error {
        ModelError::Field { field, reason } => {
            ModelError::field(format!("{policy}.{field}"), reason)
        }
        other => other,
    }
}
