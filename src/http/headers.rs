//! What the way in and the way out both know of a request: its id and its idempotency key; and headers that come once.

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use crate::api::{Code, Problem};
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

/// The value of a header that says one thing. Of two, a proxy or a log on the way may have believed the other one.
pub(super) fn once<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut values = headers.get_all(name);
    let value = values.next();
    if values.next().is_some() {
        return Err(Problem::new(
            Code::MalformedRequest,
            format!("the header `{name}` was sent more than once"),
        ));
    }
    Ok(value)
}
