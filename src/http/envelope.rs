//! What goes out: the one place that makes responses and sets headers.

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, HeaderName, HeaderValue, LINK, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use actix_web::http::{ConnectionType, Method, StatusCode};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpResponse, ResponseError};
use serde::Serialize;
use uuid::Uuid;

use super::headers::{IDEMPOTENCY_KEY, RequestId, idempotency_key};
use super::socket::Activity;
use crate::api::{Code, Problem};
use crate::engine::{Answer, EngineError, Outcome};
use crate::idempotency::Resource;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const IDEMPOTENT_REPLAYED: &str = "Idempotent-Replayed";
const JSON: &str = "application/json";
const PROBLEM_JSON: &str = "application/problem+json";

/// The label of a method or route that is none of ours.
const OTHER: &str = "other";

/// Around every request: gives it an id, turns a problem into its response, sets the headers that every answer has, counts.
///
/// # Errors
/// None of its own.
pub async fn envelope(request: ServiceRequest, next: Next<BoxBody>) -> Result<ServiceResponse<BoxBody>, Error> {
    let id = Uuid::now_v7();
    request.extensions_mut().insert(RequestId(id));
    let key = idempotency_key(request.headers()).ok();
    let started = std::time::Instant::now();
    let method = method_label(request.method());
    let offers_upgrade = request.head().upgrade();
    let activity = request.conn_data::<Activity>().cloned().unwrap_or_default();
    activity.request_begins();

    let answered = next.call(request).await;
    activity.request_ends();
    let mut response = answered?;

    if let Some(problem) = response
        .response()
        .error()
        .and_then(|error| error.as_error::<Problem>())
    {
        let answer = problem_response(problem, id);
        response = response.into_response(answer);
    }
    if offers_upgrade {
        // The HTTP library ends a connection on which an upgrade was offered, and would leave the client to find that out by
        // a next request that fails.
        response
            .response_mut()
            .head_mut()
            .set_connection_type(ConnectionType::Close);
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        headers.insert(X_REQUEST_ID, value);
    }
    if let Some(value) = key.and_then(|key| HeaderValue::from_str(key.as_str()).ok()) {
        headers.insert(HeaderName::from_static("idempotency-key"), value);
    }
    let route = response.request().match_pattern().unwrap_or_else(|| OTHER.to_owned());
    let status = response.status().as_u16();
    tracing::debug!(request_id = %id, %method, route, status, "answered");
    metrics::histogram!("payonce_http_request_seconds", "method" => method, "route" => route, "status" => status.to_string())
        .record(started.elapsed());
    Ok(response)
}

/// A metric keeps each value of a label for ever, so what strangers make up can't be one.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => OTHER,
    }
}

/// What the engine answered. A replay differs from the first answer in the marker only.
pub(super) fn answer(outcome: Outcome) -> Result<HttpResponse, Problem> {
    let Answer { response, replayed } = outcome.map_err(problem)?;
    let status = StatusCode::from_u16(response.status)
        .map_err(|error| Problem::new(Code::InternalError, format!("stored status: {error}")))?;
    let mut answer = HttpResponse::build(status);
    if let Some(location) = response.location() {
        answer.insert_header((LOCATION, location));
    }
    if replayed {
        answer.insert_header((IDEMPOTENT_REPLAYED, "true"));
    }
    if status.is_success() {
        answer.content_type(JSON);
    } else {
        answer.content_type(PROBLEM_JSON);
        if let Some(code) = Code::of_body(&response.body) {
            answer.insert_header((LINK, documentation(code)));
        }
    }
    Ok(answer.body(response.body))
}

/// Why there is no answer.
fn problem(error: EngineError) -> Problem {
    match error {
        EngineError::Overloaded => Problem::new(
            Code::Overloaded,
            "too many commands are waiting; this one was not executed",
        ),
        EngineError::InUse => Problem::new(
            Code::IdempotencyKeyInUse,
            "the first request under this key has not ended yet",
        ),
        EngineError::Reused => Problem::new(
            Code::IdempotencyKeyReused,
            format!("this {IDEMPOTENCY_KEY} was first used with another route or content; nothing was executed"),
        ),
        EngineError::Expired(resource) => Problem::new(
            Code::IdempotencyKeyExpired,
            "the first request under this key is too long ago to be replayed; nothing was executed",
        )
        .with_resource(resource.map(Resource::path)),
        EngineError::Unavailable(reason) => Problem::new(
            Code::Unavailable,
            format!("retry with the same {IDEMPOTENCY_KEY}: if it was executed, that answer is replayed ({reason})"),
        ),
        EngineError::Broken => Problem::new(
            Code::InternalError,
            "the command was rolled back because of a bug in the service",
        ),
    }
}

/// A thing or a list, read.
pub(super) fn read_answer(body: &impl Serialize) -> HttpResponse {
    // A balance is true only at the moment it is read.
    HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(body)
}

/// A problem as it goes out.
fn problem_response(problem: &Problem, request_id: Uuid) -> HttpResponse {
    let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status);
    response.insert_header((LINK, documentation(problem.code())));
    if let Some(seconds) = problem.retry_after() {
        response.insert_header((RETRY_AFTER, seconds.to_string()));
    }
    if let Some(methods) = problem.allow() {
        response.insert_header((ALLOW, methods));
    }
    if let Some(codings) = problem.accept_encoding() {
        response.insert_header((ACCEPT_ENCODING, codings));
    }
    if problem.code() == Code::RequestTimeout {
        // What still arrives of the body must not be taken for the next request.
        response.force_close();
    }
    if problem.code() == Code::Unauthenticated {
        response.insert_header((WWW_AUTHENTICATE, "Bearer"));
    }
    let body = serde_json::to_vec(&problem.for_request(request_id)).unwrap_or_default();
    response.content_type(PROBLEM_JSON).body(body)
}

fn documentation(code: Code) -> String {
    format!("</problems/{}>; rel=\"describedby\"", code.row().code)
}

/// A problem on its way out of a handler. The [`envelope`] makes the response: it alone knows the request's id.
impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
