//! Settings from the environment: the file of parameters, the threads, whether to report what is
//! used.

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;

use vtax_tuner::tuned::Tuned;
use vtax_tuner::{Processor, Vector};

/// The variable with the file of parameters.
const FILE: &str = "VTAX_BLAS";
/// When this variable is not empty, a routine's parameters are reported at its first call.
const SAY: &str = "VTAX_BLAS_SAY";
/// The variables for threads; the first that has a number counts.
const THREADS: [&str; 3] = [
    "VTAX_BLAS_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
];
/// A larger number is taken for a mistake.
const MOST_THREADS: usize = 1024;

/// What all routines need to know.
#[derive(Debug)]
pub struct Settings {
    pub processor: Processor,
    /// The parameters that were tuned for it; `None`: the model's parameters are used.
    pub tuned: Option<Tuned>,
    /// The most threads of one product.
    pub threads: usize,
    /// Report which parameters are used.
    say: bool,
}

impl Settings {
    /// The settings of this process, as they were at the first call.
    pub fn get() -> &'static Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        once(&SETTINGS, || Self::new(|name| env::var(name).ok()))
    }

    fn new(variable: impl Fn(&str) -> Option<String>) -> Self {
        let processor = Processor::this();
        let path = variable(FILE).filter(|path| !path.is_empty());
        let tuned = path.and_then(|path| match read(Path::new(&path), &processor) {
            Ok(tuned) => Some(tuned),
            Err(reason) => {
                say(&format!(
                    "{path}: {reason}; the model's parameters are used"
                ));
                None
            }
        });
        Self {
            processor,
            tuned,
            threads: THREADS
                .iter()
                .find_map(|name| threads(&variable(name)?))
                .unwrap_or(1),
            say: variable(SAY).is_some_and(|value| !value.is_empty()),
        }
    }

    /// The widest usable instruction set.
    pub fn widest(&self) -> Vector {
        let vectors = self.processor.vectors();
        vectors.last().copied().unwrap_or(Vector::Portable)
    }

    /// Report a routine's parameters, if that is wanted.
    pub fn say_used(&self, routine: &str, parameters: &str) {
        if self.say {
            say(&format!(
                "{routine} (threads: {}): {parameters}",
                self.threads
            ));
        }
    }
}

/// Read a file of parameters. Those of another processor may be valid, but are not tuned for this
/// one, so they are refused.
fn read(path: &Path, processor: &Processor) -> Result<Tuned, String> {
    let tuned = Tuned::read(path, processor).map_err(|error| first_line(&error.to_string()))?;
    match tuned.elsewhere(processor) {
        Some(difference) => Err(format!("it is for another processor: {difference}")),
        None => Ok(tuned),
    }
}

/// The first line: TOML's errors show the place in further lines.
fn first_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    match lines.as_slice() {
        [first, .., last] if !last.is_empty() => format!("{first}: {last}"),
        _ => lines.concat(),
    }
}

/// A number of threads; OpenMP's variable may be a list, whose first number is for the outer level.
fn threads(value: &str) -> Option<usize> {
    let first = value.split(',').next()?.trim().parse().ok()?;
    (1..=MOST_THREADS).contains(&first).then_some(first)
}

/// Write one line to stderr. A failure must not end the program, as it would with `eprintln!`.
pub fn say(line: &str) {
    let _ = io::stderr().write_all(format!("vtax-blas: {line}\n").as_bytes());
}

/// The value that `new` makes the first time.
///
/// Threads that come at the same time each make a value, and the first value is kept. No thread
/// waits, so that a child that is forked meanwhile does not wait for a thread that it does not
/// have.
pub fn once<T>(cell: &'static OnceLock<T>, new: impl FnOnce() -> T) -> &'static T {
    if let Some(kept) = cell.get() {
        return kept;
    }
    let made = new();
    cell.get_or_init(|| made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Settings {
        Settings::new(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn threads_are_the_first_number_that_there_is() {
        assert_eq!(with(&[]).threads, 1);
        let variables = [
            ("OMP_NUM_THREADS", "4,2"),
            ("OPENBLAS_NUM_THREADS", "3"),
            ("VTAX_BLAS_THREADS", "2"),
        ];
        assert_eq!(with(&variables).threads, 2);
        assert_eq!(with(&variables[..2]).threads, 3);
        assert_eq!(with(&variables[..1]).threads, 4);
        let variables = [("VTAX_BLAS_THREADS", "0"), ("OMP_NUM_THREADS", "x")];
        assert_eq!(with(&variables).threads, 1);
    }

    #[test]
    fn a_file_is_used_and_a_wrong_one_is_refused_with_one_line() {
        let here = Processor::this();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blas.toml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let tuned = Tuned::new("1.0", here.clone());
        write(&tuned.to_toml().unwrap());
        assert_eq!(read(&path, &here).unwrap(), tuned);
        let given = with(&[("VTAX_BLAS", path.to_str().unwrap())]);
        assert_eq!(given.tuned, Some(tuned.clone()));

        let mut other = tuned;
        other.processor.stepping += 1;
        write(&other.to_toml().unwrap());
        let refused = read(&path, &here).unwrap_err();
        assert!(
            refused.starts_with("it is for another processor: stepping"),
            "{refused}"
        );
        write("format = 1\nagent = 5\n");
        let refused = read(&path, &here).unwrap_err();
        assert!(
            !refused.contains('\n') && refused.contains("line 2"),
            "{refused}"
        );
        let refused = read(&folder.path().join("none"), &here).unwrap_err();
        assert!(refused.contains("No such file"), "{refused}");
        assert_eq!(with(&[("VTAX_BLAS", "/nowhere.toml")]).tuned, None);
        assert_eq!(with(&[("VTAX_BLAS", "")]).tuned, None);
    }
}
