//! What QEMU's command line tells the plugin: `file=libvtax_nested.so,page=FILE,machine=NAME`.

use std::path::PathBuf;

use vtax_model::model::machine::Machine;
use vtax_model::presets;

/// Where to publish, and whose TLBs to model.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub page: PathBuf,
    pub machine: Machine,
}

impl Options {
    /// Parse `KEY=VALUE` words. The error names the word.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let (mut page, mut machine) = (None, None);
        for word in words {
            match word.split_once('=') {
                Some(("page", value)) => page = Some(PathBuf::from(value)),
                Some(("machine", value)) => {
                    let found = presets::by_name(value).map_err(|error| error.to_string())?;
                    machine = Some(found);
                }
                _ => return Err(format!("{word} is neither page=FILE nor machine=NAME")),
            }
        }
        Ok(Self {
            page: page.ok_or("page= is missing")?,
            machine: machine.ok_or("machine= is missing")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_named() {
        let found = Options::parse(["page=/a", "machine=zen4"]).unwrap();
        assert_eq!(
            (found.page, found.machine.name),
            ("/a".into(), "zen4".into())
        );
        for (words, reason) in [
            (vec!["page"], "page is neither"),
            (vec!["page=/a", "machine=abacus"], "machine: no machine"),
            (vec!["machine=zen4"], "page= is missing"),
            (vec!["page=/a"], "machine= is missing"),
        ] {
            let error = Options::parse(words).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
