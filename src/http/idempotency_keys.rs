//! `/idempotency-keys/{key}`

use actix_web::HttpResponse;

use super::envelope::read_answer;
use super::extract::Get;
use super::operation::Operation;
use crate::api::resource::{RecordJson, RecordedResponseJson};
use crate::api::{Code, Problem};
use crate::idempotency::Resource;
use crate::storage::idempotency_keys;

/// What the document says about them.
pub(super) const OPERATIONS: &[Operation] = &[Operation::get(
    "getIdempotencyKey",
    &[Code::IdempotencyKeyInvalid, Code::NotFound],
)];

/// Read what is remembered of an idempotency key
///
/// For incidents: was the request executed, what was it answered, what came of it?
#[utoipa::path(
    get, path = "/idempotency-keys/{key}", operation_id = "getIdempotencyKey", tag = "idempotency",
    params(("key" = String, Path, min_length = 1, max_length = 255, pattern = "^[!-+\\--~]+$", description = "The key, bare and percent-encoded", example = "order-4711")),
    responses((status = 200, description = "What is remembered", body = RecordJson)),
)]
pub(super) async fn show(get: Get) -> Result<HttpResponse, Problem> {
    get.query(&[])?;
    let (tenant, key) = (get.tenant, get.key()?);
    let wanted = key.clone();
    let details = get
        .service
        .read(tenant, move |connection| {
            idempotency_keys::details(connection, tenant, &wanted)
        })
        .await?;
    let details =
        details.ok_or_else(|| Problem::new(Code::NotFound, format!("the key {key} was not used, or is forgotten")))?;
    let resource = details.resource.map(Resource::path);
    let body = details.body.as_deref().map(serde_json::from_slice).transpose();
    let body =
        body.map_err(|error| Problem::new(Code::InternalError, format!("the stored body is not JSON: {error}")))?;
    Ok(read_answer(&RecordJson {
        key: key.to_string(),
        request_hash: details.request_hash.to_string(),
        method: "POST",
        path: details.request_path,
        status: if details.expired { "expired" } else { "completed" },
        response: RecordedResponseJson {
            status: details.status,
            location: resource.clone().filter(|_| details.status == 201),
            body,
        },
        resource,
        created_at: details.created_at,
        expires_at: details.expires_at,
    }))
}
