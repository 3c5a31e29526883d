//! The view `ledger_entries`: an account's statement, and its balance at a time.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use rust_decimal::Decimal;
use uuid::Uuid;

use super::rows;
use super::schema::ledger_entries::{self, table};
use crate::domain::{AccountId, Entry, PaymentId, RefundId, TenantId};

#[derive(Queryable)]
struct EntryRow {
    _tenant_id: Uuid,
    id: Uuid,
    account_id: Uuid,
    entry_no: i64,
    kind: String,
    amount: Decimal,
    currency: String,
    balance_after: Decimal,
    payment_id: Option<Uuid>,
    refund_id: Option<Uuid>,
    created_at: DateTime<Utc>,
}

impl EntryRow {
    fn into_entry(self) -> QueryResult<Entry> {
        let currency = rows::currency(&self.currency)?;
        Ok(Entry {
            id: self.id,
            account: AccountId(self.account_id),
            entry_no: self.entry_no,
            kind: rows::transfer_kind(&self.kind)?,
            amount: currency.exact(self.amount),
            currency,
            balance_after: currency.exact(self.balance_after),
            payment: self.payment_id.map(PaymentId),
            refund: self.refund_id.map(RefundId),
            created_at: self.created_at,
        })
    }
}

/// At most `limit` entries of an account, newest first, before the one with number `before`.
///
/// # Errors
/// Diesel's.
pub fn list(
    connection: &mut PgConnection,
    tenant: TenantId,
    account: AccountId,
    before: Option<i64>,
    limit: i64,
) -> QueryResult<Vec<Entry>> {
    let mut query = table
        .filter(ledger_entries::tenant_id.eq(tenant.0))
        .filter(ledger_entries::account_id.eq(account.0))
        .order(ledger_entries::entry_no.desc())
        .limit(limit)
        .into_boxed();
    if let Some(before) = before {
        query = query.filter(ledger_entries::entry_no.lt(before));
    }
    let rows: Vec<EntryRow> = query.load(connection)?;
    rows.into_iter().map(EntryRow::into_entry).collect()
}

/// The balance after the last entry made at `at` or before; `None` if there was none yet.
///
/// # Errors
/// Diesel's.
pub fn balance_at(
    connection: &mut PgConnection,
    tenant: TenantId,
    account: AccountId,
    at: DateTime<Utc>,
) -> QueryResult<Option<Decimal>> {
    table
        .filter(ledger_entries::tenant_id.eq(tenant.0))
        .filter(ledger_entries::account_id.eq(account.0))
        .filter(ledger_entries::created_at.le(at))
        .order(ledger_entries::entry_no.desc())
        .select(ledger_entries::balance_after)
        .first(connection)
        .optional()
}

/// The database's time.
///
/// # Errors
/// Diesel's.
pub fn now(connection: &mut PgConnection) -> QueryResult<DateTime<Utc>> {
    diesel::select(diesel::dsl::now.into_sql::<diesel::sql_types::Timestamptz>()).get_result(connection)
}
