//! Frames of the channel: one JSON object per line (PROTOCOL.md).

use serde_json::{Map, Value};

/// Longest frame in bytes, its newline included.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line's bytes, without its newline.
    Whole(Vec<u8>),
    /// A line longer than [`MAX_FRAME_BYTES`], which was thrown away.
    TooLong,
}

/// Cuts a stream of bytes into lines; holds at most one unfinished line.
#[derive(Debug, Default)]
pub struct Splitter {
    unfinished: Vec<u8>,
    discarding: bool,
}

impl Splitter {
    /// Add bytes as they come; returns the lines that they finish.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(rest) => {
                    self.extend(rest);
                    lines.push(self.finish());
                }
                None => self.extend(piece),
            }
        }
        lines
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.unfinished.len() + bytes.len() >= MAX_FRAME_BYTES {
            self.discarding = true;
        }
        if self.discarding {
            self.unfinished = Vec::new();
        } else {
            self.unfinished.extend_from_slice(bytes);
        }
    }

    fn finish(&mut self) -> Line {
        let bytes = std::mem::take(&mut self.unfinished);
        if std::mem::take(&mut self.discarding) {
            Line::TooLong
        } else {
            Line::Whole(bytes)
        }
    }
}

/// The object in a line; the error says why there is none.
pub fn object(line: &Line) -> Result<Map<String, Value>, String> {
    let Line::Whole(bytes) = line else {
        return Err("the line is longer than 1 MiB".into());
    };
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(format!("the line is {}, not a JSON object", kind(&other))),
        Err(error) => Err(format!("the line is not JSON: {error}")),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(text: &str) -> Line {
        Line::Whole(text.into())
    }

    #[test]
    fn lines_come_in_pieces() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.push(b"{\"a"), []);
        assert_eq!(
            splitter.push(b"\"}\n{}\nx"),
            [whole("{\"a\"}"), whole("{}")]
        );
        assert_eq!(splitter.push(b"\n\n"), [whole("x"), whole("")]);
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_whole_and_one_more_byte_is_too_long() {
        let mut splitter = Splitter::default();
        let mut bytes = vec![b'x'; MAX_FRAME_BYTES - 1];
        bytes.push(b'\n');
        assert_eq!(splitter.push(&bytes).len(), 1);
        bytes.insert(0, b'x');
        bytes.extend_from_slice(b"{}\n");
        assert_eq!(splitter.push(&bytes), [Line::TooLong, whole("{}")]);
    }

    #[test]
    fn only_objects_are_frames() {
        assert!(object(&whole("{\"id\": 1}")).is_ok());
        assert_eq!(
            object(&whole("[1]")),
            Err("the line is an array, not a JSON object".into())
        );
        assert!(object(&whole("")).is_err());
        assert!(object(&Line::Whole(vec![0xff, b'{', b'}'])).is_err());
        assert!(
            object(&Line::Whole(b"[".repeat(100_000))).is_err(),
            "nesting is limited"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same_lines(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..2000),
            size in 1_usize..100,
        ) {
            let mut at_once = Splitter::default();
            let mut in_pieces = Splitter::default();
            let lines = at_once.push(&bytes);
            let pieces: Vec<Line> = bytes.chunks(size).flat_map(|part| in_pieces.push(part)).collect();
            prop_assert_eq!(&lines, &pieces);
            for line in &lines {
                let _ = object(line);
            }
        }

        #[test]
        fn what_is_held_back_is_bounded(pushes in proptest::collection::vec(0_usize..700_000, 0..8)) {
            let mut splitter = Splitter::default();
            for size in pushes {
                splitter.push(&vec![b'x'; size]);
                prop_assert!(splitter.unfinished.len() < MAX_FRAME_BYTES);
            }
        }
    }
}
