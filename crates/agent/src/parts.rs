//! Requests in parts, for channels that lose what comes at once (PROTOCOL.md, "Parts").

use serde_json::{Map, Value};

use crate::frame::{Line, MAX_FRAME_BYTES};
use crate::request::RequestError;

#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    /// More parts are to come; the agent holds this many bytes.
    Held(usize),
    /// The part was the last one: this is the request.
    Whole(Line),
}

/// The parts that have come.
#[derive(Debug, Default)]
pub struct Joiner {
    text: String,
}

impl Joiner {
    /// Is this frame a part?
    pub fn is_part(object: &Map<String, Value>) -> bool {
        object.contains_key("part")
    }

    /// Add a part.
    ///
    /// Fails with `Request` when `part` or `last` has another type, and with `Frame` when the parts
    /// are longer than 1 MiB. All parts so far are dropped then.
    pub fn add(&mut self, object: &Map<String, Value>) -> Result<Joined, RequestError> {
        let held = std::mem::take(&mut self.text);
        let Some(text) = object["part"].as_str() else {
            return Err(RequestError::Request("part: it is not a string".into()));
        };
        let last = match object.get("last") {
            None => false,
            Some(Value::Bool(last)) => *last,
            Some(_) => return Err(RequestError::Request("last: it is not a boolean".into())),
        };
        if held.len() + text.len() >= MAX_FRAME_BYTES {
            return Err(RequestError::Frame(
                "the parts are longer than 1 MiB".into(),
            ));
        }
        let joined = held + text;
        if last {
            return Ok(Joined::Whole(Line::Whole(joined.into_bytes())));
        }
        self.text = joined;
        Ok(Joined::Held(self.text.len()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn add(joiner: &mut Joiner, frame: &Value) -> Result<Joined, RequestError> {
        joiner.add(frame.as_object().unwrap())
    }

    #[test]
    fn parts_become_one_line() {
        let mut joiner = Joiner::default();
        assert_eq!(
            add(&mut joiner, &json!({"part": "{\"id\""})),
            Ok(Joined::Held(5))
        );
        assert_eq!(
            add(&mut joiner, &json!({"part": ": 1", "last": false})),
            Ok(Joined::Held(8))
        );
        let whole = Joined::Whole(Line::Whole(b"{\"id\": 1}".to_vec()));
        assert_eq!(
            add(&mut joiner, &json!({"part": "}", "last": true})),
            Ok(whole)
        );
        assert_eq!(add(&mut joiner, &json!({"part": ""})), Ok(Joined::Held(0)));
    }

    #[test]
    fn an_error_forgets_what_came_before() {
        let mut joiner = Joiner::default();
        for wrong in [
            json!({"part": 1}),
            json!({"part": "a", "last": 1}),
            json!({"part": "x".repeat(MAX_FRAME_BYTES)}),
        ] {
            assert_eq!(
                add(&mut joiner, &json!({"part": "abc"})),
                Ok(Joined::Held(3))
            );
            assert!(add(&mut joiner, &wrong).is_err());
        }
        assert_eq!(
            add(&mut joiner, &json!({"part": "abc"})),
            Ok(Joined::Held(3))
        );
    }
}
