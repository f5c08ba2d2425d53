//! What a guest is expected to lose, by the predictor of a `vtax place measure` run
//! (docs/place-format.md, "The predictor").

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::place::watch::controller::Loss;

const COMBINED_USAGE: &str = "combined usage";
const SERVICE_CPU: &str = "service CPU";
const RUN_DELAY: &str = "run delay";
/// A line through fewer pairs has no error estimate.
const LEAST_PAIRS: u32 = 3;

/// Elasticity as a straight line of one value, in the form that Python writes
/// (`vtax.place.record.Predictor`).
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Predictor {
    name: String,
    intercept: f64,
    slope: f64,
    n: u32,
    mean: f64,
    sum_of_squares: f64,
    residual: f64,
    least: f64,
    most: f64,
}

/// What the service threads of a guest did in a window, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Work {
    /// CPU seconds, as at full speed.
    pub cpu: f64,
    /// Seconds in which a thread was ready and waited for a CPU.
    pub delay: f64,
    /// The used share of its link's bandwidth; None: not known.
    pub device: Option<f64>,
}

/// Why a text is not a usable predictor.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PredictorError {
    /// The text is not JSON with these fields.
    #[error("{0}")]
    Syntax(String),
    /// The run found no predictor.
    #[error("in that run nothing predicted what a guest loses")]
    None,
    /// Numbers that no line through measured points can have.
    #[error("it is not a line through {LEAST_PAIRS} or more measured points")]
    Numbers,
    /// The predictor needs a value that `watch` cannot measure.
    #[error("it goes by {0:?}, which watch cannot measure")]
    Name(String),
}

impl Predictor {
    /// Read a predictor, or the `run.json` that it is in.
    ///
    /// Fails when the text is not a usable predictor.
    pub fn parse(text: &str) -> Result<Self, PredictorError> {
        let syntax = |error: serde_json::Error| PredictorError::Syntax(error.to_string());
        let value: Value = serde_json::from_str(text).map_err(syntax)?;
        let value = match value.get("predictor") {
            Some(Value::Null) => return Err(PredictorError::None),
            Some(inner) => inner.clone(),
            None => value,
        };
        let found: Self = serde_json::from_value(value).map_err(syntax)?;
        let spread = found.sum_of_squares > 0.0 && found.residual >= 0.0;
        if found.n < LEAST_PAIRS || !spread || found.least > found.most {
            return Err(PredictorError::Numbers);
        }
        if ![COMBINED_USAGE, SERVICE_CPU, RUN_DELAY].contains(&found.name.as_str()) {
            return Err(PredictorError::Name(found.name));
        }
        Ok(found)
    }

    /// Does it use the links' load?
    pub fn takes_links(&self) -> bool {
        self.name == COMBINED_USAGE
    }

    /// What a guest loses when all its service threads run at this percentage of full speed while
    /// they do this much work.
    ///
    /// Fails with the reason why that is not known.
    pub fn loss(&self, guest: &str, work: Work, slow_percent: f64) -> Result<Loss, String> {
        let value = match self.name.as_str() {
            SERVICE_CPU => Some(work.cpu),
            RUN_DELAY => Some(work.delay),
            _ => work.device.map(|device| work.cpu + device),
        };
        let percent = value.map(|value| value * 100.0).ok_or_else(|| {
            format!("the use of the link of {guest} is not known: it needs a tap and --rate")
        })?;
        if !(self.least..=self.most).contains(&percent) {
            return Err(format!(
                "the {} of {guest} is {percent:.1} %, and the predictor knows {:.1} to {:.1}",
                self.name, self.least, self.most
            ));
        }
        let lost = 100.0 - slow_percent;
        let (centre, half) = self.elasticity(percent);
        Ok(Loss {
            percent: centre * lost,
            low: (centre - half) * lost,
            high: (centre + half) * lost,
        })
    }

    /// The elasticity, with half its 95 % prediction interval, as by
    /// `vtax.place.hypothesis.predicted`.
    fn elasticity(&self, value: f64) -> (f64, f64) {
        let leverage =
            1.0 + 1.0 / f64::from(self.n) + (value - self.mean).powi(2) / self.sum_of_squares;
        let half = student_t(self.n - 2) * self.residual * leverage.sqrt();
        (self.intercept + self.slope * value, half)
    }
}

