//! The `Idempotency-Key` header: a bare value or the quoted string of the IETF draft
//! (`draft-ietf-httpapi-idempotency-key-header`); both spellings of one key are one key.

use std::fmt;

/// Longest key, in characters.
pub const KEY_MAX: usize = 255;

/// 1 to 255 visible ASCII characters without a comma. It orders by its bytes, as the database does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(String);

/// Why a header value is not a key. `Display` is the sentence a caller reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is none, or it is blank.
    #[error(
        "every POST needs an Idempotency-Key header: make a new random one (a UUID, say) for each new operation, and send the same one when you repeat it"
    )]
    Missing,
    /// Sent in more than one header line.
    #[error("the Idempotency-Key header was sent more than once; send it once")]
    Repeated,
    /// Longer than 255 characters.
    #[error("the Idempotency-Key has {0} characters; at most {KEY_MAX} are allowed")]
    TooLong(usize),
    /// A character that has no place in a key.
    #[error(
        "the Idempotency-Key must consist of visible ASCII characters (no spaces, no commas), bare or as one quoted string: 8e03978e-40d5 or \"8e03978e-40d5\""
    )]
    Malformed,
}

impl IdempotencyKey {
    /// Reads the one header value.
    ///
    /// # Errors
    /// A [`KeyError`] that says what is wrong.
    pub fn parse(header: &[u8]) -> Result<Self, KeyError> {
        let header = header.trim_ascii();
        match header {
            [b'"', quoted @ ..] => Self::bare(unquote(quoted)?),
            bare => Self::bare(bare.to_vec()),
        }
    }

    /// Reads a key as it stands elsewhere than in the header: in a path, where a quote is a character like any other.
    ///
    /// # Errors
    /// A [`KeyError`] that says what is wrong.
    pub fn bare(key: Vec<u8>) -> Result<Self, KeyError> {
        if key.is_empty() {
            return Err(KeyError::Missing);
        }
        if !key.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',') {
            return Err(KeyError::Malformed);
        }
        if key.len() > KEY_MAX {
            return Err(KeyError::TooLong(key.len()));
        }
        String::from_utf8(key).map(Self).map_err(|_| KeyError::Malformed)
    }

    /// The bare key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The inside of an RFC 8941 string whose opening quote is already gone: `\"` and `\\` are its only escapes.
fn unquote(quoted: &[u8]) -> Result<Vec<u8>, KeyError> {
    let mut key = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter().copied();
    loop {
        match bytes.next() {
            Some(b'"') if bytes.len() == 0 => return Ok(key),
            Some(b'\\') => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => key.push(escaped),
                _ => return Err(KeyError::Malformed),
            },
            Some(b'"') | None => return Err(KeyError::Malformed),
            Some(byte) => key.push(byte),
        }
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.0)
    }
}

#[cfg(test)]
#[path = "key_test.rs"]
mod tests;
