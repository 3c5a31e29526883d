//! API keys: who may call, and what for.

use std::time::{Duration, Instant};

use payonce::http::hash_api_key;
use payonce::storage::api_keys::{self, Scope};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::client::payment;
use crate::support::{App, Client, Raw, assert_books_balance, new_key};

/// A key made by the program itself, and a client that uses it.
fn made_by_cli(app: &App, arguments: &[&str]) -> Client {
    let (status, key, stderr) = app.cli(&[&["api-key", "create", "--tenant=tenant-a", "--quiet"], arguments].concat());
    assert_eq!(status, 0, "{stderr}");
    app.with_api_key(key.trim())
}

/// Every way to come without a valid key is the same 401, which says how to do better. Without this a caller who forgot the
/// header looks for a mistake in the body.
#[tokio::test]
async fn who_brings_no_valid_key_is_not_let_in() {
    let app = App::start().await;
    let url = format!("{}/accounts", app.base);
    let bare = || app.http.get(&url);
    for request in [
        bare(),
        bare().header("Authorization", ""),
        bare().header("Authorization", "Bearer"),
        bare().header("Authorization", "Bearer "),
        bare().header("Authorization", app.api_key.as_str()),
        bare().header("Authorization", format!("Basic {}", app.api_key)),
        bare().bearer_auth("payonce_0000"),
        bare().bearer_auth(format!("{}0", app.api_key)),
        bare().bearer_auth(app.api_key.to_uppercase()),
        bare().header("Authorization", b"Bearer \xff\xfe".as_slice()),
        app.http.get(format!("{url}?api_key={}", app.api_key)),
    ] {
        let reply = app.send(request).await;
        let problem = reply.problem(401, "unauthenticated");
        assert_eq!(reply.header("WWW-Authenticate"), Some("Bearer"));
        assert!(!problem.to_string().contains(&app.api_key), "{problem}");
    }
    let lower = bare().header("Authorization", format!("bearer {}", app.api_key));
    app.send(lower).await.ok();
}

/// Between scheme and key stand one or more spaces, as HTTP has it, and nothing else. Without this a request is let in here that
/// a proxy on the way took for one without a key.
#[tokio::test]
async fn scheme_and_key_are_parted_by_spaces_alone() {
    let app = App::start().await;
    let key = &app.api_key;
    for (value, status) in [
        (format!("Bearer  {key}"), 200),
        (format!(" \t Bearer    {key} \t"), 200),
        (format!("BEARER {key}"), 200),
        (format!("Bearer\t{key}"), 401),
        (format!("Bearer \t{key}"), 401),
        (format!("Bearer\u{a0}{key}"), 401),
        (format!("Bearer {key}\u{a0}"), 401),
        (format!("Bearer {key}, Bearer {key}"), 401),
        (format!("Bearer {key} {key}"), 401),
        (format!("Bearer {key}="), 401),
        (format!("Bearer: {key}"), 401),
    ] {
        let mut raw = Raw::connect(&app).await;
        raw.send(format!(
            "GET /accounts HTTP/1.1\r\nHost: payonce\r\nAuthorization: {value}\r\n\r\n"
        ))
        .await;
        assert_eq!(raw.reply().await.expect("an answer").status, status, "{value:?}");
    }
}

/// Two API keys in one request are refused, even if they are equal; so are two media types. Without this the first one counts here, and
/// the last one, perhaps, for the proxy that checked it.
#[tokio::test]
async fn what_may_be_said_once_is_not_said_twice() {
    let app = App::start().await;
    let body = json!({"currency": "USD", "name": "Alice"});
    let bearer = |key: &str| format!("Bearer {key}");
    for (name, value) in [
        ("Authorization", bearer(&app.api_key)),
        ("Authorization", bearer(&app.tenant("tenant-b").api_key)),
        ("authorization", "Basic bm9ib2R5Og==".to_owned()),
        ("AUTHORIZATION", String::new()),
        ("Content-Type", "application/json".to_owned()),
        ("content-type", "text/plain".to_owned()),
    ] {
        let posted = app.post_request("/accounts", &new_key(), &body).header(name, &value);
        let mut requests = vec![posted];
        if name.eq_ignore_ascii_case("Authorization") {
            requests.push(app.request(Method::GET, "/accounts").header(name, &value));
            // Nor is a stranger told more.
            let stranger = app.with_api_key("payonce_stranger");
            requests.push(stranger.request(Method::GET, "/accounts").header(name, &value));
        }
        for request in requests {
            let problem = app.send(request).await.problem(400, "malformed_request");
            let detail = problem["detail"].as_str().expect("a detail");
            assert!(detail.contains(&format!("`{}`", name.to_lowercase())), "{detail}");
            assert!(!detail.contains(&app.api_key), "{detail}");
        }
    }
    assert_eq!(app.list("/accounts").await, Vec::<Value>::new());
}

