//! Sizes in descriptions: `"64M"` or a number of bytes.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Parses `64M`, `1.5GiB` or a plain number, as every program of vtax does.
    pub fn parse(text: &str) -> Option<Self> {
        vtax_sys::terminal::units::size(text).ok().map(Self)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64M\" or a number of bytes")
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Bytes, E> {
                u64::try_from(value)
                    .map(Bytes)
                    .map_err(|_| E::custom("a size cannot be negative"))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Bytes, E> {
                Ok(Bytes(value))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Bytes, E> {
                Bytes::parse(value)
                    .ok_or_else(|| E::custom(format!("{value:?} is not a size such as \"64M\"")))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn sizes_have_binary_suffixes() {
        assert_eq!(Bytes::parse("64M"), Some(Bytes(64 << 20)));
        assert_eq!(Bytes::parse("4096"), Some(Bytes(4096)));
        assert_eq!(Bytes::parse("1.5GiB"), Some(Bytes(3 << 29)));
        for wrong in ["", "M", "1.5", "64X", "-1", "99999999999T"] {
            assert_eq!(Bytes::parse(wrong), None, "{wrong:?}");
        }
    }
}
