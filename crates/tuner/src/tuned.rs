//! The result of a search as a file: TOML, which `vtax-agent tune --use` and libvtaxblas read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::error::Error;
use crate::log::difference;
use crate::parameters::{Level2, Parameters};
use crate::processor::Processor;
use crate::trials::Routine;
use crate::vector::Precision;

/// The format's version, which changes when a program cannot read an older program's file.
pub const FORMAT: u32 = 1;
/// A file has less than 4 KiB.
const LARGEST_BYTES: u64 = 64 << 10;

/// Why the parameters in a file cannot be used.
#[derive(Debug, ThisError)]
pub enum TunedError {
    /// The kernel refused something.
    #[error("{0}")]
    File(#[from] io::Error),
    /// The file is too long.
    #[error("it has more than {LARGEST_BYTES} bytes")]
    Large,
    /// The text is not such a file; the error names the line and the field.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// The parameters cannot be written as TOML.
    #[error("{0}")]
    Unwritten(#[from] toml::ser::Error),
    /// Another version wrote the file.
    #[error("its format is {0}, not {FORMAT}")]
    Format(u32),
    /// A routine's parameters cannot be used on this processor.
    #[error("{routine}: {error}")]
    Routine {
        routine: String,
        /// Why they cannot be used.
        error: Error,
    },
}

/// The parameters of all tuned routines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuned {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the program that tuned.
    pub agent: String,
    pub processor: Processor,
    #[serde(default)]
    pub double: Routines,
    #[serde(default)]
    pub single: Routines,
}

/// The parameters in one precision; parameters of routines that were not tuned are missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routines {
    /// All four forms of GEMM: packing absorbs the transposition.
    pub gemm: Option<Parameters>,
    pub gemv_n: Option<Level2>,
    /// GEMV with the matrix transposed.
    pub gemv_t: Option<Level2>,
    pub ger: Option<Level2>,
}

impl Routines {
    /// The parameters of a routine of level 2.
    pub fn level2(&self, routine: Routine) -> Option<Level2> {
        match routine {
            Routine::GemvN => self.gemv_n,
            Routine::GemvT => self.gemv_t,
            Routine::Ger => self.ger,
        }
    }

    /// The parameters of a routine of level 2, for changing.
    pub fn level2_mut(&mut self, routine: Routine) -> &mut Option<Level2> {
        match routine {
            Routine::GemvN => &mut self.gemv_n,
            Routine::GemvT => &mut self.gemv_t,
            Routine::Ger => &mut self.ger,
        }
    }
}

impl Tuned {
    /// A result without any routine yet.
    pub fn new(agent: &str, processor: Processor) -> Self {
        Self {
            format: FORMAT,
            agent: agent.into(),
            processor,
            double: Routines::default(),
            single: Routines::default(),
        }
    }

    pub fn of(&self, precision: Precision) -> &Routines {
        match precision {
            Precision::Double => &self.double,
            Precision::Single => &self.single,
        }
    }

    pub fn of_mut(&mut self, precision: Precision) -> &mut Routines {
        match precision {
            Precision::Double => &mut self.double,
            Precision::Single => &mut self.single,
        }
    }

    pub fn to_toml(&self) -> Result<String, TunedError> {
        Ok(toml::to_string(self)?)
    }

    /// Read a file and check that this processor can use all of it.
    ///
    /// Fails with the reason. A difference between this processor and the file's processor is no
    /// failure, see [`Tuned::elsewhere`].
    pub fn read(path: &Path, here: &Processor) -> Result<Self, TunedError> {
        let mut text = String::new();
        let file = File::open(path)?;
        file.take(LARGEST_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > LARGEST_BYTES {
            return Err(TunedError::Large);
        }
        Self::parse(&text, here)
    }

    /// Like [`Tuned::read`], from a text.
    pub fn parse(text: &str, here: &Processor) -> Result<Self, TunedError> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = toml::from_str(text)?;
        if format != FORMAT {
            return Err(TunedError::Format(format));
        }
        let tuned: Self = toml::from_str(text)?;
        tuned.check(here)?;
        Ok(tuned)
    }

    fn check(&self, here: &Processor) -> Result<(), TunedError> {
        for (name, precision) in [("double", Precision::Double), ("single", Precision::Single)] {
            let routines = self.of(precision);
            let gemm = routines.gemm.map(|it| it.is_valid_for(here, precision));
            let level2 = Routine::ALL.map(|routine| {
                let checked = routines.level2(routine).map(|it| it.is_valid_for(here));
                (routine.name(), checked)
            });
            for (routine, checked) in [("gemm", gemm)].into_iter().chain(level2) {
                let routine = format!("{name}.{routine}");
                let refused = |error| TunedError::Routine { routine, error };
                checked.unwrap_or(Ok(())).map_err(refused)?;
            }
        }
        Ok(())
    }

    /// How this processor differs from the one that the result was tuned on; `None`: it does not.
    pub fn elsewhere(&self, here: &Processor) -> Option<String> {
        let [ours, theirs] = [here, &self.processor].map(serde_json::to_value);
        difference("this", &ours.ok()?, "the file's", &theirs.ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::Vector;

    fn tuned() -> Tuned {
        let mut tuned = Tuned::new("1.0", Processor::this());
        tuned.double.gemm = Some(Parameters {
            vector: Vector::Portable,
            muladd: false,
            lat: 0,
            nb: 64,
            mu: 4,
            nu: 4,
            ku: 1,
            ffetch: false,
            ifetch: 0,
            nfetch: 0,
            mc: 64,
            nc: 512,
        });
        tuned.single.ger = Some(Level2 {
            vector: Vector::Portable,
            x_unroll: 2,
            y_unroll: 2,
        });
        tuned
    }

    #[test]
    fn what_was_written_is_read() {
        let (tuned, here) = (tuned(), Processor::this());
        let text = tuned.to_toml().unwrap();
        assert!(
            text.contains("[double.gemm]") && text.contains("NB = 64"),
            "{text}"
        );
        assert_eq!(Tuned::parse(&text, &here).unwrap(), tuned);
        assert_eq!(tuned.elsewhere(&here), None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blas.toml");
        std::fs::write(&path, &text).unwrap();
        assert_eq!(Tuned::read(&path, &here).unwrap(), tuned);
        std::fs::write(&path, " ".repeat(65537)).unwrap();
        assert!(matches!(Tuned::read(&path, &here), Err(TunedError::Large)));
    }

    #[test]
    fn the_wrong_field_is_named() {
        let here = Processor::this();
        let text = tuned().to_toml().unwrap();
        let wrong = [
            ("NB = 64", "NB = 0", "NB"),
            ("NB = 64", "NB = \"x\"", "NB"),
            ("NB = 64", "", "NB"),
            ("XUNROLL = 2", "XUNROLL = 99", "single.ger: XUNROLL"),
            ("[single.ger]", "[single.gerr]", "gerr"),
            ("format = 1", "format = 2", "format is 2"),
            ("VECTOR = \"portable\"", "VECTOR = \"mmx\"", "mmx"),
        ];
        for (from, to, said) in wrong {
            assert!(text.contains(from), "{from}");
            let error = Tuned::parse(&text.replacen(from, to, 1), &here).unwrap_err();
            assert!(error.to_string().contains(said), "{to}: {error}");
        }
    }

    #[test]
    fn another_processor_is_named() {
        let mut here = Processor::this();
        here.model += 1;
        let said = tuned().elsewhere(&here).unwrap();
        assert!(said.starts_with("model: this has"), "{said}");
    }
}
