//! The view `ledger_entries`: an account's statement, and what it held at an instant.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Numeric, Timestamptz, Uuid as SqlUuid};
use rust_decimal::Decimal;
use uuid::Uuid;

use super::accounts;
use super::batch_query::batch_query;
use super::rows;
use super::schema::ledger_entries::{self, table};
use crate::domain::{Account, AccountId, Entry, PaymentId, RefundId, TenantId, TransferKind};

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
            kind: rows::named(&self.kind, TransferKind::parse)?,
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

batch_query! {
    /// The last entry at an instant or before, found as one finds a word in a dictionary: `created_at` never decreases along
    /// `entry_no`, so each step halves what is left. 63 look-ups in a unique index, however long the statement is; to walk it back
    /// from its end would cost a second for each few million entries. Each look-up stands where the planner can do nothing else with it.
    BalanceAt -> Nullable<Numeric> {
        "WITH RECURSIVE search (tenant_id, account_id, at, entry_no, step) AS ( \
             SELECT " [tenant_id: Uuid as SqlUuid]
        "::uuid, " [account_id: Uuid as SqlUuid]
        "::uuid, " [at: DateTime<Utc> as Timestamptz]
        "::timestamptz, 0::bigint, 1::bigint << 62 \
             UNION ALL \
             SELECT tenant_id, account_id, at, \
                    CASE WHEN (SELECT e.created_at <= s.at FROM ledger_entries e \
                               WHERE e.tenant_id = s.tenant_id AND e.account_id = s.account_id AND e.entry_no = s.entry_no + s.step) \
                         THEN entry_no + step ELSE entry_no END, \
                    step / 2 \
             FROM search s WHERE step > 0) \
         SELECT (SELECT e.balance_after FROM ledger_entries e \
                 WHERE e.tenant_id = s.tenant_id AND e.account_id = s.account_id AND e.entry_no = s.entry_no) \
         FROM search s WHERE step = 0"
    }
}

/// What an account held, and as of when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// In major units.
    pub balance: Decimal,
    /// All entries up to this instant are in it, also those that were still under way when it was asked for.
    pub at: DateTime<Utc>,
}

/// The balance at `at`, or the newest one if that is `None` or has not come yet. The same instant always gives the same balance: whichever it is, no
/// entry can be added to it any more.
///
/// An entry is later than the account's last, so up to the last entry all is known. After it somebody may hold the account's lock, and have the
/// time of an entry that is not yet to be seen: that one is waited for, as long as locks are.
///
/// # Errors
/// Diesel's.
pub fn held(
    connection: &mut PgConnection,
    tenant: TenantId,
    account: &Account,
    at: Option<DateTime<Utc>>,
) -> QueryResult<Held> {
    let newest = newest(connection, tenant, account)?;
    let Some(at) = at else { return Ok(newest) };
    if at > newest.at {
        if at > now(connection)? {
            return Ok(newest);
        }
        accounts::wait_for_writers(connection, tenant, account.id)?;
    }
    let balance = balance_at(connection, tenant, account.id, at)?.unwrap_or(Decimal::ZERO);
    Ok(Held { balance, at })
}

/// After the last entry, or as the account was opened.
fn newest(connection: &mut PgConnection, tenant: TenantId, account: &Account) -> QueryResult<Held> {
    let last: Option<(Decimal, DateTime<Utc>)> = table
        .filter(ledger_entries::tenant_id.eq(tenant.0))
        .filter(ledger_entries::account_id.eq(account.id.0))
        .order(ledger_entries::entry_no.desc())
        .select((ledger_entries::balance_after, ledger_entries::created_at))
        .first(connection)
        .optional()?;
    let (balance, at) = last.unwrap_or((Decimal::ZERO, account.created_at));
    Ok(Held { balance, at })
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
    BalanceAt {
        tenant_id: tenant.0,
        account_id: account.0,
        at,
    }
    .get_result(connection)
}

/// The database's time.
///
/// # Errors
/// Diesel's.
pub fn now(connection: &mut PgConnection) -> QueryResult<DateTime<Utc>> {
    diesel::select(diesel::dsl::now.into_sql::<Timestamptz>()).get_result(connection)
}
