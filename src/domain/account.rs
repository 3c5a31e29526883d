//! Accounts, and what each status permits.

use chrono::{DateTime, TimeDelta, Utc};
use rust_decimal::Decimal;

use super::{AccountId, Metadata, Name, Reference, Refusal, names};
use crate::money::Currency;

/// The least time between two entries of an account: PostgreSQL's times are in microseconds.
const TICK: TimeDelta = TimeDelta::microseconds(1);

/// Who an account belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountKind {
    /// Opened by the tenant. Its balance is never below zero.
    Standard,
    /// The world outside, one per tenant and currency. Its balance is what all others hold, negated.
    External,
}

names! { AccountKind { Standard: "standard", External: "external" } }

/// What may happen to an account's money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountStatus {
    /// Money may come and go.
    Active,
    /// Money may come, none may go.
    Frozen,
    /// Nothing moves any more; the balance is zero.
    Closed,
}

names! { AccountStatus { Active: "active", Frozen: "frozen", Closed: "closed" } }

/// An account as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its id.
    pub id: AccountId,
    /// Standard or external.
    pub kind: AccountKind,
    /// Active, frozen or closed.
    pub status: AccountStatus,
    /// What it holds; never changes.
    pub currency: Currency,
    /// Sum of its ledger entries, in major units.
    pub balance: Decimal,
    /// How many ledger entries it has.
    pub entry_count: i64,
    /// What it is called.
    pub name: Name,
    /// The caller's own number for it.
    pub reference: Option<Reference>,
    /// The caller's own data.
    pub metadata: Option<Metadata>,
    /// When it was opened.
    pub created_at: DateTime<Utc>,
    /// The time of its last ledger entry, if it has one.
    pub last_entry_at: Option<DateTime<Utc>>,
}

impl Account {
    /// When its next entry is made if the clock says `now`: then, or just after its last one, should the clock have gone back since.
    /// Later, not only not earlier: what it held at an instant does not change once that has been told.
    #[must_use]
    pub fn time_of_next_entry(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        let last = self.last_entry_at.unwrap_or(self.created_at);
        last.checked_add_signed(TICK).map_or(now, |next| next.max(now))
    }

    /// May money leave?
    ///
    /// # Errors
    /// [`Refusal::AccountFrozen`] or [`Refusal::AccountClosed`].
    pub fn permits_debit(&self) -> Result<(), Refusal> {
        match self.status {
            AccountStatus::Active => Ok(()),
            AccountStatus::Frozen => Err(Refusal::AccountFrozen(self.id)),
            AccountStatus::Closed => Err(Refusal::AccountClosed(self.id)),
        }
    }

    /// May money arrive?
    ///
    /// # Errors
    /// [`Refusal::AccountClosed`].
    pub fn permits_credit(&self) -> Result<(), Refusal> {
        match self.status {
            AccountStatus::Active | AccountStatus::Frozen => Ok(()),
            AccountStatus::Closed => Err(Refusal::AccountClosed(self.id)),
        }
    }
}
