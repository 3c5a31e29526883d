//! The rows that a batch has locked, what its commands have changed on them, and what they have added.
//!
//! A row is *asked for*, then *held* if it exists. What nobody asked for can't be looked at: that is a bug, and must never
//! pass for "there is no such thing", which would be stored as the command's answer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{Account, AccountId, Needs, Payment, PaymentId, Refund, TenantId, Transfer};

/// The locked rows of a batch, as they stand after the commands decided so far.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Books {
    accounts: Rows<AccountId, Account>,
    payments: Rows<PaymentId, Payment>,
    refunds: Vec<(TenantId, Refund)>,
    transfers: Vec<(TenantId, Transfer)>,
}

/// A rule looked at a row that its command had not asked for ([`Command::needs`](super::Command::needs)). A bug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a rule looked at {0}, for which its command had not asked")]
pub struct NotHeld(String);

impl Books {
    /// Asks for what a command may look at.
    pub fn ask_for(&mut self, tenant: TenantId, needs: Needs) {
        let Needs { accounts, payments } = needs;
        for id in accounts {
            self.accounts.ask_for(tenant, id);
        }
        for id in payments {
            self.payments.ask_for(tenant, id);
        }
    }

    /// The payments that were asked for and are not held.
    pub fn wanted_payments(&self) -> impl Iterator<Item = (TenantId, PaymentId)> {
        self.payments.wanted()
    }

    /// The accounts that were asked for and are not held.
    pub fn wanted_accounts(&self) -> impl Iterator<Item = (TenantId, AccountId)> {
        self.accounts.wanted()
    }

    /// A locked payment. It leads to its accounts, which are asked for.
    pub fn hold_payment(&mut self, tenant: TenantId, payment: Payment) {
        for account in payment.accounts() {
            self.accounts.ask_for(tenant, account);
        }
        self.payments.hold(tenant, payment.id, payment);
    }

    /// A locked account.
    pub fn hold_account(&mut self, tenant: TenantId, account: Account) {
        self.accounts.hold(tenant, account.id, account);
    }

    /// An account; `None` if there is none.
    ///
    /// # Errors
    /// [`NotHeld`].
    pub fn account(&self, tenant: TenantId, id: AccountId) -> Result<Option<&Account>, NotHeld> {
        self.accounts.get(tenant, id)
    }

    /// A payment; `None` if there is none.
    ///
    /// # Errors
    /// [`NotHeld`].
    pub fn payment(&self, tenant: TenantId, id: PaymentId) -> Result<Option<&Payment>, NotHeld> {
        self.payments.get(tenant, id)
    }

    pub(super) fn insert_account(&mut self, tenant: TenantId, account: Account) {
        self.accounts.insert(tenant, account.id, account);
    }

    pub(super) fn update_account(&mut self, tenant: TenantId, account: Account) -> Result<(), NotHeld> {
        self.accounts.update(tenant, account.id, account)
    }

    pub(super) fn insert_payment(&mut self, tenant: TenantId, payment: Payment) {
        self.payments.insert(tenant, payment.id, payment);
    }

    pub(super) fn update_payment(&mut self, tenant: TenantId, payment: Payment) -> Result<(), NotHeld> {
        self.payments.update(tenant, payment.id, payment)
    }

    pub(super) fn insert_refund(&mut self, tenant: TenantId, refund: Refund) {
        self.refunds.push((tenant, refund));
    }

    pub(super) fn insert_transfer(&mut self, tenant: TenantId, transfer: Transfer) {
        self.transfers.push((tenant, transfer));
    }

    /// Accounts that were opened.
    pub fn new_accounts(&self) -> impl Iterator<Item = (TenantId, &Account)> {
        self.accounts.in_state(State::New)
    }

    /// Accounts that were there and have changed.
    pub fn changed_accounts(&self) -> impl Iterator<Item = (TenantId, &Account)> {
        self.accounts.in_state(State::Changed)
    }

    /// Payments that were made.
    pub fn new_payments(&self) -> impl Iterator<Item = (TenantId, &Payment)> {
        self.payments.in_state(State::New)
    }

    /// Payments that were there and have changed.
    pub fn changed_payments(&self) -> impl Iterator<Item = (TenantId, &Payment)> {
        self.payments.in_state(State::Changed)
    }

    /// Refunds that were made.
    pub fn refunds(&self) -> impl Iterator<Item = (TenantId, &Refund)> {
        self.refunds.iter().map(|(tenant, refund)| (*tenant, refund))
    }

    /// The movements of money, in their order.
    pub fn transfers(&self) -> impl Iterator<Item = (TenantId, &Transfer)> {
        self.transfers.iter().map(|(tenant, transfer)| (*tenant, transfer))
    }
}

/// Where a row stands between what is stored and what shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// As it is stored.
    Unchanged,
    Changed,
    New,
}

/// Rows of one kind. `None`: asked for, and not there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rows<K, V>(BTreeMap<(TenantId, K), Option<(State, V)>>);

impl<K, V> Default for Rows<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy + std::fmt::Debug, V> Rows<K, V> {
    fn ask_for(&mut self, tenant: TenantId, id: K) {
        self.0.entry((tenant, id)).or_insert(None);
    }

    fn wanted(&self) -> impl Iterator<Item = (TenantId, K)> {
        self.0.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| *key)
    }

    fn hold(&mut self, tenant: TenantId, id: K, value: V) {
        self.0.insert((tenant, id), Some((State::Unchanged, value)));
    }

    fn insert(&mut self, tenant: TenantId, id: K, value: V) {
        self.0.insert((tenant, id), Some((State::New, value)));
    }

    fn get(&self, tenant: TenantId, id: K) -> Result<Option<&V>, NotHeld> {
        let row = self.0.get(&(tenant, id)).ok_or_else(|| NotHeld(format!("{id:?}")))?;
        Ok(row.as_ref().map(|(_, value)| value))
    }

    /// A row that is new stays so: it is written once, in its last state.
    fn update(&mut self, tenant: TenantId, id: K, value: V) -> Result<(), NotHeld> {
        match self.0.entry((tenant, id)) {
            Entry::Occupied(mut row) => {
                let state = match row.get() {
                    Some((State::New, _)) => State::New,
                    Some((State::Unchanged | State::Changed, _)) => State::Changed,
                    None => return Err(NotHeld(format!("{id:?}"))),
                };
                row.insert(Some((state, value)));
                Ok(())
            }
            Entry::Vacant(_) => Err(NotHeld(format!("{id:?}"))),
        }
    }

    fn in_state(&self, wanted: State) -> impl Iterator<Item = (TenantId, &V)> {
        self.0
            .iter()
            .filter_map(|((tenant, _), row)| row.as_ref().map(|(state, value)| (*tenant, *state, value)))
            .filter(move |(_, state, _)| *state == wanted)
            .map(|(tenant, _, value)| (tenant, value))
    }
}

#[cfg(test)]
impl Books {
    /// All accounts.
    pub fn accounts(&self) -> impl Iterator<Item = (TenantId, &Account)> {
        self.accounts.all()
    }

    /// All payments.
    pub fn payments(&self) -> impl Iterator<Item = (TenantId, &Payment)> {
        self.payments.all()
    }
}

#[cfg(test)]
impl<K, V> Rows<K, V> {
    fn all(&self) -> impl Iterator<Item = (TenantId, &V)> {
        let rows = self.0.iter();
        rows.filter_map(|((tenant, _), row)| Some((*tenant, &row.as_ref()?.1)))
    }
}

#[cfg(test)]
#[path = "books_test.rs"]
mod tests;
