//! Texts: stored as they are, or refused; never a failure of the service.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::caller::Service;
use crate::card::{Case, Checked, case};

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "X1",
            "the character NUL is refused in texts, paths, query strings and cursors",
            nul,
        ),
        case("X2", "what is no Unicode is refused", no_unicode),
        case("X4", "quotes, backslashes and SQL are ordinary text", quotes),
    ]
}

async fn nul(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = (api.account_with("10.00").await?, api.account("USD").await?);
    for members in [
        json!({"description": "a\u{0}b"}),
        json!({"reference": "\u{0}"}),
        json!({"metadata": {"key": "\u{0}"}}),
        json!({"metadata": {"\u{0}": "value"}}),
    ] {
        let refused = api.pay(&payer, &payee, "1.00").with(members).await?;
        refused.refused(400, "malformed_request")?;
    }
    for path in [
        "/accounts/%00",
        "/payments/%00/refunds",
        "/payments?reference=%00",
        "/payments?cursor=%00",
        "/accounts?limit=1%00",
    ] {
        api.get(path).await?.refused(400, "malformed_request")?;
    }
    api.balance_is(&payee, "0.00").await
}

async fn no_unicode(service: Service) -> Checked {
    for name in [b"\xff".as_slice(), b"\xc0\x80", br"\ud800", br"\udc00\ud800"] {
        let body = [br#"{"currency":"USD","name":""#, name, br#""}"#].concat();
        let refused = service.api.open("USD").with_body(body).await?;
        refused.refused(400, "malformed_request")?;
    }
    Ok(())
}

async fn quotes(service: Service) -> Checked {
    let api = &service.api;
    let (payer, payee) = (api.account_with("10.00").await?, api.account("USD").await?);
    for text in ["'", "\"", "\\", "'; DROP TABLE payments; --", "%", "_", "ünï→🦀"] {
        let texts = json!({"description": text, "reference": text, "metadata": {text: text}});
        let paid = api.pay(&payer, &payee, "1.00").with(texts).await?;
        let id = paid.created()?;
        let read = api.get(format!("/payments/{id}")).await?;
        read.has("description", text)?;
        read.has("reference", text)?;
        read.has("metadata", json!({text: text}))?;

        let encoded = utf8_percent_encode(text, NON_ALPHANUMERIC);
        let list = api
            .get(format!("/payments?account_id={payer}&reference={encoded}"))
            .await?;
        let found = list.data()?;
        let only_it = found.len() == 1 && found.iter().all(|payment| payment["id"] == *id);
        list.must(only_it, format!("just the payment {id}"))?;
        let by_key = api.get(format!("/payments?idempotency_key={encoded}")).await?;
        by_key.must(by_key.status == 400 || by_key.data()?.is_empty(), "no match")?;
    }
    Ok(())
}
