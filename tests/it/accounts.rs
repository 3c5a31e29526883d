//! `/accounts`: open, read, list, freeze, close.

use serde_json::{Value, json};

use crate::support::{App, assert_books_balance, new_key};

/// What was sent comes back, with what the service adds; absent optional values are `null`.
#[tokio::test]
async fn an_account_is_opened_and_read_back() {
    let app = App::start().await;
    let reply = app
        .post(
            "/accounts",
            &new_key(),
            &json!({"currency": "USD", "name": "Alice", "metadata": {"b": "2", "a": "1"}}),
        )
        .await;
    let id = reply.created();
    assert_eq!(reply.header("Location"), Some(format!("/accounts/{id}").as_str()));
    let mut account = reply.json();
    assert!(account["created_at"].as_str().is_some_and(|at| at.ends_with('Z')));
    account["created_at"] = Value::Null;
    let expected = json!({"id": id, "name": "Alice", "reference": null, "currency": "USD", "balance": "0.00",
        "status": "active", "metadata": {"a": "1", "b": "2"}, "created_at": null});
    assert_eq!(account, expected);
    assert_eq!(app.get(&format!("/accounts/{id}")).await.json(), reply.json());
    assert_books_balance(&app.database);
}
