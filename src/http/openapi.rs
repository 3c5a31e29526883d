//! The OpenAPI 3.1 document, and Swagger UI.
//!
//! The handlers say what is particular about them; what is the same everywhere (the key header, the problems, the headers of the
//! answers) is added here, once.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header::CONTENT_ENCODING;
use actix_web::web::Path;
use utoipa::openapi::link::Link;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{OpenApi, RefOr, Required};
use utoipa::{Modify, OpenApi as _};
use utoipa_swagger_ui::Config;

use super::openapi_problems::{self, Common, string, text};
use super::operation::{self, Body};
use super::page::{DEFAULT_LIMIT, LARGEST_LIMIT};
use super::{accounts, entries, health, idempotency_keys, movements, payments, refunds};
use crate::api::problem::ProblemJson;
use crate::api::{Code, Problem};
use crate::idempotency::key::KEY_MAX;

/// Where the document is served.
const DOCUMENT_PATH: &str = "/openapi.json";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "payonce",
        description = "The reference payment service that never charges twice.\n\nEvery `POST` needs an `Idempotency-Key`: a new one for each operation, the same one for each repetition. A repetition gets the stored answer, byte for byte, with `Idempotent-Replayed: true`. Amounts are decimal strings in major units.",
    ),
    paths(
        payments::create, payments::list, payments::show,
        refunds::create, refunds::list, refunds::show,
        accounts::open, accounts::list, accounts::show, accounts::freeze, accounts::unfreeze, accounts::close,
        movements::deposit, movements::withdraw, movements::show_deposit, movements::show_withdrawal,
        entries::list, entries::balance,
        idempotency_keys::show,
        health::live, health::ready, health::metrics, health::problem,
    ),
    components(schemas(ProblemJson, Code)),
    tags(
        (name = "payments", description = "Charge"),
        (name = "refunds", description = "Give back"),
        (name = "accounts", description = "Where money is"),
        (name = "idempotency", description = "What is remembered of a key"),
        (name = "operations", description = "Probes, metrics, error codes; no API key needed"),
    ),
    security(("api_key" = [])),
    modifiers(&Everywhere),
)]
struct Document;

/// The document.
#[must_use]
pub fn openapi() -> OpenApi {
    Document::openapi()
}

/// The document as it is committed under `openapi/` and served.
///
/// # Errors
/// If it can't be written as JSON.
pub fn json() -> serde_json::Result<String> {
    openapi().to_pretty_json().map(|json| json + "\n")
}

pub(super) async fn document() -> HttpResponse {
    HttpResponse::Ok().json(openapi())
}

/// A file of Swagger UI; all of them are in the binary.
pub(super) async fn swagger_ui(file: Path<String>) -> Result<HttpResponse, Problem> {
    let config = Config::from(DOCUMENT_PATH)
        .try_it_out_enabled(true)
        .persist_authorization(true)
        .display_request_duration(true);
    let found = utoipa_swagger_ui::serve(&file, Arc::new(config))
        .map_err(|error| Problem::new(Code::InternalError, format!("Swagger UI is broken: {error}")))?;
    let found = found.ok_or_else(|| Problem::new(Code::NotFound, format!("Swagger UI has no file {file:?}")))?;
    let mut response = HttpResponse::Ok();
    if found.gzpipped {
        response.insert_header((CONTENT_ENCODING, "gzip"));
    }
    Ok(response.content_type(found.content_type).body(found.bytes.into_owned()))
}

/// The operations of all handlers. One that is in none of these lists fails a test.
const OPERATIONS: &[&[operation::Operation]] = &[
    payments::OPERATIONS,
    refunds::OPERATIONS,
    accounts::OPERATIONS,
    movements::OPERATIONS,
    entries::OPERATIONS,
    idempotency_keys::OPERATIONS,
    health::OPERATIONS,
];

/// All of them.
fn all_operations() -> impl Iterator<Item = &'static operation::Operation> {
    OPERATIONS.iter().copied().flatten()
}

