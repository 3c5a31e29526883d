//! The life of an idempotency key outside the database. Pure.
//!
//! A [`Request`] is a command under a [`IdempotencyKey`], with the [`RequestHash`] of what it means. What was answered is
//! a [`StoredResponse`]; what a key that is already known means for a new request is for [`judge`] to say, the one
//! rule for both roads: the read before the write path, and the claim that lost.

pub mod judge;
pub mod key;
pub mod request;
pub mod request_hash;
pub mod stored_response;

pub use judge::{Record, Retention, Verdict, judge};
pub use key::{IdempotencyKey, KeyError};
pub use request::Request;
pub use request_hash::RequestHash;
pub use stored_response::{Resource, ResourceKind, StoredResponse};
