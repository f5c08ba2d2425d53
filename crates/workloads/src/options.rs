//! The options of workloads and their values.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Map;

use vtax_sys::terminal::units;

use crate::cast;

/// An option of a workload; on the command line `--NAME VALUE`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OptionSpec {
    /// The name without dashes.
    pub name: &'static str,
    pub kind: Kind,
    /// The default as a user would write it; `None`: the option may be absent.
    pub default: Option<&'static str>,
    /// A help text of one sentence.
    pub help: &'static str,
}

/// The kind of values that an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Bytes, as [`units::size`] reads them; at least one page.
    Bytes,
    /// A whole number in this range, including both ends.
    Number(u64, u64),
    /// No value: the flag is given or not.
    Flag,
    /// `HOST:PORT`.
    Address,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Bytes or a number.
    Number(u64),
    Flag(bool),
    Text(String),
}

/// The option for bytes of memory, which most workloads have.
pub const fn mem(default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec {
        name: "mem",
        kind: Kind::Bytes,
        default: Some(default),
        help,
    }
}

pub const SEED: OptionSpec = OptionSpec {
    name: "seed",
    kind: Kind::Number(0, u64::MAX),
    default: Some("1"),
    help: "Same seed and count: same work and same checksum",
};

pub const HUGE: OptionSpec = OptionSpec {
    name: "huge",
    kind: Kind::Flag,
    default: None,
    help: "Ask for transparent huge pages; without it they are forbidden",
};

impl Kind {
    /// Parse the value that a user wrote; the error says why it is invalid.
    pub fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Bytes => bytes(text).map(Value::Number),
            Self::Number(least, most) => number(text, least, most).map(Value::Number),
            Self::Flag => text
                .parse()
                .map(Value::Flag)
                .map_err(|_| "neither true nor false".to_owned()),
            Self::Address => address(text).map(Value::Text),
        }
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    match units::size(text)? {
        bytes if bytes < cast::count(crate::PAGE_BYTES) => {
            Err("less than one page of 4096 bytes".into())
        }
        bytes => Ok(bytes),
    }
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number: u64 = text.parse().map_err(|_| "not a whole number".to_owned())?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("not from {least} to {most}"))
    }
}

fn address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.into()),
        _ => Err("not HOST:PORT".into()),
    }
}

/// The values of a workload's options.
#[derive(Debug, Clone, Default)]
pub struct Parameters(BTreeMap<&'static str, Value>);

impl Parameters {
    /// Take the given values, and the defaults of options that were not given.
    ///
    /// Fails when an option's default is not a value of its kind.
    pub fn new(
        options: &[OptionSpec],
        mut given: impl FnMut(&OptionSpec) -> Option<Value>,
    ) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        for option in options {
            let default = || option.default.map(|text| option.kind.parse(text));
            let value = match given(option) {
                Some(value) => Some(value),
                None => default().transpose()?,
            };
            match (value, option.kind) {
                (Some(value), _) => drop(values.insert(option.name, value)),
                (None, Kind::Flag) => drop(values.insert(option.name, Value::Flag(false))),
                (None, _) => {}
            }
        }
        Ok(Self(values))
    }

    /// The value of a number option; 0 if the workload has no such option.
    pub fn number(&self, name: &str) -> u64 {
        match self.0.get(name) {
            Some(Value::Number(number)) => *number,
            _ => 0,
        }
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(Value::Flag(true)))
    }

    /// The value of an address option, if it was given.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// All values, for a report.
    pub fn to_json(&self) -> Map<String, serde_json::Value> {
        let pairs = self.0.iter().map(|(name, value)| {
            let value = match value {
                Value::Number(number) => (*number).into(),
                Value::Flag(flag) => (*flag).into(),
                Value::Text(text) => text.clone().into(),
            };
            ((*name).to_owned(), value)
        });
        pairs.collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in ".*") {
            for kind in [Kind::Bytes, Kind::Number(1, 9), Kind::Flag, Kind::Address] {
                let _ = kind.parse(&text);
            }
        }
    }

    #[test]
    fn sizes_and_their_limits() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64K", 65536),
            ("64m", 64 << 20),
            ("2G", 2 << 30),
            ("1.5MiB", 3 << 19),
        ] {
            assert_eq!(Kind::Bytes.parse(text).unwrap(), Value::Number(bytes));
        }
        for text in ["", "K", "-1", "4095", "1K", "99999999999G"] {
            assert!(Kind::Bytes.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_and_addresses() {
        assert!(Kind::Number(2, 3).parse("4").is_err());
        assert_eq!(Kind::Number(2, 3).parse("3").unwrap(), Value::Number(3));
        assert!(Kind::Address.parse("10.0.2.2:7000").is_ok());
        for text in ["", "host", ":1", "host:", "host:70000"] {
            assert!(Kind::Address.parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn defaults_fill_what_was_not_given() {
        let options = [mem("1M", ""), SEED, HUGE];
        let given = |option: &OptionSpec| (option.name == "seed").then_some(Value::Number(7));
        let parameters = Parameters::new(&options, given).unwrap();
        assert_eq!(parameters.number("mem"), 1 << 20);
        assert_eq!(parameters.number("seed"), 7);
        assert!(!parameters.flag("huge"));
    }
}