/// The one with this `operation_id`.
fn operation_called(id: Option<&str>) -> Option<&'static operation::Operation> {
    all_operations().find(|operation| Some(operation.id) == id)
}

/// What is the same everywhere.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, document: &mut OpenApi) {
        let bearer = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key, as `payonce api-key create` shows it"))
            .build();
        if let Some(components) = &mut document.components {
            components.add_security_scheme("api_key", SecurityScheme::Http(bearer));
        }
        for item in document.paths.paths.values_mut() {
            if let Some(get) = &mut item.get {
                let open = get.tags.iter().flatten().any(|tag| tag == "operations");
                add_page_parameters(get);
                let own = operation_called(get.operation_id.as_deref()).map_or(&[][..], |own| own.refuses);
                openapi_problems::add(get, if open { Common::OpenGet } else { Common::Get }, own);
            }
            if let Some(post) = &mut item.post {
                add_key(post);
                let own = operation_called(post.operation_id.as_deref()).map_or(&[][..], |own| own.refuses);
                openapi_problems::add(post, Common::Post, own);
                if let Some(RefOr::T(body)) = &mut post.request_body
                    && operation_called(post.operation_id.as_deref()).is_some_and(|own| own.body == Body::Optional)
                {
                    body.required = Some(Required::False);
                }
            }
        }
    }
}

/// `POST`: the key goes in, and comes back with the marker of a replay.
fn add_key(operation: &mut Operation) {
    let own = operation_called(operation.operation_id.as_deref());
    // One for each operation: whoever tries out two of them as they stand does not use a key twice.
    let example = format!("{}-1", operation.operation_id.as_deref().unwrap_or_default());
    let key = ObjectBuilder::new()
        .schema_type(SchemaType::new(Type::String))
        .min_length(Some(1))
        .max_length(Some(KEY_MAX))
        .pattern(Some(r#"^([!#-+\--~][!-+\--~]*|"([!#-+\--\[\]-~]|\\["\\])+")$"#))
        .build();
    let parameter = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::True)
        .description(Some(format!(
            "A new one for each operation, the same one for each repetition: 1 to {KEY_MAX} visible ASCII characters without commas"
        )))
        .schema(Some(key))
        .example(Some(example.into()))
        .build();
    operation.parameters.get_or_insert_default().push(parameter.into());
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response {
            response
                .headers
                .insert("Idempotency-Key".to_owned(), text("The key of the request").into());
            response.headers.insert(
                "Idempotent-Replayed".to_owned(),
                text("`true` if an earlier request under the key got this answer first").into(),
            );
            if status == "201" {
                response
                    .headers
                    .insert("Location".to_owned(), text("Where it can be read").into());
                for next in own.map_or(&[][..], |own| own.then) {
                    let link = Link::builder()
                        .operation_id(*next)
                        .parameter("id", "$response.body#/id");
                    response.links.insert((*next).to_owned(), link.build().into());
                }
            }
        }
    }
}

/// Lists (their operations are called `list…`): a page is asked for in the same way everywhere.
fn add_page_parameters(operation: &mut Operation) {
    if !operation
        .operation_id
        .as_deref()
        .is_some_and(|id| id.starts_with("list"))
    {
        return;
    }
    let limit = ObjectBuilder::new()
        .schema_type(SchemaType::new(Type::Integer))
        .minimum(Some(1))
        .maximum(Some(LARGEST_LIMIT))
        .default(Some(DEFAULT_LIMIT.into()))
        .build();
    let parameter = |name: &str, description: &str, schema: utoipa::openapi::Object| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Query)
            .required(Required::False)
            .description(Some(description))
            .schema(Some(schema))
            .build()
    };
    let parameters = operation.parameters.get_or_insert_default();
    parameters.push(parameter("limit", "Most things on the page", limit).into());
    parameters.push(parameter("cursor", "The `next_cursor` of the page before", string()).into());
}

#[cfg(test)]
#[path = "openapi_test.rs"]
mod tests;
