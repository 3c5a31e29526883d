//! The writes of a batch: one statement for each table that it touches, in the order of the foreign keys.

use std::collections::BTreeSet;

use diesel::{PgConnection, QueryResult};

use crate::domain::{Account, AccountId, Books, Effect, Payment, Refund, TenantId, Transfer};
use crate::storage::{accounts, payments, refunds, transfers};

/// Writes the effects; `books` has the rows as they shall be.
pub(super) fn persist<'a>(
    connection: &mut PgConnection,
    books: &Books,
    effects: impl Iterator<Item = (TenantId, &'a Effect)>,
) -> QueryResult<()> {
    let mut writes = Writes::default();
    for (tenant, effect) in effects {
        writes.add(tenant, effect);
    }
    let Writes {
        opened,
        changed_accounts,
        transfers,
        payments,
        refunds,
    } = writes;
    if !opened.is_empty() {
        accounts::insert(connection, opened.into_iter())?;
    }
    if !changed_accounts.is_empty() {
        let changed = changed_accounts
            .into_iter()
            .filter_map(|(tenant, id)| Some((tenant, books.account(tenant, id)?)));
        accounts::write(connection, changed)?;
    }
    if !transfers.is_empty() {
        transfers::insert(connection, transfers.into_iter())?;
    }
    if !payments.is_empty() {
        payments::insert(connection, payments.into_iter())?;
    }
    if !refunds.is_empty() {
        let refunded: BTreeSet<_> = refunds
            .iter()
            .map(|(tenant, refund)| (*tenant, refund.payment))
            .collect();
        let refunded = refunded
            .into_iter()
            .filter_map(|(tenant, id)| Some((tenant, books.payment(tenant, id)?)));
        payments::write_refunded(connection, refunded)?;
        refunds::insert(connection, refunds.into_iter())?;
    }
    Ok(())
}

/// The effects of a batch, sorted by table.
#[derive(Default)]
struct Writes<'a> {
    opened: Vec<(TenantId, &'a Account)>,
    changed_accounts: BTreeSet<(TenantId, AccountId)>,
    transfers: Vec<(TenantId, &'a Transfer)>,
    payments: Vec<(TenantId, &'a Payment)>,
    refunds: Vec<(TenantId, &'a Refund)>,
}

impl<'a> Writes<'a> {
    fn add(&mut self, tenant: TenantId, effect: &'a Effect) {
        if let Some(transfer) = effect.transfer() {
            self.changed_accounts
                .extend([(tenant, transfer.debit.account), (tenant, transfer.credit.account)]);
            self.transfers.push((tenant, transfer));
        }
        match effect {
            Effect::Opened(account) => self.opened.push((tenant, account)),
            Effect::StatusSet(account) => {
                self.changed_accounts.insert((tenant, account.id));
            }
            Effect::Deposited(_) | Effect::Withdrawn(_) => {}
            Effect::Paid(payment, _) => self.payments.push((tenant, payment)),
            Effect::Refunded(refund, _) => self.refunds.push((tenant, refund)),
        }
    }
}
