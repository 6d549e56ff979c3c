//! The exact bytes of a file in JSON: as a text where they are one, else in hexadecimal.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Text(String),
    Hex(String),
}

impl Shape {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Hex(bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect()),
        }
    }

    fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.into_bytes()),
            Self::Hex(digits) if digits.len() % 2 == 0 && digits.is_ascii() => {
                (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
            }
            Self::Hex(_) => None,
        }
    }
}

fn digit(number: u8) -> char {
    char::from_digit(u32::from(number), 16).expect("four bits")
}

pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    Shape::of(bytes).serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    Shape::deserialize(deserializer)?.bytes().ok_or_else(|| D::Error::custom("no hexadecimal digits"))
}

pub mod optional {
    use super::{Deserialize, Deserializer, Error, Serialize, Serializer, Shape};

    #[allow(clippy::ref_option, reason = "serde calls it so")]
    pub fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
        bytes.as_deref().map(Shape::of).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
        let Some(shape) = Option::<Shape>::deserialize(deserializer)? else { return Ok(None) };
        shape.bytes().map(Some).ok_or_else(|| D::Error::custom("no hexadecimal digits"))
    }
}
