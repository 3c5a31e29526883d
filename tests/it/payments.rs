//! `/payments`: charge, read, list.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::client::{ids, payment, timeless};
use crate::support::{App, assert_books_balance, new_key};

/// A payment in whole: what was sent comes back with what the service adds. Without this a client can't book it.
#[tokio::test]
async fn a_payment_moves_the_money_and_is_read_back() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let more = json!({"description": "Two coffees", "reference": "order-4711", "metadata": {"b": "2", "a": "1"}});
    let made = app.pay_with(&payer, &payee, "12.50", more).await;
    let id = made.created();
    let expected = json!({"id": id, "payer_account_id": payer, "payee_account_id": payee, "amount": "12.50", "currency": "USD",
        "refunded_amount": "0.00", "status": "succeeded", "description": "Two coffees", "reference": "order-4711",
        "metadata": {"a": "1", "b": "2"}});
    assert_eq!(timeless(made.json()), expected);
    assert_eq!(made.header("Content-Type"), Some("application/json"));
    assert_eq!(made.header("Location"), Some(format!("/payments/{id}").as_str()));
    let read = app.get(made.header("Location").expect("Location")).await;
    assert_eq!((read.status, read.body), (200, made.body));
    assert_eq!(
        (app.balance(&payer).await, app.balance(&payee).await),
        ("87.50".to_owned(), "12.50".to_owned())
    );
    assert_books_balance(&app.database);
}

/// Absent optional values are `null`, never left out, and a `null` that is sent counts as absent. Without this typed
/// clients fail on some answers only.
#[tokio::test]
async fn absent_optional_values_are_null() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("2.00").await, app.open("USD").await);
    let key = new_key();
    let made = app.pay_under(&key, &payer, &payee, "1.00").await;
    let expected = json!({"id": made.created(), "payer_account_id": payer, "payee_account_id": payee, "amount": "1.00",
        "currency": "USD", "refunded_amount": "0.00", "status": "succeeded", "description": null, "reference": null,
        "metadata": null});
    assert_eq!(timeless(made.json()), expected);
    let mut nulls = payment(&payer, &payee, "1.00");
    for optional in ["description", "reference", "metadata"] {
        nulls[optional] = Value::Null;
    }
    assert!(app.post("/payments", &key, &nulls).await.is_replay());
    assert_books_balance(&app.database);
}

/// A payer pays at most what is there, to the last cent. Without this an account goes below zero.
#[tokio::test]
async fn no_more_is_paid_than_there_is() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let refused = app.pay(&payer, &payee, "10.01").await;
    let problem = refused.problem(402, "insufficient_funds");
    assert!(
        problem["detail"].as_str().is_some_and(|detail| detail.contains(&payer)),
        "{problem}"
    );
    assert_eq!(refused.header("Location"), None);
    assert_eq!(app.list("/payments").await, Vec::<Value>::new());
    app.pay(&payer, &payee, "10.00").await.created();
    assert_eq!(app.balance(&payer).await, "0.00");
    assert_books_balance(&app.database);
}

/// C15: Payer and payee must differ, however the id is spelled. Without this an account pays itself, and a balance that is
/// read twice and written twice makes money.
#[tokio::test]
async fn nobody_pays_himself() {
    let app = App::start().await;
    let id = app.open_with("10.00").await;
    app.pay(&id, &id, "1.00").await.problem(422, "same_account");
    app.pay(&id.to_uppercase(), &id, "1.00")
        .await
        .problem(422, "same_account");
    app.pay(&id, &id.to_uppercase(), "1.00")
        .await
        .problem(422, "same_account");
    assert_eq!(app.balance(&id).await, "10.00");
    assert_books_balance(&app.database);
}

/// An id in capitals is the same id. Without this a client that stores ids in capitals can't pay, or pays somebody else.
#[tokio::test]
async fn an_id_in_capitals_is_the_same_id() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let paid = app.pay(&payer.to_uppercase(), &payee.to_uppercase(), "1.00").await;
    let id = paid.created();
    assert_eq!(paid.text("payer_account_id"), payer);
    assert_eq!(app.read(&format!("/payments/{}", id.to_uppercase())).await["id"], id);
    assert_books_balance(&app.database);
}

