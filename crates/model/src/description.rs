//! Reading descriptions: TOML whose mistakes are named by field.

use serde::de::DeserializeOwned;

use crate::error::ModelError;

/// The most bytes of a description.
const LIMIT: usize = 1 << 20;

/// Reads a description; an error names the field, or the line where the text is not TOML.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ModelError> {
    if text.len() > LIMIT {
        return Err(ModelError::Syntax(format!(
            "a description has at most {LIMIT} bytes"
        )));
    }
    let input = toml::Deserializer::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text
            .get(..at)
            .map_or(1, |before| before.matches('\n').count() + 1);
        ModelError::Syntax(format!("line {line}: {}", one_line(error.message())))
    })?;
    serde_path_to_error::deserialize(input).map_err(|error| {
        let field = error.path().to_string();
        let reason = one_line(error.inner().message());
        if field == "." {
            ModelError::Syntax(reason)
        } else {
            ModelError::field(field, reason)
        }
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
