//! Where `place watch` has its predictor from: a run of `vtax place measure`, or a file.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use vtax_sys::terminal::Error;

use crate::place::watch::predictor::{Predictor, PredictorError};

const RECORD: &str = "run.json";
const REMEDY: &str = "name a folder that `vtax place measure` has made";
const MEASURE: &str = "run `vtax place measure` with more environments and loads";

/// The run, or the file, that has the predictor of losses.
#[derive(Debug, Args)]
pub struct PredictorSource {
    /// A run of `vtax place measure`, for its predictor [default: the newest in --runs]
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,
    /// Folder of run folders
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// A predictor as JSON instead of a run's
    #[arg(long, value_name = "FILE")]
    predictor: Option<PathBuf>,
}

impl PredictorSource {
    /// The predictor, or why no run has one.
    ///
    /// Fails when the named file or run cannot be read, or is something else.
    pub fn find(&self) -> Result<Result<Predictor, String>, Error> {
        if let Some(file) = &self.predictor {
            return read(file).map(Ok);
        }
        let Some(run) = self.from.clone().or_else(|| newest(&self.runs)) else {
            let runs = self.runs.display();
            return Ok(Err(format!(
                "no run of `vtax place measure` is in {runs}: make one, or name one with --from"
            )));
        };
        let file = run.join(RECORD);
        match Predictor::parse(&text(&file)?) {
            Ok(predictor) => Ok(Ok(predictor)),
            Err(PredictorError::None) => Ok(Err(format!(
                "{} predicts nothing: {MEASURE}",
                run.display()
            ))),
            Err(error) => Err(Error::misuse(file.display().to_string(), error, REMEDY)),
        }
    }
}

fn read(file: &Path) -> Result<Predictor, Error> {
    let wrong = |error| Error::misuse(file.display().to_string(), error, REMEDY);
    Predictor::parse(&text(file)?).map_err(wrong)
}

fn text(file: &Path) -> Result<String, Error> {
    let wrong = |error: std::io::Error| {
        Error::misuse(file.display().to_string(), vtax_sys::reason(&error), REMEDY)
    };
    fs::read_to_string(file).map_err(wrong)
}

/// The newest run of the verb: names begin with the time.
fn newest(runs: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(runs).ok()?.flatten().map(|entry| entry.path());
    let ours = folders.filter(|path| is_of_place(path) && path.join(RECORD).exists());
    ours.max()
}

/// Whether the name is `<UTC>-place`, with a number for the second one of the same second.
fn is_of_place(run: &Path) -> bool {
    let name = run.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once("Z-place")
        .is_some_and(|(_, rest)| rest.is_empty() || rest.strip_prefix('-').is_some_and(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_run_of_the_verb_is_taken() {
        let runs = tempfile::tempdir().unwrap();
        let names = [
            "20260101T000000Z-place",
            "20260101T000000Z-place-2",
            "20270101T000000Z-hpcc",
        ];
        for name in names {
            fs::create_dir(runs.path().join(name)).unwrap();
            fs::write(runs.path().join(name).join(RECORD), "{}").unwrap();
        }
        fs::create_dir(runs.path().join("20280101T000000Z-place")).unwrap();
        assert_eq!(newest(runs.path()), Some(runs.path().join(names[1])));
        assert_eq!(newest(&runs.path().join("absent")), None);
    }
}
