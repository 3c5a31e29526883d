//! Errors as callers see them: RFC 9457 problem details, and the one table of their codes.
//!
//! Which error type belongs where: a rule that says no is a `domain::Refusal` (ordinary, stored, replayed); a database that fails is a
//! `storage::StorageError`; a command that got no answer is an `engine::EngineError`. All of them become a [`Problem`] just
//! before they are sent.
//!
//! Whoever adds a [`Code`] adds its line to the table below; `/problems` and the schema in the OpenAPI document read it. Beyond that it takes:
//! where it is raised (a refusal's in `render.rs`) · each operation that may answer so (`http/openapi_problems.rs`; a test notices a code that
//! stands at none) · the contract in `problem_test.rs`, and how to provoke it in `tests/it/problems.rs` (tests say so) · `make openapi`.

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::BODY_MAX;
use crate::idempotency::key::KEY_MAX;
use crate::money::MAX;

/// Seconds that `Retry-After` asks for when it is not known better.
const RETRY_AFTER_SECONDS: u32 = 1;

/// Most bytes of a body, as people say it.
const BODY_MAX_KIB: usize = BODY_MAX / 1024;

/// A row of the table of codes.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The stable name.
    pub code: &'static str,
    /// HTTP status.
    pub status: u16,
    /// May the same request succeed later under the same key?
    pub retryable: bool,
    /// What it is, in a few words.
    pub title: &'static str,
}