/// An unknown account is named by the field it stood in. Without this the caller looks for the mistake on the wrong side.
#[tokio::test]
async fn an_unknown_payer_or_payee_is_named() {
    let app = App::start().await;
    let (id, nobody) = (app.open_with("10.00").await, Uuid::now_v7().to_string());
    for (field, reply) in [
        ("payer_account_id", app.pay(&nobody, &id, "1.00").await),
        ("payee_account_id", app.pay(&id, &nobody, "1.00").await),
    ] {
        let problem = reply.problem(404, "not_found");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(field) && detail.contains(&nobody), "{detail}");
    }
    assert_eq!(app.balance(&id).await, "10.00");
    assert_books_balance(&app.database);
}

/// Both accounts must be in the payment's currency. Without this money is exchanged at one to one.
#[tokio::test]
async fn nothing_is_ever_converted() {
    let app = App::start().await;
    let (dollars, yen) = (app.open_with("10.00").await, app.open("JPY").await);
    app.pay(&dollars, &yen, "1.00").await.problem(422, "currency_mismatch");
    let mut body = payment(&dollars, &yen, "1");
    body["currency"] = json!("JPY");
    app.post("/payments", &new_key(), &body)
        .await
        .problem(422, "currency_mismatch");
    assert_eq!(app.balance(&dollars).await, "10.00");
    assert_books_balance(&app.database);
}

/// Every missing field is named at once. Without this a caller mends a request one answer at a time.
#[tokio::test]
async fn all_wrong_fields_are_named_at_once() {
    let app = App::start().await;
    let required = ["payer_account_id", "payee_account_id", "currency", "amount"];
    app.post("/payments", &new_key(), &json!({})).await.invalid(&required);
    let wrong = json!({"payer_account_id": "alice", "payee_account_id": 7, "currency": "usd", "amount": "-1",
        "description": 1, "reference": "", "metadata": []});
    app.post("/payments", &new_key(), &wrong).await.invalid(&[
        "payer_account_id",
        "payee_account_id",
        "currency",
        "amount",
        "description",
        "reference",
        "metadata",
    ]);
}

/// What fails the validation leaves the key free: the corrected request runs under it. Without this a typo burns the key.
#[tokio::test]
async fn a_key_is_free_after_a_validation_error() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let key = new_key();
    app.pay_under(&key, &payer, &payee, "1.005").await.invalid(&["amount"]);
    app.get(&format!("/idempotency-keys/{key}"))
        .await
        .problem(404, "not_found");
    let paid = app.pay_under(&key, &payer, &payee, "1.00").await;
    paid.created();
    assert!(!paid.is_replay());
    assert_books_balance(&app.database);
}

/// The record of a key in whole: what was asked, what was answered, what came of it. Without this an incident is solved by guessing.
#[tokio::test]
async fn the_record_of_a_key_says_what_came_of_it() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let paid = app.pay_under("order-1", &payer, &payee, "4.00").await;
    let location = format!("/payments/{}", paid.created());
    let mut record = app.read("/idempotency-keys/order-1").await;
    let hash = record["request_hash"].take();
    assert!(hash.as_str().is_some_and(|hash| hash.len() == 64), "{hash}");
    let times = [record["created_at"].take(), record["expires_at"].take()]
        .map(|at| chrono::DateTime::parse_from_rfc3339(at.as_str().expect("a time")).expect("RFC 3339"));
    assert_eq!(times[1] - times[0], chrono::TimeDelta::hours(24));
    let expected = json!({"key": "order-1", "request_hash": null, "method": "POST", "path": "/payments", "status": "completed",
        "response": {"status": 201, "location": location, "body": paid.json()}, "resource": location,
        "created_at": null, "expires_at": null});
    assert_eq!(record, expected);

    let refused = app.pay_under("order-2", &payer, &payee, "400.00").await;
    let record = app.read("/idempotency-keys/order-2").await;
    assert_eq!(
        record["response"],
        json!({"status": 402, "location": null, "body": refused.json()})
    );
    assert_eq!(
        (&record["resource"], &record["status"]),
        (&Value::Null, &json!("completed"))
    );

    app.age_keys(25);
    let record = app.read("/idempotency-keys/order-1").await;
    assert_eq!(
        (&record["status"], &record["resource"]),
        (&json!("expired"), &json!(location))
    );
    assert_books_balance(&app.database);
}

