//! What was acknowledged is there for everybody who reads, at once and on each instance.

use serde_json::Value;

use crate::caller::Caller;
use crate::model::{Effect, cents};

impl Caller {
    pub async fn read(&mut self) {
        match self.line.random.u8(0..4) {
            0 => self.read_account().await,
            1 => self.read_statement().await,
            2 => self.read_payment().await,
            _ => self.read_key().await,
        }
    }

    async fn read_account(&mut self) {
        let own = self.own_account();
        let body = self.read_body(&format!("/accounts/{}", own.id)).await;
        let found = (cents_of(&body, "balance"), body.get("status").and_then(Value::as_str));
        let right = (Some(own.cents), Some(own.status.name()));
        self.must_be(&format!("account {}", own.id), &found, &right);
    }

    /// Each balance is the one before plus the amount; the newest is the account's.
    async fn read_statement(&mut self) {
        let own = self.own_account();
        let body = self.read_body(&format!("/accounts/{}/entries?limit=10", own.id)).await;
        let entries = body.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut right = Some(own.cents);
        for entry in &entries {
            let found = cents_of(entry, "balance_after");
            self.must_be(&format!("statement of {}", own.id), &found, &right);
            right = found
                .zip(cents_of(entry, "amount"))
                .map(|(after, amount)| after - amount);
        }
        if entries.len() < 10 {
            self.must_be(&format!("beginning of the statement of {}", own.id), &right, &Some(0));
        }
    }

    async fn read_payment(&mut self) {
        let number = self.line.random.usize(0..self.payments.len().max(1));
        let Some(payment) = self.payments.get(number).copied() else {
            return;
        };
        let body = self.read_body(&format!("/payments/{}", payment.id)).await;
        let found = (cents_of(&body, "amount"), cents_of(&body, "refunded_amount"));
        let right = (Some(payment.cents), Some(payment.refunded));
        self.must_be(&format!("payment {}", payment.id), &found, &right);
    }

    async fn read_key(&mut self) {
        let Some(told) = self.history.told.last() else {
            return;
        };
        let (key, status, effect) = (told.key, told.status, told.effect);
        let body = self.read_body(&format!("/idempotency-keys/{key}")).await;
        let found = body.pointer("/response/status").and_then(Value::as_u64);
        self.must_be(&format!("status stored under {key}"), &found, &Some(u64::from(status)));
        if let Some(made) = effect.map(Effect::resource) {
            let resource = body.get("resource").and_then(Value::as_str).unwrap_or_default();
            let names_it = resource.ends_with(&made.to_string());
            self.must_be(&format!("resource {resource:?} of {key} is {made}"), &names_it, &true);
        }
    }

    async fn read_body(&mut self, path: &str) -> Value {
        let answer = self.line.get(path).await;
        answer
            .filter(|answer| answer.status == 200)
            .map(|answer| answer.json())
            .unwrap_or_default()
    }

    fn must_be<T: PartialEq + std::fmt::Debug>(&self, what: &str, found: &T, right: &T) {
        if found != right {
            self.line
                .tally
                .violation(format!("read after write, {what}: {found:?} instead of {right:?}"));
        }
    }
}

/// A sum of money in a body.
fn cents_of(body: &Value, member: &str) -> Option<i64> {
    cents(body.get(member)?.as_str()?)
}
