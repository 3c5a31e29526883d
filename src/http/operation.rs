//! What the OpenAPI document says about an operation and its handler does not show. It stands beside the handler, in `OPERATIONS`.

use crate::api::Code;

/// What is particular about an operation.
pub(super) struct Operation {
    /// The `operation_id` of its handler.
    pub id: &'static str,
    /// How it may refuse, beside the ways that all operations of its kind have in common.
    pub refuses: &'static [Code],
    /// Has it a body?
    pub body: Body,
    /// What can be done with the `id` of what it has made.
    pub then: &'static [&'static str],
}

/// The body of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// None, or `{}`.
    None,
    /// It may be left out.
    Optional,
    /// There must be one.
    Required,
}

impl Operation {
    /// A `GET`.
    pub const fn get(id: &'static str, refuses: &'static [Code]) -> Self {
        Self {
            id,
            refuses,
            body: Body::None,
            then: &[],
        }
    }
}
