//! Problems: each code of the table once over HTTP, and what every one of them looks like.

use std::time::{Duration, Instant};

use diesel::PgConnection;
use diesel::connection::SimpleConnection;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use payonce::api::Code;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use crate::support::app::until;
use crate::support::client::payment;
use crate::support::{App, Client, Raw, Reply, assert_books_balance, new_key};

/// A session that keeps an account's row locked until it is dropped.
fn lock_account(app: &App, account: &str) -> PgConnection {
    let mut session = app.database.connect();
    session
        .batch_execute(&format!(
            "BEGIN; SELECT FROM accounts WHERE id = '{account}' FOR UPDATE"
        ))
        .expect("the lock");
    session
}

/// A payer with 10.00, and a payee.
async fn two_accounts(client: &Client) -> (String, String) {
    (client.open_with("10.00").await, client.open("USD").await)
}

/// Has the service answer with this code. Whoever adds a code adds a line
/// here, or the tests do not compile.
async fn provoke(app: &App, code: Code) -> Reply {
    let (payer, payee) = two_accounts(app).await;
    match code {
        Code::MalformedRequest => app.post_bytes("/payments", "{").await,
        Code::IdempotencyKeyMissing => app.send(app.request(Method::POST, "/payments")).await,
        Code::IdempotencyKeyInvalid => app.post("/payments", "two words", &json!({})).await,
        Code::UnknownParameter => app.get("/payments?colour=blue").await,
        Code::Unauthenticated => app.with_api_key("nobody").get("/payments").await,
        Code::InsufficientFunds => app.pay(&payer, &payee, "10.01").await,
        Code::Forbidden => app.with_scopes("tenant-a", &["write"]).get("/payments").await,
        Code::NotFound => app.get(&format!("/payments/{}", Uuid::now_v7())).await,
        Code::MethodNotAllowed => app.send(app.request(Method::DELETE, "/payments")).await,
        Code::RequestTimeout => body_cut_short(app).await,
        Code::IdempotencyKeyInUse => key_in_use().await,
        Code::AccountFrozen => {
            app.set(&payer, "freeze").await.ok();
            app.pay(&payer, &payee, "1.00").await
        }
        Code::AccountClosed => {
            app.set(&payee, "close").await.ok();
            app.pay(&payer, &payee, "1.00").await
        }
        Code::AccountNotEmpty => app.set(&payer, "close").await,
        Code::IdempotencyKeyExpired => {
            let key = new_key();
            app.pay_under(&key, &payer, &payee, "1.00").await.created();
            app.age_keys(25);
            app.pay_under(&key, &payer, &payee, "1.00").await
        }
        Code::RefundedAmountChanged => {
            let paid = app.pay(&payer, &payee, "1.00").await.created();
            let body = json!({"expected_refunded_amount": "0.50"});
            app.post(&format!("/payments/{paid}/refunds"), &new_key(), &body).await
        }
        Code::BodyTooLarge => app.post_bytes("/payments", " ".repeat(64 * 1024 + 1)).await,
        Code::UnsupportedMediaType => {
            let request = app
                .request(Method::POST, "/payments")
                .header("Idempotency-Key", new_key());
            app.send(request.header("Content-Type", "text/plain").body("{}")).await
        }
        Code::ValidationFailed => app.pay(&payer, &payee, "0").await,
        Code::IdempotencyKeyReused => {
            let key = new_key();
            app.pay_under(&key, &payer, &payee, "1.00").await.created();
            app.pay_under(&key, &payer, &payee, "2.00").await
        }
        Code::SameAccount => app.pay(&payer, &payer, "1.00").await,
        Code::CurrencyMismatch => app.pay(&payer, &app.open("EUR").await, "1.00").await,
        Code::RefundExceedsRemaining => {
            let paid = app.pay(&payer, &payee, "1.00").await.created();
            app.refund(&paid, Some("1.01")).await
        }
        Code::BalanceOverflow => app.deposit(&payer, "999999999999999.99").await,
        Code::RateLimited => rate_limited().await,
        Code::InternalError => internal_error().await,
        Code::Overloaded => overloaded().await,
        Code::Unavailable => unavailable().await,
    }
}

/// The client has no more to say, and has promised more.
async fn body_cut_short(app: &App) -> Reply {
    let mut connection = Raw::connect(app).await;
    let head = Raw::post_head(app, "/payments", &new_key(), "Content-Length: 100\r\n");
    connection.send(head + "{").await;
    connection.stream.shutdown().await.expect("closed for writing");
    connection.reply().await.expect("an answer")
}

