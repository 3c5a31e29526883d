//! Texts that callers attach to things, with their checked lengths. A length is counted in characters, not bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Longest name and reference.
pub const NAME_MAX: usize = 255;
/// Longest description and reason.
pub const DESCRIPTION_MAX: usize = 500;
/// Most members of a metadata object.
pub const METADATA_MAX: usize = 50;
/// Longest metadata key.
pub const METADATA_KEY_MAX: usize = 40;
/// Longest metadata value.
pub const METADATA_VALUE_MAX: usize = 500;

/// Most characters that a message repeats of what a caller sent: an id, an amount, a key of metadata.
const EXCERPT_MAX: usize = 40;

/// The text, or its beginning and `…`: a message says what was sent, but does not send 64 KiB back.
#[must_use]
pub fn excerpt(text: &str) -> Cow<'_, str> {
    beginning(text, EXCERPT_MAX)
}

/// The text, or so many of its characters and `…`.
#[must_use]
pub fn beginning(text: &str, most: usize) -> Cow<'_, str> {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    match end.and_then(|end| text.split_at_checked(end)) {
        Some((beginning, _)) => format!("{beginning}…").into(),
        None => text.into(),
    }
}

/// Why a text was refused. `Display` is the sentence a caller reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Too short or too long.
    #[error("must have {min} to {max} characters, has {length}")]
    Length {
        /// Fewest characters.
        min: usize,
        /// Most characters.
        max: usize,
        /// Characters found.
        length: usize,
    },
    /// A metadata object with too many members.
    #[error("must have at most {METADATA_MAX} members, has {0}")]
    Members(usize),
    /// A metadata key that is too short or too long.
    #[error("key {:?}: {error}", excerpt(.key))]
    Key {
        /// The key.
        key: String,
        /// What is wrong with it.
        error: Box<TextError>,
    },
    /// A metadata value that is too long.
    #[error("value of {:?}: {error}", excerpt(.key))]
    Value {
        /// Its key.
        key: String,
        /// What is wrong with it.
        error: Box<TextError>,
    },
}

fn check(text: &str, min: usize, max: usize) -> Result<(), TextError> {
    let length = text.chars().count();
    if (min..=max).contains(&length) {
        Ok(())
    } else {
        Err(TextError::Length { min, max, length })
    }
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident: $min:expr, $max:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(String);

        impl $name {
            /// Checks the length.
            ///
            /// # Errors
            /// [`TextError::Length`].
            pub fn new(text: String) -> Result<Self, TextError> {
                check(&text, $min, $max).map(|()| Self(text))
            }

            /// The text as it was sent.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    )+};
}

texts! {
    /// What an account is called: 1 to 255 characters.
    Name: 1, NAME_MAX;
    /// The caller's own number for an account or payment: 1 to 255 characters. Not unique.
    Reference: 1, NAME_MAX;
    /// Free text, also the reason of a refund: up to 500 characters.
    Description: 0, DESCRIPTION_MAX;
}

/// Up to 50 texts under keys of the caller's choice, in the order of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata(BTreeMap<String, String>);

impl Metadata {
    /// Checks the number of members, as [`Metadata::new`] does first.
    ///
    /// # Errors
    /// [`TextError::Members`].
    pub fn check_number(members: usize) -> Result<(), TextError> {
        if members > METADATA_MAX {
            return Err(TextError::Members(members));
        }
        Ok(())
    }

    /// Checks the number of members, the keys (1 to 40 characters) and the values (up to 500).
    ///
    /// # Errors
    /// A [`TextError`] that names the member.
    pub fn new(members: BTreeMap<String, String>) -> Result<Self, TextError> {
        Self::check_number(members.len())?;
        for (key, value) in &members {
            check(key, 1, METADATA_KEY_MAX).map_err(|error| TextError::Key {
                key: key.clone(),
                error: error.into(),
            })?;
            check(value, 0, METADATA_VALUE_MAX).map_err(|error| TextError::Value {
                key: key.clone(),
                error: error.into(),
            })?;
        }
        Ok(Self(members))
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

#[cfg(test)]
#[path = "text_test.rs"]
mod tests;
