//! An answer as it is stored with its effect and sent again to every retry.

use bytes::Bytes;
use uuid::Uuid;

use crate::domain::names;

/// What kind of thing a request brought about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    /// An account, opened or with another status.
    Account,
    /// A deposit.
    Deposit,
    /// A withdrawal.
    Withdrawal,
    /// A payment.
    Payment,
    /// A refund.
    Refund,
}

names! {
    ResourceKind {
        Account: "account",
        Deposit: "deposit",
        Withdrawal: "withdrawal",
        Payment: "payment",
        Refund: "refund",
    }
}

/// What a request brought about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// Of which kind.
    pub kind: ResourceKind,
    /// Its id.
    pub id: Uuid,
}

impl Resource {
    /// Where it can be read.
    #[must_use]
    pub fn path(self) -> String {
        let collection = match self.kind {
            ResourceKind::Account => "accounts",
            ResourceKind::Deposit => "deposits",
            ResourceKind::Withdrawal => "withdrawals",
            ResourceKind::Payment => "payments",
            ResourceKind::Refund => "refunds",
        };
        format!("/{collection}/{}", self.id)
    }
}

/// An answer, whole: the status, the exact bytes, and what came of the request (nothing, if it was refused).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// HTTP status.
    pub status: u16,
    /// The body, byte for byte.
    pub body: Bytes,
    /// What the request created or changed.
    pub resource: Option<Resource>,
}

impl StoredResponse {
    /// The `Location` of a `201`.
    #[must_use]
    pub fn location(&self) -> Option<String> {
        self.resource.filter(|_| self.status == 201).map(Resource::path)
    }
}