/// One of two equal requests waits for a lock, the other one for it: for 200 ms.
async fn key_in_use() -> Reply {
    let setup = App::setup().flag("--idempotency-wait=200ms").flag("--lock-timeout=5s");
    let app = setup.start().await;
    let (payer, payee) = two_accounts(&app).await;
    let lock = lock_account(&app, &payer);
    let key = new_key();
    let mut paying: FuturesUnordered<_> = (0..2).map(|_| app.pay_under(&key, &payer, &payee, "1.00")).collect();
    let refused = paying.next().await.expect("an answer");
    drop(lock);
    paying.next().await.expect("an answer").created();
    assert_books_balance(&app.database);
    refused
}

async fn rate_limited() -> Reply {
    let app = App::setup().flag("--rate-limit=1").start().await;
    let replies = join_all((0..5).map(|_| app.get("/accounts"))).await;
    let refused = replies.into_iter().find(|reply| reply.status != 200);
    refused.expect("five requests in one second are more than one")
}

/// A constraint that the rules know nothing of.
async fn internal_error() -> Reply {
    let app = App::start().await;
    let (payer, payee) = two_accounts(&app).await;
    app.database
        .run("ALTER TABLE payments ADD CONSTRAINT surprise CHECK (amount <> 6.66)");
    let reply = app.pay(&payer, &payee, "6.66").await;
    assert_eq!(app.balance(&payer).await, "10.00");
    app.pay(&payer, &payee, "6.67").await.created();
    assert_books_balance(&app.database);
    reply
}

/// One worker that waits for a lock, one place in the queue.
async fn overloaded() -> Reply {
    let setup = App::setup().flag("--queue-max=1").flag("--engine-workers=1");
    let app = setup.flag("--batch-max=1").flag("--lock-timeout=5s").start().await;
    let (payer, payee) = two_accounts(&app).await;
    let lock = lock_account(&app, &payer);
    let mut paying: FuturesUnordered<_> = (0..5).map(|_| app.pay(&payer, &payee, "1.00")).collect();
    let refused = paying.next().await.expect("an answer");
    drop(lock);
    while let Some(reply) = paying.next().await {
        assert!([201, 503].contains(&reply.status), "{}", reply.shown());
    }
    assert_books_balance(&app.database);
    refused
}

/// The database ends all sessions and accepts none.
async fn unavailable() -> Reply {
    let app = App::start().await;
    let (payer, payee) = two_accounts(&app).await;
    let key = new_key();
    app.database.lock_out();
    let reply = app.pay_under(&key, &payer, &payee, "1.00").await;
    app.database.let_in();
    app.until_ready().await;
    let again = app.pay_under(&key, &payer, &payee, "1.00").await;
    again.created();
    assert!(!again.is_replay());
    assert_books_balance(&app.database);
    reply
}

/// X11: Each code of the table is answered with its row's status, title and `retryable`, in the form that every problem has.
/// Without this the table in the documents is a wish.
#[tokio::test]
async fn every_code_is_answered_as_its_row_says() {
    let app = App::start().await;
    for &code in Code::ALL {
        let row = code.row();
        let reply = Box::pin(provoke(&app, code)).await;
        let mut problem = reply.problem(row.status, row.code);
        assert_eq!(
            reply.header("X-Request-Id"),
            problem["instance"].as_str(),
            "{}",
            row.code
        );
        let detail = problem["detail"].take();
        assert!(
            detail.as_str().is_some_and(|detail| detail.len() > 20),
            "{}: {detail}",
            row.code
        );
        let mut expected = json!({"type": format!("urn:payonce:problem:{}", row.code), "title": row.title,
            "status": row.status, "detail": null, "instance": problem["instance"], "code": row.code, "retryable": row.retryable});
        for member in members_of(code) {
            assert!(problem.get(member).is_some(), "{}: no {member} in {problem}", row.code);
            expected[member] = problem[member].clone();
        }
        assert_eq!(problem, expected);

        let link = reply.header("Link").expect("Link");
        let address = link
            .strip_suffix(">; rel=\"describedby\"")
            .and_then(|link| link.strip_prefix('<'));
        let page = app.get(address.unwrap_or_else(|| panic!("{link}"))).await;
        assert_eq!(page.status, 200, "{link}");
        assert!(page.shown().contains(row.code), "{}", page.shown());

        let seconds = reply
            .header("Retry-After")
            .map(|seconds| seconds.parse::<u32>().expect("seconds"));
        let waits = [
            Code::RequestTimeout,
            Code::IdempotencyKeyInUse,
            Code::RateLimited,
            Code::Overloaded,
            Code::Unavailable,
        ];
        assert_eq!(
            seconds.is_some_and(|seconds| seconds >= 1),
            waits.contains(&code),
            "{}",
            row.code
        );
        assert_eq!(
            reply.header("Allow"),
            (code == Code::MethodNotAllowed).then_some("GET, HEAD, POST")
        );
    }
    assert_books_balance(&app.database);
}

