//! The ledger: transfers, and the entries they are seen as.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use uuid::Uuid;

use super::{AccountId, Description, PaymentId, RefundId, names};
use crate::money::{Amount, Currency};

/// What a transfer is the movement of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// Money in, from the external account.
    Deposit,
    /// Money out, to the external account.
    Withdrawal,
    /// Payer to payee.
    Payment,
    /// Payee back to payer.
    Refund,
}

names! { TransferKind { Deposit: "deposit", Withdrawal: "withdrawal", Payment: "payment", Refund: "refund" } }

/// One side of a transfer as the account sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// The account.
    pub account: AccountId,
    /// Number of the entry in the account's statement: 1, 2, 3, … without a gap.
    pub entry_no: i64,
    /// The account's balance after it, in major units.
    pub balance_after: Decimal,
}

/// One row of the ledger: one amount leaves one account and arrives at another. It can't be out of balance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The id of the deposit, withdrawal, payment or refund it moves the money of.
    pub id: Uuid,
    /// Which of them.
    pub kind: TransferKind,
    /// How much.
    pub amount: Amount,
    /// Where it leaves.
    pub debit: Side,
    /// Where it arrives.
    pub credit: Side,
    /// Text of a deposit or withdrawal.
    pub description: Option<Description>,
    /// When.
    pub created_at: DateTime<Utc>,
}

/// A transfer as it stands in one account's statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The transfer's id; the entry on the other account has the same.
    pub id: Uuid,
    /// Whose statement.
    pub account: AccountId,
    /// Its number there.
    pub entry_no: i64,
    /// What moved.
    pub kind: TransferKind,
    /// Signed, in major units: negative when money left.
    pub amount: Decimal,
    /// Of what.
    pub currency: Currency,
    /// The account's balance after it, in major units.
    pub balance_after: Decimal,
    /// The payment, also of a refund.
    pub payment: Option<PaymentId>,
    /// The refund.
    pub refund: Option<RefundId>,
    /// When.
    pub created_at: DateTime<Utc>,
}