/// The status of a payment follows from what went back. Without this a refunded payment still looks paid.
#[tokio::test]
async fn the_status_of_a_payment_follows_its_refunds() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let id = app.pay(&payer, &payee, "10.00").await.created();
    for (status, refunded) in [
        ("succeeded", "0.00"),
        ("partially_refunded", "5.00"),
        ("refunded", "10.00"),
    ] {
        let payment = app.read(&format!("/payments/{id}")).await;
        assert_eq!(
            (&payment["status"], &payment["refunded_amount"]),
            (&json!(status), &json!(refunded))
        );
        if status != "refunded" {
            app.refund(&id, Some("5.00")).await.created();
        }
    }
    assert_books_balance(&app.database);
}

/// `account_id` finds payments from and to the account, each once and newest first. Without this half of a customer's history is missing.
#[tokio::test]
async fn payments_are_found_by_payer_and_by_payee() {
    let app = App::start().await;
    let (a, b, c) = (
        app.open_with("10.00").await,
        app.open_with("10.00").await,
        app.open("USD").await,
    );
    let from_a = app.pay(&a, &b, "1.00").await.created();
    let from_b = app.pay(&b, &a, "1.00").await.created();
    let without_a = app.pay(&b, &c, "1.00").await.created();
    assert_eq!(
        ids(&app.list(&format!("/payments?account_id={a}")).await),
        [from_b.clone(), from_a.clone()]
    );
    assert_eq!(
        ids(&app.list(&format!("/payments?account_id={c}")).await),
        [without_a.as_str()]
    );
    assert_eq!(ids(&app.list("/payments").await), [without_a, from_b, from_a]);
    let nobody = Uuid::now_v7();
    assert_eq!(
        app.list(&format!("/payments?account_id={nobody}")).await,
        Vec::<Value>::new()
    );
    assert_books_balance(&app.database);
}

/// `status`, `reference` and `idempotency_key` find what they name, and all conditions must hold. Without this support
/// looks at somebody else's payment.
#[tokio::test]
async fn payments_are_found_by_status_reference_and_key() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let plain = app.pay_under("key-1", &payer, &payee, "1.00").await.created();
    let reference = json!({"reference": "order 4711&x=ü"});
    let partly = app.pay_with(&payer, &payee, "2.00", reference.clone()).await.created();
    let wholly = app.pay_with(&payer, &payee, "3.00", reference).await.created();
    app.refund(&partly, Some("1.00")).await.created();
    app.refund(&wholly, None).await.created();
    let encoded = "order%204711%26x=%C3%BC";
    for (query, found) in [
        ("status=succeeded".to_owned(), vec![&plain]),
        ("status=partially_refunded".to_owned(), vec![&partly]),
        ("status=refunded".to_owned(), vec![&wholly]),
        (format!("reference={encoded}"), vec![&wholly, &partly]),
        (format!("reference={encoded}&status=refunded"), vec![&wholly]),
        (format!("reference={encoded}&status=succeeded"), vec![]),
        ("reference=order".to_owned(), vec![]),
        ("idempotency_key=key-1".to_owned(), vec![&plain]),
        ("idempotency_key=%22key-1%22".to_owned(), vec![&plain]),
        ("idempotency_key=key-1&status=refunded".to_owned(), vec![]),
        ("idempotency_key=never-used".to_owned(), vec![]),
    ] {
        let listed = ids(&app.list(&format!("/payments?{query}")).await);
        assert_eq!(listed.iter().collect::<Vec<_>>(), found, "{query}");
    }
    assert_books_balance(&app.database);
}