/// The members that only problems of this code have.
fn members_of(code: Code) -> &'static [&'static str] {
    match code {
        Code::ValidationFailed => &["errors"],
        Code::RefundExceedsRemaining => &["refundable_amount"],
        Code::RefundedAmountChanged => &["refunded_amount"],
        Code::IdempotencyKeyExpired => &["resource"],
        _ => &[],
    }
}

/// Codes are names for good: one each, and `type` ends in it. Without this a client that switches on them breaks.
#[test]
fn codes_are_unique() {
    let names: std::collections::BTreeSet<_> = Code::ALL.iter().map(|code| code.row().code).collect();
    assert_eq!(names.len(), Code::ALL.len());
    let titles: std::collections::BTreeSet<_> = Code::ALL.iter().map(|code| code.row().title).collect();
    assert_eq!(titles.len(), Code::ALL.len());
}

/// A request that is refused, or not, and what it is answered.
struct Case {
    path: String,
    body: Value,
    alone: (u16, Value),
}

/// A problem without what differs each time: the request's id.
fn settled(reply: &Reply) -> (u16, Value) {
    let mut body = reply.json();
    if reply.status == 201 {
        return (reply.status, body["amount"].clone());
    }
    body["instance"] = Value::Null;
    (reply.status, body)
}

/// X11: A command is answered in a batch with others exactly as alone. Without this a refusal takes its neighbours along, or
/// gets a neighbour's answer.
#[tokio::test]
async fn a_refusal_is_the_same_alone_and_in_a_batch() {
    let app = App::setup()
        .flag("--engine-workers=1")
        .flag("--lock-timeout=5s")
        .start()
        .await;
    let (payer, payee) = (app.open_with("100.00").await, app.open("USD").await);
    let (frozen, closed, euros) = (
        app.open_with("5.00").await,
        app.open("USD").await,
        app.open("EUR").await,
    );
    app.set(&frozen, "freeze").await.ok();
    app.set(&closed, "close").await.ok();
    let refunded = app.pay(&payer, &payee, "9.00").await.created();
    app.refund(&refunded, Some("4.00")).await.created();
    let nobody = Uuid::now_v7().to_string();
    let (refunds, deposits) = (
        format!("/payments/{refunded}/refunds"),
        format!("/accounts/{payer}/deposits"),
    );
    let pay = |payer: &str, payee: &str, amount: &str| ("/payments".to_owned(), payment(payer, payee, amount));
    let asked = [
        pay(&payer, &payee, "1.00"),
        pay(&payer, &payee, "100000.00"),
        pay(&frozen, &payee, "1.00"),
        pay(&payer, &payee, "2.00"),
        pay(&closed, &payee, "1.00"),
        pay(&payer, &closed, "1.00"),
        pay(&payer, &euros, "1.00"),
        pay(&nobody, &payee, "1.00"),
        pay(&payer, &nobody, "1.00"),
        (format!("/accounts/{frozen}/close"), json!({})),
        (format!("/accounts/{nobody}/close"), json!({})),
        (format!("/accounts/{closed}/unfreeze"), json!({})),
        (deposits, json!({"amount": "999999999999999.99", "currency": "USD"})),
        (refunds.clone(), json!({"amount": "5.01"})),
        (refunds.clone(), json!({"amount": "0.001"})),
        (refunds, json!({"expected_refunded_amount": "3.99"})),
        (format!("/payments/{nobody}/refunds"), json!({})),
        pay(&payer, &payee, "3.00"),
    ];
    let mut cases = Vec::new();
    for (path, body) in asked {
        let alone = settled(&app.post(&path, &new_key(), &body).await);
        cases.push(Case { path, body, alone });
    }

    // Something that occupies the one worker until all the others wait.
    let (blocked, other) = (app.open_with("1.00").await, app.open("USD").await);
    let lock = lock_account(&app, &blocked);
    let (client, from, to) = (app.client.clone(), blocked.clone(), other.clone());
    let blocker = tokio::spawn(async move { client.pay(&from, &to, "1.00").await });
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("the worker waits", || app.database.number(waiting) == 1).await;
    let batch = join_all(cases.iter().map(async |case| {
        let reply = app.post(&case.path, &new_key(), &case.body).await;
        (case, settled(&reply))
    }));
    let release = async {
        until_queued(&app, cases.len()).await;
        drop(lock);
    };
    let (answers, ()) = tokio::join!(batch, release);
    blocker.await.expect("an answer").created();
    for (case, answer) in answers {
        assert_eq!(answer, case.alone, "{} {}", case.path, case.body);
    }
    let metrics = app.get("/metrics").await.shown();
    let large = bucket(&metrics, "+Inf") - bucket(&metrics, "16");
    assert_eq!(large, 1, "all of them were one batch: {metrics}");
    assert_books_balance(&app.database);
}

