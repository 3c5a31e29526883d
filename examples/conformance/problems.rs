//! Every problem that a caller can bring about: its status, its code, and the members of RFC 9457.

use reqwest::Method;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::caller::Service;
use crate::card::{Case, Checked, case};
use crate::reply::Reply;

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "X11",
            "a problem has its status, code and documentation, whatever brought it about",
            problems,
        ),
        case("X11w", "so has the one of an API key that may only read", forbidden),
    ]
}

async fn problems(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = (api.account_with("10.00").await?, api.account("USD").await?);
    let euros = api.account("EUR").await?;
    let pay = |amount: &str| api.pay(&payer, &payee, amount);
    let used = pay("1.00");
    let payment = used.clone().await?.created()?;
    let nobody = api.with_api_key("nobody-knows-this-api-key");
    for (ask, status, code) in [
        (nobody.get("/accounts"), 401, "unauthenticated"),
        (nobody.open("USD"), 401, "unauthenticated"),
        (pay("1.00").with_body("{"), 400, "malformed_request"),
        (
            pay("1.00").with_body(r#"{"amount":"1.00","amount":"9.00"}"#),
            400,
            "malformed_request",
        ),
        (api.get("/accounts/1"), 400, "malformed_request"),
        (api.get("/accounts?limit=0"), 400, "malformed_request"),
        (pay("1.00").without_key(), 400, "idempotency_key_missing"),
        (pay("1.00").under("a,b"), 400, "idempotency_key_invalid"),
        (pay("1.00").with(json!({"tip": "1.00"})), 400, "unknown_parameter"),
        (api.get("/payments?colour=red"), 400, "unknown_parameter"),
        (pay("9.01"), 402, "insufficient_funds"),
        (api.get("/nothing/here"), 404, "not_found"),
        (api.get(format!("/payments/{payer}")), 404, "not_found"),
        (
            api.get("/payments").with_method(Method::DELETE),
            405,
            "method_not_allowed",
        ),
        (api.set(&payer, "close"), 409, "account_not_empty"),
        (
            api.refund(&payment).with(json!({"expected_refunded_amount": "1.00"})),
            412,
            "refunded_amount_changed",
        ),
        (
            pay("1.00").with(json!({"description": "x".repeat(70_000)})),
            413,
            "body_too_large",
        ),
        (
            pay("1.00").with_content_type("text/plain"),
            415,
            "unsupported_media_type",
        ),
        (pay("1.005"), 422, "validation_failed"),
        (used.with(json!({"amount": "2.00"})), 422, "idempotency_key_reused"),
        (api.pay(&payer, &payer, "1.00"), 422, "same_account"),
        (api.pay(&payer, &euros, "1.00"), 422, "currency_mismatch"),
        (
            api.refund(&payment).with(json!({"amount": "1.01"})),
            422,
            "refund_exceeds_remaining",
        ),
    ] {
        is_documented(ask, status, code).await?;
    }
    api.set(&payer, "freeze").await?.has("status", "frozen")?;
    is_documented(pay("1.00"), 409, "account_frozen").await?;
    api.set(&payer, "unfreeze").await?.has("status", "active")?;
    api.set(&euros, "close").await?.has("status", "closed")?;
    is_documented(api.deposit(&euros, "1.00", "EUR"), 409, "account_closed").await?;
    api.balance_is(&payer, "9.00").await
}

async fn forbidden(service: Service) -> Checked {
    is_documented(service.read_only()?.open("USD"), 403, "forbidden").await
}

async fn is_documented(ask: Ask, status: u16, code: &str) -> Checked {
    let reply = ask.await?;
    let problem = reply.refused(status, code)?;
    let text = |member: &str| problem[member].as_str().is_some_and(|text| !text.is_empty());
    let described = reply.header("Link").is_some_and(|link| link.contains("describedby"));
    reply.must(
        ["title", "detail", "instance"].into_iter().all(text)
            && problem["type"].as_str().is_some_and(|uri| uri.ends_with(code))
            && problem["status"] == status
            && problem["retryable"].is_boolean()
            && described,
        "type that ends in the code, title, status, detail, instance, retryable, and a Link with rel=\"describedby\"",
    )?;
    names_what_is_needed(&reply, &problem)
}

/// The headers and members that go with a status.
fn names_what_is_needed(reply: &Reply, problem: &Value) -> Checked {
    match reply.status {
        401 => reply.must(reply.header("WWW-Authenticate").is_some(), "401 with WWW-Authenticate"),
        405 => reply.must(reply.header("Allow").is_some(), "405 with Allow"),
        422 if problem["code"] == "validation_failed" => {
            let errors = problem["errors"].as_array().cloned().unwrap_or_default();
            let named = errors
                .iter()
                .all(|error| error["field"].is_string() && error["message"].is_string());
            reply.must(named && !errors.is_empty(), "422 with errors: [{field, message}]")
        }
        _ => Ok(()),
    }
}
