//! Every command there is, once: what holds for all of them is tried on this list. A test compares it with the OpenAPI document, so
//! a new command fails until it is here, and with that is under every promise.

use serde_json::{Value, json};

use super::Client;

/// Whom the commands are about.
pub struct Cast {
    /// With 50.00 left.
    pub payer: String,
    pub payee: String,
    /// Not named in any command, with 100.00.
    pub third: String,
    /// Without money.
    pub empty: String,
    /// 50.00 from payer to payee.
    pub payment: String,
}

/// A command as it is posted.
pub struct Post {
    /// The `operationId` of the document.
    pub operation: &'static str,
    pub path: String,
    /// With every member that it may have.
    pub body: Value,
    /// Of the first answer.
    pub status: u16,
    /// A member with another value: that makes it another request.
    pub changes: Vec<(&'static str, Value)>,
}

impl Cast {
    pub async fn new(client: &Client) -> Self {
        let (payer, payee, third) = (
            client.open_with("100.00").await,
            client.open("USD").await,
            client.open_with("100.00").await,
        );
        let payment = client.pay(&payer, &payee, "50.00").await.created();
        let empty = client.open("USD").await;
        Self {
            payer,
            payee,
            third,
            empty,
            payment,
        }
    }

    /// All commands. They can be carried out in this order.
    pub fn each_command(&self) -> Vec<Post> {
        let Self {
            payer,
            payee,
            third,
            empty,
            payment,
        } = self;
        let bare = |operation, path| Post {
            operation,
            path,
            body: json!({}),
            status: 200,
            changes: vec![],
        };
        let made = |operation, path: String, body, changes| Post {
            operation,
            path,
            body,
            status: 201,
            changes,
        };
        let metadata = [
            json!({"a": "2"}),
            json!({"b": "1"}),
            json!({"a": "1", "b": "2"}),
            json!({}),
            Value::Null,
        ];
        let metadata = || metadata.iter().map(|value| ("metadata", value.clone()));
        let movement = json!({"amount": "1.00", "currency": "USD", "description": "d"});
        let other_movement = vec![
            ("amount", json!("2.00")),
            ("currency", json!("EUR")),
            ("description", json!("e")),
            ("description", Value::Null),
        ];
        let other_account = vec![
            ("currency", json!("EUR")),
            ("name", json!("m")),
            ("reference", json!("s")),
            ("reference", Value::Null),
        ];
        let other_pay = vec![
            ("payer_account_id", json!(third)),
            ("payee_account_id", json!(third)),
            ("amount", json!("1.01")),
            ("currency", json!("EUR")),
            ("description", json!("D")),
            ("description", Value::Null),
            ("reference", json!("R")),
            ("reference", Value::Null),
        ];
        let other_refund = vec![
            ("amount", json!("1.01")),
            ("amount", Value::Null),
            ("reason", json!("s")),
            ("reason", Value::Null),
            ("expected_refunded_amount", json!("0.01")),
            ("expected_refunded_amount", Value::Null),
        ];
        vec![
            made(
                "openAccount",
                "/accounts".to_owned(),
                json!({"currency": "USD", "name": "n", "reference": "r", "metadata": {"a": "1"}}),
                other_account.into_iter().chain(metadata()).collect(),
            ),
            made(
                "createDeposit",
                format!("/accounts/{payer}/deposits"),
                movement.clone(),
                other_movement.clone(),
            ),
            made(
                "createWithdrawal",
                format!("/accounts/{payer}/withdrawals"),
                movement,
                other_movement,
            ),
            bare("freezeAccount", format!("/accounts/{payer}/freeze")),
            bare("unfreezeAccount", format!("/accounts/{payer}/unfreeze")),
            bare("closeAccount", format!("/accounts/{empty}/close")),
            made(
                "createPayment",
                "/payments".to_owned(),
                json!({"payer_account_id": payer, "payee_account_id": payee, "amount": "1.00", "currency": "USD",
                    "description": "d", "reference": "r", "metadata": {"a": "1"}}),
                other_pay.into_iter().chain(metadata()).collect(),
            ),
            made(
                "createRefund",
                format!("/payments/{payment}/refunds"),
                json!({"amount": "1.00", "reason": "r", "expected_refunded_amount": "0.00"}),
                other_refund,
            ),
        ]
    }
}