fn bucket(metrics: &str, limit: &str) -> u32 {
    let name = format!("payonce_batch_size_bucket{{le=\"{limit}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {name}: {metrics}"))
        .parse()
        .expect("a number")
}

/// Waits until so many commands wait for a worker.
async fn until_queued(client: &Client, number: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let line = format!("payonce_queue_length {number}");
    while !client.get("/metrics").await.shown().lines().any(|shown| shown == line) {
        assert!(Instant::now() < deadline, "there are never {number} commands waiting");
    }
}

/// An address that does not exist is 404 and a problem like any other, with or without a key. Without this a client that parses
/// every answer as JSON stumbles over a typo.
#[tokio::test]
async fn an_unknown_address_is_not_found() {
    let app = App::start().await;
    for path in [
        "/index.html",
        "/nowhere",
        "/payments/",
        "//payments",
        "/accounts/1/2/3",
        "/Payments",
        "/v1/payments",
        "/health",
        "/openapi.yaml",
    ] {
        app.get(path).await.problem(404, "not_found");
        app.send(app.http.get(format!("{}{path}", app.base)))
            .await
            .problem(404, "not_found");
        app.post(path, &new_key(), &json!({})).await.problem(404, "not_found");
    }
}

/// What a refusal was stored as comes again byte for byte, with the headers that a problem has: `Link`, `Content-Type`. Its
/// `instance` names the first request, `X-Request-Id` this one.
#[tokio::test]
async fn a_replayed_problem_has_the_headers_of_a_problem() {
    let app = App::start().await;
    let (payer, payee) = two_accounts(&app).await;
    let key = new_key();
    let first = app.pay_under(&key, &payer, &payee, "99.00").await;
    let again = app.pay_under(&key, &payer, &payee, "99.00").await;
    first.problem(402, "insufficient_funds");
    again.problem(402, "insufficient_funds");
    assert!(again.is_replay() && !first.is_replay());
    assert_eq!(again.body, first.body);
    assert_eq!(again.header("Link"), first.header("Link"));
    assert_ne!(again.header("X-Request-Id"), first.header("X-Request-Id"));
    assert_books_balance(&app.database);
}

/// Every answer to a request with a valid key echoes the key, bare, also a refusal and an answer that was never stored. Without
/// this a client that pipelines can't tell which of its operations was answered.
#[tokio::test]
async fn every_answer_echoes_a_valid_key() {
    let app = App::start().await;
    let (payer, payee) = two_accounts(&app).await;
    let body = payment(&payer, &payee, "1.00");
    let stranger = app.with_api_key("nobody");
    for (reply, status) in [
        (app.post("/payments", "key-1", &body).await, 201),
        (app.post("/payments", "key-1", &body).await, 201),
        (app.post("/payments", "\"key-1\"", &body).await, 201),
        (app.post("/payments", "key-1", &json!({})).await, 422),
        (app.post("/payments?a=b", "key-1", &body).await, 400),
        (stranger.post("/payments", "key-1", &body).await, 401),
        (app.post("/nowhere", "key-1", &body).await, 404),
    ] {
        assert_eq!((reply.status, reply.header("Idempotency-Key")), (status, Some("key-1")));
    }
    let invalid = app.post("/payments", "two words", &body).await;
    assert_eq!((invalid.status, invalid.header("Idempotency-Key")), (400, None));
    assert_books_balance(&app.database);
}
