//! What is promised of every command, tried on every command.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::commands::Cast;
use crate::support::{App, assert_books_balance, new_key};

fn document() -> Value {
    serde_json::from_str(&std::fs::read_to_string("openapi/openapi.json").expect("openapi/openapi.json")).expect("JSON")
}

/// The members that a `POST` may have, as the document says.
fn members(document: &Value, post: &Value) -> BTreeSet<String> {
    let schema = &post["requestBody"]["content"]["application/json"]["schema"];
    let Some(reference) = schema["$ref"].as_str() else {
        return BTreeSet::new();
    };
    let schema = document.pointer(reference.trim_start_matches('#')).expect("the schema");
    let members = schema["properties"].as_object().expect("properties");
    members.keys().cloned().collect()
}

/// Without this a new command, or a new member of one, is under none of the promises below.
#[tokio::test]
async fn the_list_has_every_post_of_the_document_with_every_member() {
    let app = App::start().await;
    let document = document();
    let paths = document["paths"].as_object().expect("paths").values();
    let mut documented: Vec<(String, BTreeSet<String>)> = paths
        .filter_map(|path| path.get("post"))
        .map(|post| {
            let operation = post["operationId"].as_str().expect("an operationId").to_owned();
            (operation, members(&document, post))
        })
        .collect();
    let mut listed = Vec::new();
    for post in Cast::new(&app).await.each_command() {
        let body: BTreeSet<String> = post.body.as_object().expect("an object").keys().cloned().collect();
        let changed: BTreeSet<String> = post.changes.iter().map(|(field, _)| (*field).to_owned()).collect();
        assert_eq!(changed, body, "{}: each member is changed once", post.operation);
        listed.push((post.operation.to_owned(), body));
    }
    documented.sort();
    listed.sort();
    assert_eq!(listed, documented);
}

/// A route that forgot to go through the engine would execute its repeats; a field that was forgotten in the hash could be changed
/// under the same key, and nobody would notice (I4).
#[tokio::test]
async fn a_repeat_replays_and_a_change_of_any_single_field_is_refused() {
    let app = App::start().await;
    for post in Cast::new(&app).await.each_command() {
        let (path, body, key) = (&post.path, &post.body, new_key());
        let first = app.post(path, &key, body).await;
        assert_eq!(
            (first.status, first.is_replay()),
            (post.status, false),
            "{}",
            first.shown()
        );
        let transfers = app.database.number("SELECT count(*) FROM transfers");
        for (field, value) in &post.changes {
            let mut changed = body.clone();
            changed[field] = value.clone();
            let reused = app.post(path, &key, &changed).await;
            assert_eq!(
                (reused.status, reused.json()["code"].as_str()),
                (422, Some("idempotency_key_reused")),
                "{path} with {field} = {value}"
            );
        }
        let second = app.post(path, &key, body).await;
        assert!(second.is_replay(), "{path}");
        assert_eq!((second.status, &second.body), (first.status, &first.body), "{path}");
        assert_eq!(second.header("Location"), first.header("Location"), "{path}");
        assert_eq!(first.header("Location").is_some(), post.status == 201, "{path}");
        let afterwards = app.database.number("SELECT count(*) FROM transfers");
        assert_eq!(afterwards, transfers, "{path}");
    }
    assert_books_balance(&app.database);
}

/// I2: a key is used for one route only. Without this the second caller takes another command's answer for that to their own.
#[tokio::test]
async fn a_key_is_of_no_use_on_another_route() {
    let app = App::start().await;
    let commands = Cast::new(&app).await.each_command();
    for used in &commands {
        let key = new_key();
        let first = app.post(&used.path, &key, &used.body).await;
        assert_eq!(first.status, used.status, "{}", first.shown());
        for other in commands.iter().filter(|other| other.operation != used.operation) {
            let reused = app.post(&other.path, &key, &other.body).await;
            reused.problem(422, "idempotency_key_reused");
            assert!(!reused.is_replay());
        }
    }
    assert_books_balance(&app.database);
}

/// I3, I26, X13: without a key, without an API key, with one that may only read, or as another tenant, nothing is executed.
#[tokio::test]
async fn nothing_is_executed_without_key_caller_scope_or_ownership() {
    let app = App::start().await;
    let cast = Cast::new(&app).await;
    let reader = app.with_scopes("tenant-a", &["read"]);
    let stranger = app.with_api_key("nobody");
    let other_tenant = app.tenant("tenant-b");
    let rows = "SELECT (SELECT count(*) FROM accounts) + (SELECT count(*) FROM transfers) + (SELECT count(*) FROM idempotency_keys)";
    let (accounts, before) = (app.list("/accounts").await, app.database.number(rows));
    for post in cast.each_command() {
        let without = app.send(app.request(Method::POST, &post.path).json(&post.body)).await;
        without.problem(400, "idempotency_key_missing");
        assert_eq!(without.header("Idempotency-Key"), None);
        let blank = app.post(&post.path, " ", &post.body).await;
        blank.problem(400, "idempotency_key_missing");
        stranger
            .post(&post.path, &new_key(), &post.body)
            .await
            .problem(401, "unauthenticated");
        reader
            .post(&post.path, &new_key(), &post.body)
            .await
            .problem(403, "forbidden");
    }
    assert_eq!(app.database.number(rows), before);
    for post in cast.each_command() {
        // Whoever opens an account names nobody else's.
        if post.operation != "openAccount" {
            let reply = other_tenant.post(&post.path, &new_key(), &post.body).await;
            reply.problem(404, "not_found");
        }
    }
    assert_eq!(app.list("/accounts").await, accounts);
    assert_books_balance(&app.database);
}

/// A body means one thing, or is refused: no unknown member, none twice, no query parameter, nothing but an object. Without this
/// `"amout"` or `"capture": false` is ignored, and the caller believes it was heard.
#[tokio::test]
async fn every_body_is_read_strictly() {
    let app = App::start().await;
    let cast = Cast::new(&app).await;
    let keys = "SELECT count(*) FROM idempotency_keys";
    let before = app.database.number(keys);
    for post in cast.each_command() {
        let mut unknown = post.body.clone();
        unknown["colour"] = json!("blue");
        let problem = app
            .post(&post.path, &new_key(), &unknown)
            .await
            .problem(400, "unknown_parameter");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains("`colour`"), "{detail}");
        let twice = r#"{"amount": "1.00", "amount": "2.00"}"#;
        let problem = app
            .post_bytes(&post.path, twice)
            .await
            .problem(400, "malformed_request");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains("\"amount\""), "{detail}");
        for no_object in ["[]", "null", "7", "\"text\"", "{"] {
            app.post_bytes(&post.path, no_object)
                .await
                .problem(400, "malformed_request");
        }
        app.post(&format!("{}?colour=blue", post.path), &new_key(), &post.body)
            .await
            .problem(400, "unknown_parameter");
    }
    assert_eq!(app.database.number(keys), before);
}