/// Makes [`Code`] of its table: the enum, the list of all, and what each line says.
macro_rules! codes {
    ($($variant:ident: $code:tt, $status:literal, $retryable:literal, $title:literal, $advice:literal;)+) => {
        /// What can go wrong, by its stable name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[schema(as = ProblemCode)]
        #[expect(missing_docs, reason = "the table says what each one means")]
        pub enum Code {
            $(#[serde(rename = $code)] $variant,)+
        }

        impl Code {
            /// All codes, by status.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// What the table says of it, without the advice.
            #[must_use]
            pub fn row(self) -> Row {
                match self {
                    $(Self::$variant => Row {
                        code: $code,
                        status: $status,
                        retryable: $retryable,
                        title: $title,
                    },)+
                }
            }

            /// What the caller can do about it.
            #[must_use]
            pub fn advice(self) -> String {
                match self {
                    $(Self::$variant => format!($advice),)+
                }
            }
        }
    };
}

// THE table: everything about a code. An advice may contain a constant: `{NAME}`.
codes! {
    // code: name, HTTP status, may the same request succeed later under the same key?, title, advice
    MalformedRequest:       "malformed_request",        400, false, "The request can't be read",          "Correct what the detail names; nothing was executed and the key is still free.";
    IdempotencyKeyMissing:  "idempotency_key_missing",  400, false, "Idempotency-Key is missing",         "Send an Idempotency-Key with every POST: a new one for each operation, the same one for each repetition.";
    IdempotencyKeyInvalid:  "idempotency_key_invalid",  400, false, "Idempotency-Key is malformed",       "Use 1 to {KEY_MAX} visible ASCII characters without commas, in one header line.";
    UnknownParameter:       "unknown_parameter",        400, false, "Unknown parameter",                  "Remove or correct the parameter that the detail names: what is not understood is refused, not ignored.";
    Unauthenticated:        "unauthenticated",          401, false, "API key is missing or not valid",    "Send `Authorization: Bearer <api key>` with a key that is neither revoked nor expired.";
    InsufficientFunds:      "insufficient_funds",       402, false, "Insufficient funds",                 "The answer is stored under its key for good: once there is money, pay under a new key.";
    Forbidden:              "forbidden",                403, false, "API key lacks the scope",            "Use a key with the scope that the detail names.";
    NotFound:               "not_found",                404, false, "Not found",                          "Check the address and the ids: they must belong to the tenant of the API key.";
    MethodNotAllowed:       "method_not_allowed",       405, false, "Method not allowed",                 "Use one of the methods in the Allow header.";
    RequestTimeout:         "request_timeout",          408, true,  "The body did not arrive",            "Nothing was executed. Send the whole request again, on a new connection and under the same key.";
    IdempotencyKeyInUse:    "idempotency_key_in_use",   409, true,  "The first request is still running", "Repeat the request under the same key after the time in Retry-After.";
    AccountFrozen:          "account_frozen",           409, false, "Account is frozen",                  "Unfreeze the account, then ask under a new key.";
    AccountClosed:          "account_closed",           409, false, "Account is closed",                  "A closed account stays closed; use another one.";
    AccountNotEmpty:        "account_not_empty",        409, false, "Account is not empty",               "Withdraw the balance, then close under a new key.";
    IdempotencyKeyExpired:  "idempotency_key_expired",  410, false, "The key's window has passed",        "Nothing was executed. Look at the resource: the first request may have made it. If it is really a new operation, use a new key.";
    RefundedAmountChanged:  "refunded_amount_changed",  412, false, "The refunded amount has changed",    "Read the payment again, decide again, and ask under a new key.";
    BodyTooLarge:           "body_too_large",           413, false, "Body is too large",                  "Send at most {BODY_MAX_KIB} KiB.";
    UnsupportedMediaType:   "unsupported_media_type",   415, false, "Unsupported media type",             "Send JSON with `Content-Type: application/json`, not compressed.";
    ValidationFailed:       "validation_failed",        422, false, "Validation failed",                  "Correct the fields in errors; nothing was executed.";
    IdempotencyKeyReused:   "idempotency_key_reused",   422, false, "The key belongs to another request", "The key was first used for another route or content. Use a new key for a new operation.";
    SameAccount:            "same_account",             422, false, "Payer and payee are one account",    "Name two different accounts.";
    CurrencyMismatch:       "currency_mismatch",        422, false, "Currency mismatch",                  "Amount and accounts must be in one currency.";
    RefundExceedsRemaining: "refund_exceeds_remaining", 422, false, "Refund exceeds what remains",        "Refund at most refundable_amount.";
    BalanceOverflow:        "balance_overflow",         422, false, "Balance would be too large",         "No account holds more than {MAX}.";
    RateLimited:            "rate_limited",             429, true,  "Too many requests",                  "Repeat the request under the same key after the time in Retry-After.";
    InternalError:          "internal_error",           500, true,  "Internal error",                     "The request was rolled back and the operators are alarmed. It is safe to repeat under the same key.";
    Overloaded:             "overloaded",               503, true,  "Too much work is waiting",           "Nothing was executed. Repeat the request under the same key after the time in Retry-After.";
    Unavailable:            "unavailable",              503, true,  "Service is unavailable",             "Repeat the request under the same key after the time in Retry-After: whatever happened, it is executed once at most.";
}

impl Code {
    /// The code of a problem that was stored as bytes.
    #[must_use]
    pub fn of_body(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Coded {
            code: Code,
        }
        serde_json::from_slice::<Coded>(body).ok().map(|coded| coded.code)
    }
}

/// A field of the request that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    /// Which field; a dot leads into an object.
    #[schema(example = "amount")]
    pub field: String,
    /// What is wrong with it and what would be right.
    #[schema(example = "must be greater than zero")]
    pub message: String,
}

impl FieldError {
    /// `message` about `field`.
    #[must_use]
    pub fn new(field: &str, message: &impl ToString) -> Self {
        Self {
            field: field.to_owned(),
            message: message.to_string(),
        }
    }
}

/// An error on its way to the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    code: Code,
    detail: String,
    retry_after: Option<u32>,
    allow: Option<String>,
    accept_encoding: Option<&'static str>,
    more: More,
}

/// Members that only some problems have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct More {
    errors: Vec<FieldError>,
    refundable_amount: Option<String>,
    refunded_amount: Option<String>,
    resource: Option<WhatCame>,
}

/// The address of what a first request brought about; `null` if that was nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct WhatCame(Option<String>);