/// Two lengths of one body are refused before anything is read, and the connection ends. Without this a proxy that believes the
/// other one takes the rest of the body for somebody's next request.
#[tokio::test]
async fn two_lengths_are_no_request() {
    let app = App::start().await;
    for lengths in [
        "Content-Length: 2\r\nContent-Length: 2\r\n",
        "Content-Length: 2\r\nContent-Length: 35\r\n",
        "Content-Length: 2, 2\r\n",
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let mut raw = Raw::connect(&app).await;
        raw.send(Raw::post_head(&app, "/accounts", &new_key(), lengths)).await;
        raw.send(r#"{"currency":"USD","name":"Alice"}  "#).await;
        let answer = String::from_utf8_lossy(&raw.rest().await).into_owned();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{lengths:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{lengths:?}: {answer}");
    }
    assert_eq!(app.list("/accounts").await, Vec::<Value>::new());
}

/// A stranger is told nothing else: not whether the account exists, not what is wrong with the body. Without this an
/// address can be probed without a key.
#[tokio::test]
async fn who_brings_no_valid_key_learns_nothing_else() {
    let app = App::start().await;
    let account = app.open("USD").await;
    let stranger = app.with_api_key("payonce_stranger");
    for path in [
        "/accounts?nonsense=1".to_owned(),
        "/accounts/nonsense".to_owned(),
        format!("/accounts/{account}"),
        format!("/accounts/{account}/entries?limit=0"),
        "/payments?limit=0".to_owned(),
        "/idempotency-keys/some-key".to_owned(),
    ] {
        stranger.get(&path).await.problem(401, "unauthenticated");
    }
    stranger
        .post_bytes("/payments", "{")
        .await
        .problem(401, "unauthenticated");
    let keyless = stranger.request(Method::POST, "/payments");
    stranger.send(keyless).await.problem(401, "unauthenticated");
}

/// I26: A key without the scope `write` posts nothing, not even a replay. Without this a dashboard's key pays.
#[tokio::test]
async fn a_read_only_key_posts_nothing() {
    let app = App::start().await;
    let reader = app.with_scopes("tenant-a", &["read"]);
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let key = new_key();
    app.pay_under(&key, &payer, &payee, "1.00").await.created();
    let problem = reader
        .pay_under(&key, &payer, &payee, "1.00")
        .await
        .problem(403, "forbidden");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("`write`")),
        "{problem}"
    );
    reader.pay(&payer, &payee, "1.00").await.problem(403, "forbidden");
    reader.deposit(&payer, "1.00").await.problem(403, "forbidden");
    reader.set(&payer, "freeze").await.problem(403, "forbidden");
    assert_eq!(reader.balance(&payee).await, "1.00");
    assert_books_balance(&app.database);
}

/// A key without the scope `read` reads nothing. Without this the key of a till shows all its tenant's customers.
#[tokio::test]
async fn a_write_only_key_reads_nothing() {
    let app = App::start().await;
    let writer = app.with_scopes("tenant-a", &["write"]);
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let paid = writer.pay(&payer, &payee, "1.00").await.created();
    for path in [
        "/accounts".to_owned(),
        "/payments".to_owned(),
        format!("/payments/{paid}"),
        format!("/accounts/{payer}/balance"),
        "/idempotency-keys/some-key".to_owned(),
    ] {
        let problem = writer.get(&path).await.problem(403, "forbidden");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains("`read`")),
            "{problem}"
        );
    }
    assert_books_balance(&app.database);
}

/// I26: A revoked key is out at the very next request, on every instance, though they all had just let it in. Without this a
/// stolen key goes on paying for as long as somebody remembers it.
#[tokio::test]
async fn a_revoked_key_is_out_at_the_next_request() {
    let app = App::setup().instances(2).start().await;
    for _ in 0..6 {
        let revoked = made_by_cli(&app, &[]);
        let clients = [revoked.at(&app.instances[0]), revoked.at(&app.instances[1])];
        for client in &clients {
            client.get("/accounts").await.ok();
        }
        let (status, _, stderr) = app.cli(&["api-key", "revoke", &revoked.api_key[..16]]);
        assert_eq!(status, 0, "{stderr}");
        for client in &clients {
            client.get("/accounts").await.problem(401, "unauthenticated");
        }
    }
}

