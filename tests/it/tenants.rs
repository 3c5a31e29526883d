//! Tenants: nothing of one is ever visible to another.

use serde_json::{Value, json};

use crate::support::client::{ids, payment};
use crate::support::{App, Client, assert_books_balance, new_key};

/// What tenant A has: an account with money, one that was paid, a payment, a refund.
struct Things {
    payer: String,
    payee: String,
    payment: String,
    refund: String,
    deposit: String,
    withdrawal: String,
}

async fn things_of(a: &Client) -> Things {
    let payer = a.open("USD").await;
    let deposit = a.deposit(&payer, "100.00").await.created();
    let payee = a.open("USD").await;
    let payment = a.pay_under("the-key", &payer, &payee, "10.00").await.created();
    let refund = a.refund(&payment, Some("1.00")).await.created();
    let withdrawal = a.withdraw(&payer, "1.00").await.created();
    Things {
        payer,
        payee,
        payment,
        refund,
        deposit,
        withdrawal,
    }
}

/// X13: Whatever B reads of A's is not found, in the same words as what does not exist. Without this an id that leaked is
/// enough to look into another company's books.
#[tokio::test]
async fn nothing_of_another_tenant_can_be_read() {
    let app = App::start().await;
    let b = app.tenant("tenant-b");
    let of_a = things_of(&app).await;
    for path in [
        format!("/accounts/{}", of_a.payer),
        format!("/accounts/{}/entries", of_a.payer),
        format!("/accounts/{}/balance", of_a.payer),
        format!("/payments/{}", of_a.payment),
        format!("/payments/{}/refunds", of_a.payment),
        format!("/refunds/{}", of_a.refund),
        format!("/deposits/{}", of_a.deposit),
        format!("/withdrawals/{}", of_a.withdrawal),
        "/idempotency-keys/the-key".to_owned(),
    ] {
        app.read(&path).await;
        b.get(&path).await.problem(404, "not_found");
    }
    assert_books_balance(&app.database);
}

/// X13: B's lists have nothing of A's, whatever they are asked for. Without this a filter looks past the tenant.
#[tokio::test]
async fn nothing_of_another_tenant_is_listed() {
    let app = App::start().await;
    let b = app.tenant("tenant-b");
    let of_a = things_of(&app).await;
    for path in [
        "/accounts".to_owned(),
        "/payments".to_owned(),
        format!("/payments?account_id={}", of_a.payer),
        "/payments?status=partially_refunded".to_owned(),
        "/payments?idempotency_key=the-key".to_owned(),
        "/payments?created_from=2000-01-01T00:00:00Z".to_owned(),
    ] {
        assert_ne!(app.list(&path).await, Vec::<Value>::new(), "{path}");
        assert_eq!(b.list(&path).await, Vec::<Value>::new(), "{path}");
    }
    assert_books_balance(&app.database);
}

/// X13: B can't touch A's: not pay from it or to it, not refund, not move money, not freeze or close. Without this an id is a key
/// to the safe.
#[tokio::test]
async fn nothing_of_another_tenant_can_be_changed() {
    let app = App::start().await;
    let b = app.tenant("tenant-b");
    let of_a = things_of(&app).await;
    let of_b = b.open_with("50.00").await;
    let before = app.list("/accounts").await;
    b.pay(&of_a.payer, &of_b, "1.00").await.problem(404, "not_found");
    b.pay(&of_b, &of_a.payer, "1.00").await.problem(404, "not_found");
    b.pay(&of_a.payer, &of_a.payee, "1.00").await.problem(404, "not_found");
    b.refund(&of_a.payment, None).await.problem(404, "not_found");
    b.deposit(&of_a.payer, "1.00").await.problem(404, "not_found");
    b.withdraw(&of_a.payer, "1.00").await.problem(404, "not_found");
    for what in ["freeze", "unfreeze", "close"] {
        b.set(&of_a.payer, what).await.problem(404, "not_found");
    }
    assert_eq!(app.list("/accounts").await, before);
    assert_eq!(b.balance(&of_b).await, "50.00");
    assert_books_balance(&app.database);
}

/// X13: A cursor of A's is of no use to B. Without this a cursor tells when, and under which id, a stranger was paid.
#[tokio::test]
async fn a_cursor_of_another_tenant_is_refused() {
    let app = App::start().await;
    let b = app.tenant("tenant-b");
    for client in [&app.client, &b] {
        for _ in 0..3 {
            client.open("USD").await;
        }
    }
    let page = app.read("/accounts?limit=1").await;
    let cursor = page["next_cursor"].as_str().expect("a cursor");
    let path = format!("/accounts?limit=1&cursor={cursor}");
    app.read(&path).await;
    b.get(&path).await.problem(400, "malformed_request");
}

/// I24: Two tenants may use one key for one and the same body: two payments, and neither hears of the other. Without this a
/// tenant that counts 1, 2, 3 gets the answers of another one.
#[tokio::test]
async fn a_key_belongs_to_its_tenant() {
    let app = App::start().await;
    let b = app.tenant("tenant-b");
    let mut replies = Vec::new();
    for client in [&app.client, &b] {
        let opened = client
            .post("/accounts", "key-1", &json!({"currency": "USD", "name": "Alice"}))
            .await;
        assert!(!opened.is_replay());
        let (payer, payee) = (opened.created(), client.open("USD").await);
        client.deposit(&payer, "10.00").await.created();
        let paid = client.pay_under("key-2", &payer, &payee, "1.00").await;
        assert!(!paid.is_replay());
        assert_eq!(ids(&client.list("/payments").await), [paid.created()]);
        let record = client.read("/idempotency-keys/key-2").await;
        assert_eq!(record["response"]["body"], paid.json());
        replies.push((opened.created(), paid.created()));
    }
    assert_ne!(replies[0].0, replies[1].0);
    assert_ne!(replies[0].1, replies[1].1);
    assert_books_balance(&app.database);
}

/// I24: Not even when the first is still running: same key, same body, two tenants at once. Without the tenant in it, the
/// table of running requests joins strangers.
#[tokio::test]
async fn equal_requests_of_two_tenants_at_once_are_two() {
    let app = App::start().await;
    let b = app.tenant("tenant-b");
    for round in 0..20 {
        let (key, body) = (format!("key-{round}"), json!({"currency": "USD", "name": "Alice"}));
        let (first, second) = tokio::join!(app.post("/accounts", &key, &body), b.post("/accounts", &key, &body));
        assert_ne!(first.created(), second.created());
        assert!(!first.is_replay() && !second.is_replay());
    }
    assert_eq!(app.list("/accounts").await.len(), 20);
    assert_eq!(b.list("/accounts").await.len(), 20);
}

/// I25: Keys are the tenant's, not the API key's. Without this a rotated API key pays again.
#[tokio::test]
async fn a_rotated_api_key_replays() {
    let app = App::start().await;
    let rotated = app.tenant("tenant-a");
    assert_ne!(rotated.api_key, app.api_key);
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let body = payment(&payer, &payee, "1.00");
    let key = new_key();
    let first = app.post("/payments", &key, &body).await;
    let again = rotated.post("/payments", &key, &body).await;
    assert!(again.is_replay());
    assert_eq!(again.body, first.body);
    assert_eq!(app.balance(&payee).await, "1.00");
    assert_books_balance(&app.database);
}