/// RFC 9457 problem details (`application/problem+json`).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemJson<'a> {
    /// A URI that ends in the code.
    #[schema(example = "urn:payonce:problem:insufficient_funds")]
    r#type: String,
    #[schema(example = "Insufficient funds")]
    title: &'a str,
    /// HTTP status.
    #[schema(example = 402)]
    status: u16,
    /// What is wrong in this very case.
    #[schema(example = "the balance of account 019ad5f0-0000-7000-8000-000000000000 is less than the amount")]
    detail: &'a str,
    /// The request's id, as in the X-Request-Id header and in the log.
    instance: Uuid,
    code: Code,
    /// May the same request succeed later under the same key?
    retryable: bool,
    /// With `validation_failed`: each wrong field.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(required = false)]
    errors: &'a [FieldError],
    /// With `refund_exceeds_remaining`: what can still be refunded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "6.00")]
    refundable_amount: Option<&'a str>,
    /// With `refunded_amount_changed`: what has been refunded by now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "4.00")]
    refunded_amount: Option<&'a str>,
    /// With `idempotency_key_expired`: what came of the first request; `null` if it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable, example = "/payments/019ad5f0-0000-7000-8000-000000000009")]
    resource: Option<&'a WhatCame>,
}

impl Problem {
    /// A problem with a sentence on this very case.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        // When a bug will be mended is not known.
        let later = code.row().retryable && code != Code::InternalError;
        let retry_after = later.then_some(RETRY_AFTER_SECONDS);
        Self {
            code,
            detail: detail.into(),
            retry_after,
            allow: None,
            accept_encoding: None,
            more: More::default(),
        }
    }

    /// `validation_failed`, naming each wrong field.
    #[must_use]
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let lines: Vec<_> = errors
            .iter()
            .map(|error| format!("{} {}", error.field, error.message))
            .collect();
        let mut problem = Self::new(Code::ValidationFailed, lines.join("; "));
        problem.more.errors = errors;
        problem
    }

    /// Adds what can still be refunded.
    #[must_use]
    pub fn with_refundable_amount(mut self, amount: Decimal) -> Self {
        self.more.refundable_amount = Some(amount.to_string());
        self
    }

    /// Adds what has been refunded by now.
    #[must_use]
    pub fn with_refunded_amount(mut self, amount: Decimal) -> Self {
        self.more.refunded_amount = Some(amount.to_string());
        self
    }

    /// Adds what came of the first request.
    #[must_use]
    pub fn with_resource(mut self, path: Option<String>) -> Self {
        self.more.resource = Some(WhatCame(path));
        self
    }

    /// Asks the caller to wait so many seconds.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Names the methods that are allowed.
    #[must_use]
    pub fn with_allow(mut self, methods: String) -> Self {
        self.allow = Some(methods);
        self
    }

    /// The methods that are allowed, for `Allow`.
    #[must_use]
    pub fn allow(&self) -> Option<&str> {
        self.allow.as_deref()
    }

    /// Names the content codings that are accepted. Only where the coding was what was wrong: it tells that apart from a
    /// wrong media type (RFC 9110, 12.5.3).
    #[must_use]
    pub fn with_accept_encoding(mut self, codings: &'static str) -> Self {
        self.accept_encoding = Some(codings);
        self
    }

    /// The content codings that are accepted, for `Accept-Encoding`.
    #[must_use]
    pub fn accept_encoding(&self) -> Option<&'static str> {
        self.accept_encoding
    }

    /// Which one.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.code.row().status
    }

    /// Seconds for `Retry-After`.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        self.retry_after
    }

    /// The JSON, naming the request it answers.
    #[must_use]
    pub fn for_request(&self, request_id: Uuid) -> ProblemJson<'_> {
        let row = self.code.row();
        ProblemJson {
            r#type: format!("urn:payonce:problem:{}", row.code),
            title: row.title,
            status: row.status,
            detail: &self.detail,
            instance: request_id,
            code: self.code,
            retryable: row.retryable,
            errors: &self.more.errors,
            refundable_amount: self.more.refundable_amount.as_deref(),
            refunded_amount: self.more.refunded_amount.as_deref(),
            resource: self.more.resource.as_ref(),
        }
    }
}

#[cfg(test)]
#[path = "problem_test.rs"]
mod tests;
