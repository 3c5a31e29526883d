//! What a request means, as 32 bytes.
//!
//! SHA-256 over a version tag, the method, the route with its path parameters, and the fields of the validated command in
//! a fixed order, absent ones left out. So neither white space, member order nor `"12.5"` against `"12.50"` matter, and a
//! new optional field in a later release leaves the hash of requests without it as it was: a retry that
//! spans the deploy is still a retry. Nothing that the server makes (ids, times) enters it.
//!
//! Each field goes in as `name`, `=`, its length, `:`, its bytes: no two different requests give the same bytes.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::domain::{AccountId, Command, Description, Metadata, Movement, OpenAccount, Pay, Reference, RefundPayment};
use crate::money::{Amount, Sum};

/// Changes only if the encoding itself must change. That breaks the retries that are under way.
const VERSION: &str = "payonce-request-v1";

/// SHA-256 of what a request means.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestHash(pub [u8; 32]);

impl RequestHash {
    /// The hash of a command.
    #[must_use]
    pub fn of(command: &Command) -> Self {
        let mut meaning = Meaning::default();
        meaning.field("version", VERSION);
        meaning.field("method", "POST");
        meaning.field("path", path(command));
        match command {
            Command::OpenAccount(open) => meaning.open_account(open),
            Command::Deposit(movement) | Command::Withdraw(movement) => meaning.movement(movement),
            Command::Freeze(_) | Command::Unfreeze(_) | Command::Close(_) => {}
            Command::Pay(pay) => meaning.pay(pay),
            Command::Refund(refund) => meaning.refund(refund),
        }
        Self(meaning.0.finalize().into())
    }
}

impl fmt::Display for RequestHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for RequestHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The path that a command is posted to. All commands are `POST`.
#[must_use]
pub fn path(command: &Command) -> String {
    let of_account = |id: &AccountId, what| format!("/accounts/{id}/{what}");
    match command {
        Command::OpenAccount(_) => "/accounts".to_owned(),
        Command::Deposit(movement) => of_account(&movement.account, "deposits"),
        Command::Withdraw(movement) => of_account(&movement.account, "withdrawals"),
        Command::Freeze(id) => of_account(id, "freeze"),
        Command::Unfreeze(id) => of_account(id, "unfreeze"),
        Command::Close(id) => of_account(id, "close"),
        Command::Pay(_) => "/payments".to_owned(),
        Command::Refund(refund) => format!("/payments/{}/refunds", refund.payment),
    }
}

#[derive(Default)]
struct Meaning(Sha256);

impl Meaning {
    fn field(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.0.update(format!("{name}={}:", value.len()));
        self.0.update(value);
    }

    fn optional<T: AsRef<[u8]>>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    // Each struct is taken apart, so that a new field does not compile until it is hashed.

    fn open_account(&mut self, open: &OpenAccount) {
        let OpenAccount {
            currency,
            name,
            reference,
            metadata,
        } = open;
        self.field("currency", currency.code());
        self.field("name", name.as_str());
        self.optional("reference", reference.as_ref().map(Reference::as_str));
        self.metadata(metadata.as_ref());
    }

    fn movement(&mut self, movement: &Movement) {
        let Movement {
            account: _in_the_path,
            amount,
            description,
        } = movement;
        self.amount(*amount);
        self.optional("description", description.as_ref().map(Description::as_str));
    }

    fn pay(&mut self, pay: &Pay) {
        let Pay {
            parties,
            amount,
            description,
            reference,
            metadata,
        } = pay;
        self.field("payer_account_id", parties.payer().0);
        self.field("payee_account_id", parties.payee().0);
        self.amount(*amount);
        self.optional("description", description.as_ref().map(Description::as_str));
        self.optional("reference", reference.as_ref().map(Reference::as_str));
        self.metadata(metadata.as_ref());
    }

    fn refund(&mut self, refund: &RefundPayment) {
        let RefundPayment {
            payment: _in_the_path,
            amount,
            reason,
            expected_refunded,
        } = refund;
        let normalized = |sum: Sum| sum.value().normalize().to_string();
        self.optional("amount", amount.map(normalized));
        self.optional("reason", reason.as_ref().map(Description::as_str));
        self.optional("expected_refunded_amount", expected_refunded.map(normalized));
    }

    fn amount(&mut self, amount: Amount) {
        self.field("amount", amount.value().normalize().to_string());
        self.field("currency", amount.currency().code());
    }

    fn metadata(&mut self, metadata: Option<&Metadata>) {
        let Some(metadata) = metadata else { return };
        self.field("metadata", metadata.members().len().to_string());
        for (key, value) in metadata.members() {
            self.field("key", key);
            self.field("value", value);
        }
    }
}

#[cfg(test)]
#[path = "request_hash_test.rs"]
mod tests;
