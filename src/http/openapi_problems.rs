//! Which problems each operation may answer with, for the OpenAPI document: described and with an example each.

use std::collections::BTreeMap;

use rust_decimal::Decimal;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{ContentBuilder, Header, Ref, RefOr, ResponseBuilder};
use uuid::Uuid;

use crate::api::{Code, FieldError, Problem};

/// Every `GET` that needs an API key.
const EVERY_GET: &[Code] = &[
    Code::MalformedRequest,
    Code::UnknownParameter,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::RateLimited,
    Code::InternalError,
    Code::Unavailable,
];

/// Every `POST`.
const EVERY_POST: &[Code] = &[
    Code::MalformedRequest,
    Code::IdempotencyKeyMissing,
    Code::IdempotencyKeyInvalid,
    Code::UnknownParameter,
    Code::Unauthenticated,
    Code::Forbidden,
    Code::RequestTimeout,
    Code::IdempotencyKeyInUse,
    Code::IdempotencyKeyExpired,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::IdempotencyKeyReused,
    Code::RateLimited,
    Code::InternalError,
    Code::Overloaded,
    Code::Unavailable,
];

/// Adds a response for each status with which the operation may refuse: in a way that all of its kind have in common, or in one of its
/// own.
pub(super) fn add(operation: &mut Operation, common: Common, own: &[Code]) {
    let common = match common {
        Common::Get => EVERY_GET,
        Common::OpenGet => &[],
        Common::Post => EVERY_POST,
    };
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    let may_answer = |code: &&Code| common.contains(code) || own.contains(code);
    for code in Code::ALL.iter().filter(may_answer) {
        by_status.entry(code.row().status).or_default().push(*code);
    }
    for (status, codes) in by_status {
        let response = response(status, &codes);
        operation
            .responses
            .responses
            .insert(status.to_string(), RefOr::T(response));
    }
}

/// Which problems an operation has in common with others.
#[derive(Clone, Copy)]
pub(super) enum Common {
    Get,
    /// Without an API key.
    OpenGet,
    Post,
}

fn response(status: u16, codes: &[Code]) -> utoipa::openapi::Response {
    let meaning = |code: &Code| {
        let row = code.row();
        format!("`{}`: {}. {}", row.code, row.title, code.advice())
    };
    let example = |code: &Code| {
        let value = serde_json::to_value(example(*code).for_request(EXAMPLE_ID)).unwrap_or_default();
        (code.row().code, ExampleBuilder::new().value(Some(value)).build())
    };
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .examples_from_iter(codes.iter().map(example))
        .build();
    let mut response = ResponseBuilder::new()
        .description(codes.iter().map(meaning).collect::<Vec<_>>().join("\n\n"))
        .content("application/problem+json", content)
        .header("Link", text("Documentation of the error (`rel=\"describedby\"`)"))
        .header("X-Request-Id", text("Names the request in the service's log"));
    if codes.iter().any(|code| Problem::new(*code, "").retry_after().is_some()) {
        let header = if status == 409 {
            "With `idempotency_key_in_use`: seconds to wait before a repetition"
        } else {
            "Seconds to wait before a repetition"
        };
        response = response.header("Retry-After", text(header));
    }
    response.build()
}

/// 019ad5f0-0000-7000-8000-000000000009
const EXAMPLE_ID: Uuid = Uuid::from_u128(0x019a_d5f0_0000_7000_8000_0000_0000_0009);

/// Such a problem as it might be.
fn example(code: Code) -> Problem {
    let problem = Problem::new(code, "what is wrong in this very case, in a sentence");
    match code {
        Code::ValidationFailed => Problem::invalid(vec![FieldError::new("amount", &"must be greater than zero")]),
        Code::RefundExceedsRemaining => problem.with_refundable_amount(Decimal::new(600, 2)),
        Code::RefundedAmountChanged => problem.with_refunded_amount(Decimal::new(400, 2)),
        Code::IdempotencyKeyExpired => problem.with_resource(Some(format!("/payments/{EXAMPLE_ID}"))),
        _ => problem,
    }
}

/// A header that is a text.
pub(super) fn text(description: &str) -> Header {
    HeaderBuilder::new()
        .schema(Some(string()))
        .description(Some(description))
        .build()
}

pub(super) fn string() -> utoipa::openapi::Object {
    ObjectBuilder::new().schema_type(SchemaType::new(Type::String)).build()
}