/// A key that made no payment finds none: not that of a refund, and not that of a refused payment.
#[tokio::test]
async fn a_key_that_made_no_payment_finds_none() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("1.00").await, app.open("USD").await);
    let id = app.pay(&payer, &payee, "1.00").await.created();
    app.post(&format!("/payments/{id}/refunds"), "refund-1", &json!({}))
        .await
        .created();
    app.pay_under("refused-1", &payer, &payee, "9.00")
        .await
        .problem(402, "insufficient_funds");
    for key in ["refund-1", "refused-1"] {
        let found = app.list(&format!("/payments?idempotency_key={key}")).await;
        assert_eq!(found, Vec::<Value>::new(), "{key}");
    }
    assert_books_balance(&app.database);
}

/// `created_from` includes its instant and `created_to` does not, whatever the offset they are written with. Without this
/// the payments of midnight are in two days' reports, or in none.
#[tokio::test]
async fn payments_are_found_by_when_they_were_made() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let mut made = Vec::new();
    for hour in ["10:00:00", "11:00:00", "12:00:00"] {
        let id = app.pay(&payer, &payee, "1.00").await.created();
        app.database.run_unguarded(&format!(
            "UPDATE payments SET created_at = '2020-01-01 {hour}Z' WHERE id = '{id}'; \
             UPDATE transfers SET created_at = '2020-01-01 {hour}Z' WHERE id = '{id}'"
        ));
        made.push(id);
    }
    app.database
        .run_unguarded("UPDATE transfers SET created_at = '2020-01-01 09:00:00Z' WHERE kind = 'deposit'");
    let [ten, eleven, twelve] = made.as_slice() else {
        panic!("three payments")
    };
    for (query, found) in [
        ("created_from=2020-01-01T11:00:00Z", vec![twelve, eleven]),
        ("created_to=2020-01-01T11:00:00Z", vec![ten]),
        (
            "created_from=2020-01-01T10:00:00Z&created_to=2020-01-01T12:00:00Z",
            vec![eleven, ten],
        ),
        (
            "created_from=2020-01-01T13:00:00%2B02:00&created_to=2020-01-01T13:00:00.000001%2B02:00",
            vec![eleven],
        ),
        (
            "created_from=2020-01-01T12:00:00Z&created_to=2020-01-01T10:00:00Z",
            vec![],
        ),
    ] {
        let listed = ids(&app.list(&format!("/payments?{query}")).await);
        assert_eq!(listed.iter().collect::<Vec<_>>(), found, "{query}");
    }
    assert_books_balance(&app.database);
}

/// A filter that can't be read is refused, not ignored. Without this a typo shows all payments where few were asked for.
#[tokio::test]
async fn a_filter_that_can_not_be_read_is_refused() {
    let app = App::start().await;
    for query in [
        "status=paid",
        "status=",
        "status=SUCCEEDED",
        "account_id=alice",
        "account_id=",
        "created_from=yesterday",
        "created_from=2020-01-01",
        "created_from=2020-01-01T10:00:00",
        "created_to=2020-13-01T10:00:00Z",
        "created_to=",
        "status=refunded&status=succeeded",
    ] {
        app.get(&format!("/payments?{query}"))
            .await
            .problem(400, "malformed_request");
    }
}

/// What is not there is 404, and what is no id at all is 400.
#[tokio::test]
async fn an_unknown_payment_is_not_found() {
    let app = App::start().await;
    let nobody = Uuid::now_v7();
    app.get(&format!("/payments/{nobody}")).await.problem(404, "not_found");
    app.get(&format!("/payments/{nobody}/refunds"))
        .await
        .problem(404, "not_found");
    app.get(&format!("/refunds/{nobody}")).await.problem(404, "not_found");
    app.get("/payments/4711").await.problem(400, "malformed_request");
    let braces = format!("/payments/%7B{nobody}%7D");
    app.get(&braces).await.problem(400, "malformed_request");
}

/// I16: Two equal requests under two keys are two payments. Without this somebody who buys the same twice gets it once.
#[tokio::test]
async fn equal_payments_under_two_keys_are_two_payments() {
    let app = App::start().await;
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let first = app.pay(&payer, &payee, "1.00").await.created();
    let second = app.pay(&payer, &payee, "1.00").await.created();
    assert_ne!(first, second);
    assert_eq!(app.balance(&payee).await, "2.00");
    assert_books_balance(&app.database);
}