/// Student's t at 97.5 % by its expansion about the normal quantile (Abramowitz and Stegun,
/// 26.7.5); within 1 % from 2 degrees of freedom on, within 0.01 % from 8.
fn student_t(freedom: u32) -> f64 {
    const Z: f64 = 1.959_963_984_540_054;
    if freedom == 1 {
        return 12.706_204_736;
    }
    let polynomial = |terms: &[(i32, f64)], divisor: f64| {
        let sum: f64 = terms
            .iter()
            .map(|(power, factor)| factor * Z.powi(*power))
            .sum();
        sum / divisor
    };
    let terms = [
        Z,
        polynomial(&[(3, 1.0), (1, 1.0)], 4.0),
        polynomial(&[(5, 5.0), (3, 16.0), (1, 3.0)], 96.0),
        polynomial(&[(7, 3.0), (5, 19.0), (3, 17.0), (1, -15.0)], 384.0),
        polynomial(
            &[
                (9, 79.0),
                (7, 776.0),
                (5, 1482.0),
                (3, -1920.0),
                (1, -945.0),
            ],
            92160.0,
        ),
    ];
    let each = terms.iter().rev();
    each.fold(0.0, |sum, term| sum / f64::from(freedom) + term)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = r#"{"name": "service CPU", "intercept": 0.6, "slope": -0.01, "n": 12,
        "mean": 30.0, "sum_of_squares": 4000.0, "residual": 0.05, "least": 5.0, "most": 60.0,
        "leave_one_out_error": 0.06, "mean_error": 0.2}"#;

    fn work(cpu: f64) -> Work {
        Work {
            cpu,
            ..Work::default()
        }
    }

    #[test]
    fn quantiles_of_the_tables() {
        for (freedom, t) in [
            (1, 12.706),
            (2, 4.303),
            (5, 2.571),
            (10, 2.228),
            (30, 2.042),
        ] {
            let relative = (student_t(freedom) / t - 1.0).abs();
            assert!(relative < 0.01, "{freedom}: {}", student_t(freedom));
        }
        assert!((student_t(10) - 2.228_139).abs() < 2e-4);
    }

    /// The numbers are those of `predicted` in Python for the same predictor.
    #[test]
    fn a_loss_is_elasticity_times_the_speed_that_is_lost() {
        let loss = Predictor::parse(LINE)
            .unwrap()
            .loss("g", work(0.4), 50.0)
            .unwrap();
        assert!((loss.percent - 10.0).abs() < 1e-9);
        // 2.228139 * 0.05 * sqrt(1 + 1/12 + 100/4000) * 50
        let half = 2.228_139 * 0.05 * (1.0 + 1.0 / 12.0 + 0.025_f64).sqrt() * 50.0;
        assert!((loss.high - loss.percent - half).abs() < 1e-3);
        assert!((loss.percent - loss.low - half).abs() < 1e-3);
    }

    #[test]
    fn nothing_is_said_beyond_what_was_measured() {
        let reason = |text: &str, work| {
            let found = Predictor::parse(text).unwrap().loss("g", work, 50.0);
            found.unwrap_err()
        };
        assert!(reason(LINE, work(0.9)).contains("is 90.0 %"));
        let combined = LINE.replace(SERVICE_CPU, COMBINED_USAGE);
        assert!(reason(&combined, work(0.4)).contains("--rate"));
        let known = Work {
            device: Some(0.1),
            ..work(0.4)
        };
        assert!(
            Predictor::parse(&combined)
                .unwrap()
                .loss("g", known, 50.0)
                .is_ok()
        );
    }

    #[test]
    fn the_record_of_a_run_holds_it_or_none() {
        let record = format!(r#"{{"verb": "place", "predictor": {LINE}}}"#);
        assert_eq!(Predictor::parse(&record), Predictor::parse(LINE));
        let none = Predictor::parse(r#"{"verb": "place", "predictor": null}"#);
        assert_eq!(none, Err(PredictorError::None));
    }

    #[test]
    fn what_is_no_predictor_is_refused() {
        let error = |text: &str| Predictor::parse(text).unwrap_err();
        assert!(matches!(error("{"), PredictorError::Syntax(_)));
        assert!(matches!(error("{}"), PredictorError::Syntax(_)));
        let batching = LINE.replace(SERVICE_CPU, "batching");
        assert_eq!(error(&batching), PredictorError::Name("batching".into()));
        assert_eq!(error(&LINE.replace(": 12", ": 2")), PredictorError::Numbers);
        assert_eq!(error(&LINE.replace("4000.0", "0")), PredictorError::Numbers);
    }

    proptest! {
        #[test]
        fn any_damage_is_answered_in_one_line(
            at in 0_usize..300, length in 0_usize..40, with in "(?s).{0,6}",
        ) {
            let end = |index: usize| (index..=LINE.len()).find(|at| LINE.is_char_boundary(*at));
            let (start, stop) = (at.min(LINE.len()), (at + length).min(LINE.len()));
            let (start, stop) = (end(start).unwrap(), end(stop).unwrap());
            match Predictor::parse(&format!("{}{with}{}", &LINE[..start], &LINE[stop..])) {
                Ok(found) => if let Ok(loss) = found.loss("g", work(0.4), 50.0) {
                    prop_assert!(loss.low <= loss.percent && loss.percent <= loss.high);
                },
                Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
            }
        }
    }
}
