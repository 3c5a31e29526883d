//! Payments and refunds.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;

use super::{AccountId, Description, Metadata, PaymentId, Reference, RefundId, names};
use crate::money::{Amount, Currency};

/// How much of a payment has been given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentStatus {
    /// Nothing.
    Succeeded,
    /// Some.
    PartiallyRefunded,
    /// All.
    Refunded,
}

names! { PaymentStatus { Succeeded: "succeeded", PartiallyRefunded: "partially_refunded", Refunded: "refunded" } }

/// A charge that went through: money moved from payer to payee. A refused one is not a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// Its id, also that of its transfer.
    pub id: PaymentId,
    /// Whose money it was.
    pub payer: AccountId,
    /// Whose money it became.
    pub payee: AccountId,
    /// How much was charged.
    pub amount: Amount,
    /// How much of it went back since, in major units: `0 ≤ refunded ≤ amount`.
    pub refunded: Decimal,
    /// Free text.
    pub description: Option<Description>,
    /// The caller's own number for it.
    pub reference: Option<Reference>,
    /// The caller's own data.
    pub metadata: Option<Metadata>,
    /// When the money moved.
    pub created_at: DateTime<Utc>,
}

impl Payment {
    /// What it was charged in.
    #[must_use]
    pub fn currency(&self) -> Currency {
        self.amount.currency()
    }

    /// Between which accounts money moves when it is paid or refunded.
    #[must_use]
    pub fn accounts(&self) -> [AccountId; 2] {
        [self.payer, self.payee]
    }

    /// What can still be refunded, in major units.
    #[must_use]
    pub fn refundable(&self) -> Decimal {
        self.currency().exact(self.amount.value() - self.refunded)
    }

    /// Follows from how much went back; it is stored nowhere.
    #[must_use]
    pub fn status(&self) -> PaymentStatus {
        if self.refunded.is_zero() {
            PaymentStatus::Succeeded
        } else if self.refunded < self.amount.value() {
            PaymentStatus::PartiallyRefunded
        } else {
            PaymentStatus::Refunded
        }
    }
}

/// Money given back to the payer of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refund {
    /// Its id, also that of its transfer.
    pub id: RefundId,
    /// Of which payment.
    pub payment: PaymentId,
    /// How much, in the payment's currency.
    pub amount: Amount,
    /// Why.
    pub reason: Option<Description>,
    /// When the money moved.
    pub created_at: DateTime<Utc>,
}