/// I26: A revoked key gets no replay either. Without this whoever stole it still reads what was answered.
#[tokio::test]
async fn a_revoked_key_gets_no_replay() {
    let app = App::start().await;
    let revoked = made_by_cli(&app, &[]);
    let (payer, payee) = (app.open_with("10.00").await, app.open("USD").await);
    let key = new_key();
    revoked.pay_under(&key, &payer, &payee, "1.00").await.created();
    assert_eq!(app.cli(&["api-key", "revoke", &revoked.api_key]).0, 0);
    revoked
        .pay_under(&key, &payer, &payee, "1.00")
        .await
        .problem(401, "unauthenticated");
    assert!(app.pay_under(&key, &payer, &payee, "1.00").await.is_replay());
    assert_books_balance(&app.database);
}

/// Revoking one key leaves the tenant's others alone. Without this a rotation locks everybody out.
#[tokio::test]
async fn other_keys_of_the_tenant_go_on() {
    let app = App::start().await;
    let (old, new) = (made_by_cli(&app, &[]), made_by_cli(&app, &["--expires-in-days=1"]));
    for client in [&old, &new] {
        client.get("/accounts").await.ok();
    }
    assert_eq!(app.cli(&["api-key", "revoke", &old.api_key]).0, 0);
    old.get("/accounts").await.problem(401, "unauthenticated");
    new.get("/accounts").await.ok();
}

/// The program makes keys with just the scopes that were asked for. Without this `--scopes read` would be a wish.
#[tokio::test]
async fn a_key_has_the_scopes_it_was_made_with() {
    let app = App::start().await;
    let reader = made_by_cli(&app, &["--scopes=read"]);
    reader.get("/accounts").await.ok();
    let body = json!({"currency": "USD", "name": "Alice"});
    reader
        .post("/accounts", &new_key(), &body)
        .await
        .problem(403, "forbidden");
    let writer = made_by_cli(&app, &["--scopes=write"]);
    writer.post("/accounts", &new_key(), &body).await.created();
    writer.get("/accounts").await.problem(403, "forbidden");
}

/// I26: A key that has expired is out, and one that expires while it is in use goes out at its time though it was remembered.
/// Without this "valid for a day" means "until the next restart".
#[tokio::test]
async fn an_expired_key_is_out() {
    let app = App::start().await;
    let valid_for = |seconds| {
        let key = format!("payonce_{}", new_key());
        let (hash, prefix) = (hash_api_key(&key), &key[..16]);
        let created = api_keys::create(
            &mut app.database.connect(),
            "tenant-a",
            prefix,
            &hash,
            &[Scope::Read],
            Some(seconds),
        );
        assert!(created.expect("a key"));
        app.with_api_key(&key)
    };
    valid_for(-1).get("/accounts").await.problem(401, "unauthenticated");
    valid_for(3600).get("/accounts").await.ok();
    let short = valid_for(3);
    short.get("/accounts").await.ok();
    let deadline = Instant::now() + Duration::from_secs(20);
    while short.get("/accounts").await.status == 200 {
        assert!(Instant::now() < deadline, "the key does not expire");
    }
    short.get("/accounts").await.problem(401, "unauthenticated");
}

/// Probes, metrics and documents need no key: orchestrators and readers have none.
#[tokio::test]
async fn probes_and_documents_need_no_key() {
    let app = App::start().await;
    for path in [
        "/health/live",
        "/health/ready",
        "/metrics",
        "/openapi.json",
        "/swagger-ui/",
        "/problems/not_found",
    ] {
        let reply = app.send(app.http.get(format!("{}{path}", app.base))).await;
        assert_eq!(reply.status, 200, "{path}");
    }
}

/// The key is nowhere in clear: not in the database, not in `/metrics`. Without this a backup is as good as a key.
#[tokio::test]
async fn an_api_key_is_stored_nowhere() {
    let app = App::start().await;
    let made = made_by_cli(&app, &[]);
    let (payer, payee) = (made.open_with("10.00").await, made.open("USD").await);
    let body = payment(&payer, &payee, "1.00");
    made.post("/payments", &new_key(), &body).await.created();
    let secret = &made.api_key[16..];
    for table in [
        "tenants",
        "api_keys",
        "idempotency_keys",
        "accounts",
        "payments",
        "transfers",
    ] {
        let found = format!("SELECT count(*) FROM {table} AS t WHERE t::text LIKE '%{secret}%'");
        assert_eq!(app.database.number(&found), 0, "{table}");
    }
    let metrics = app.get("/metrics").await;
    assert!(!String::from_utf8_lossy(&metrics.body).contains(secret));
    assert_books_balance(&app.database);
}
