//! The names of an enum's variants, each written down once: in the database, in JSON and in query strings it is the same.

/// A name that no variant has. `Display` says which names there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be {}", one_of(.0))]
pub struct UnknownName(pub(crate) &'static [&'static str]);

/// `a, b or c`
fn one_of(names: &[&str]) -> String {
    match names {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        few => few.concat(),
    }
}

/// Gives an enum `ALL`, `as_str` and `parse`. A variant that has no name here does not compile.
///
/// ```text
/// names! { AccountKind { Standard: "standard", External: "external" } }
/// ```
macro_rules! names {
    ($type:ident { $($variant:ident: $name:literal),+ $(,)? }) => {
        impl $type {
            /// All there are.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name, the same everywhere outside the program.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// The one that has this name.
            ///
            /// # Errors
            /// [`UnknownName`](crate::domain::UnknownName), which lists the names there are.
            pub fn parse(name: &str) -> Result<Self, $crate::domain::UnknownName> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => Err($crate::domain::UnknownName(&[$($name),+])),
                }
            }
        }
    };
}
pub(crate) use names;

#[cfg(test)]
#[path = "names_test.rs"]
mod tests;
