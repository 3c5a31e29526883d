//! What the way in and the way out both know of a request: its id, and its idempotency key.

use actix_web::http::header::HeaderMap;
use uuid::Uuid;

use crate::idempotency::{IdempotencyKey, KeyError};

/// Name of the header.
pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// Names a request in the log, in X-Request-Id and in the `instance` of a problem.
#[derive(Clone, Copy)]
pub(super) struct RequestId(pub Uuid);

/// The key of a request.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<IdempotencyKey, KeyError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY);
    let value = values.next().ok_or(KeyError::Missing)?;
    if values.next().is_some() {
        return Err(KeyError::Repeated);
    }
    IdempotencyKey::parse(value.as_bytes())
}
