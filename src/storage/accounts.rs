//! The table `accounts`.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Jsonb, Nullable, Numeric, Text, Timestamptz, Uuid as SqlUuid};
use rust_decimal::Decimal;
use serde_json::Value;
use uuid::Uuid;

use super::batch_query::batch_query;
use super::rows::{self, Position, after};
use super::schema::accounts::{self, table};
use crate::domain::{Account, AccountId, AccountKind, AccountStatus, Reference, TenantId};

#[derive(Queryable)]
struct AccountRow {
    tenant_id: Uuid,
    id: Uuid,
    currency: String,
    kind: String,
    status: String,
    balance: Decimal,
    entry_count: i64,
    name: String,
    reference: Option<String>,
    metadata: Option<Value>,
    created_at: DateTime<Utc>,
    last_entry_at: Option<DateTime<Utc>>,
}

impl AccountRow {
    fn into_account(self) -> QueryResult<(TenantId, Account)> {
        let currency = rows::currency(&self.currency)?;
        let account = Account {
            id: AccountId(self.id),
            kind: rows::named(&self.kind, AccountKind::parse)?,
            status: rows::named(&self.status, AccountStatus::parse)?,
            currency,
            balance: currency.exact(self.balance),
            entry_count: self.entry_count,
            name: rows::name(self.name)?,
            reference: rows::reference(self.reference)?,
            metadata: rows::metadata(self.metadata)?,
            created_at: self.created_at,
            last_entry_at: self.last_entry_at,
        };
        Ok((TenantId(self.tenant_id), account))
    }
}

batch_query! {
    /// Locks accounts against each other's writers, in the one order that all instances keep: the sort is below the
    /// lock in the plan, so it is the order the locks are taken in. FOR NO KEY UPDATE lets foreign-key checks of other
    /// transactions pass. The clock is read outside the locked rows, once for each as it comes: the latest is a
    /// time at which all locks were held. An account that has not been moved since the column `last_entry_at` came has its last
    /// entry looked up: it is old enough to be seen.
    Lock -> (accounts::SqlType, Timestamptz) {
        "WITH locked AS MATERIALIZED ( \
             SELECT tenant_id, id, currency, kind, status, balance, entry_count, name, reference, metadata, created_at, \
                    last_entry_at \
             FROM accounts \
             WHERE (tenant_id, id) IN (SELECT * FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [ids: Vec<Uuid> as Array<SqlUuid>]
        ")) \
             ORDER BY tenant_id, id \
             FOR NO KEY UPDATE) \
         SELECT l.tenant_id, l.id, l.currency, l.kind, l.status, l.balance, l.entry_count, l.name, l.reference, l.metadata, l.created_at, \
                coalesce(l.last_entry_at, \
                         (SELECT t.created_at FROM transfers t \
                          WHERE t.tenant_id = l.tenant_id AND t.debit_account_id = l.id AND t.debit_entry_no = l.entry_count), \
                         (SELECT t.created_at FROM transfers t \
                          WHERE t.tenant_id = l.tenant_id AND t.credit_account_id = l.id AND t.credit_entry_no = l.entry_count)), \
                clock_timestamp() \
         FROM locked l"
    }
}

/// Accounts that are locked, and when all locks were held (`None` if there was nothing to lock).
pub type Locked = (Vec<(TenantId, Account)>, Option<DateTime<Utc>>);

/// Locks the accounts that exist.
///
/// # Errors
/// Diesel's.
pub fn lock(connection: &mut PgConnection, ids: impl Iterator<Item = (TenantId, AccountId)>) -> QueryResult<Locked> {
    let (tenant_ids, ids): (_, Vec<_>) = ids.map(|(tenant, id)| (tenant.0, id.0)).unzip();
    if ids.is_empty() {
        return Ok((Vec::new(), None));
    }
    let rows: Vec<(AccountRow, DateTime<Utc>)> = Lock { tenant_ids, ids }.load(connection)?;
    let locked_at = rows.iter().map(|row| row.1).max();
    let accounts = rows
        .into_iter()
        .map(|row| row.0.into_account())
        .collect::<QueryResult<_>>()?;
    Ok((accounts, locked_at))
}

batch_query! {
    /// Writes what commands change on accounts.
    Write -> () {
        "UPDATE accounts a SET balance = w.balance, entry_count = w.entry_count, status = w.status, \
                               last_entry_at = w.last_entry_at \
         FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [balances: Vec<Decimal> as Array<Numeric>]
        ", " [entry_counts: Vec<i64> as Array<BigInt>]
        ", " [statuses: Vec<&'static str> as Array<Text>]
        ", " [last_entries_at: Vec<Option<DateTime<Utc>>> as Array<Nullable<Timestamptz>>]
        ") AS w (tenant_id, id, balance, entry_count, status, last_entry_at) \
         WHERE a.tenant_id = w.tenant_id AND a.id = w.id"
    }
}

/// Writes balance, entry count, status and the time of the last entry of locked accounts.
///
/// # Errors
/// Diesel's.
pub fn write<'a>(
    connection: &mut PgConnection,
    changed: impl Iterator<Item = (TenantId, &'a Account)>,
) -> QueryResult<()> {
    let mut query = Write {
        tenant_ids: Vec::new(),
        ids: Vec::new(),
        balances: Vec::new(),
        entry_counts: Vec::new(),
        statuses: Vec::new(),
        last_entries_at: Vec::new(),
    };
    for (tenant, account) in changed {
        query.tenant_ids.push(tenant.0);
        query.ids.push(account.id.0);
        query.balances.push(account.balance);
        query.entry_counts.push(account.entry_count);
        query.statuses.push(account.status.as_str());
        query.last_entries_at.push(account.last_entry_at);
    }
    if query.ids.is_empty() {
        return Ok(());
    }
    query.execute(connection).map(drop)
}

batch_query! {
    /// The world outside, for a currency in which a tenant opens its first account. Two may do so at once, and the
    /// row conflicts in two indexes then: neither may be an error, so none is named.
    InsertExternal -> () {
        "INSERT INTO accounts (tenant_id, id, currency, kind, status, balance, entry_count, name, created_at) \
         SELECT DISTINCT n.tenant_id, n.id, n.currency, 'external', 'active', 0, 0, 'external ' || n.currency, now() \
         FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [currencies: Vec<&'static str> as Array<Text>]
        ") AS n (tenant_id, id, currency) \
         ORDER BY n.tenant_id, n.id \
         ON CONFLICT DO NOTHING"
    }
}

batch_query! {
    /// New accounts.
    Insert -> () {
        "INSERT INTO accounts \
             (tenant_id, id, currency, kind, status, balance, entry_count, name, reference, metadata, created_at) \
         SELECT n.tenant_id, n.id, n.currency, n.kind, n.status, 0, 0, n.name, n.reference, n.metadata, n.created_at \
         FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [currencies: Vec<&'static str> as Array<Text>]
        ", " [kinds: Vec<&'static str> as Array<Text>]
        ", " [statuses: Vec<&'static str> as Array<Text>]
        ", " [names: Vec<String> as Array<Text>]
        ", " [references: Vec<Option<String>> as Array<Nullable<Text>>]
        ", " [metadata: Vec<Option<Value>> as Array<Nullable<Jsonb>>]
        ", " [created_at: Vec<DateTime<Utc>> as Array<Timestamptz>]
        ") AS n (tenant_id, id, currency, kind, status, name, reference, metadata, created_at)"
    }
}

/// Inserts new accounts, and the external account of their currency where the tenant has none yet.
///
/// # Errors
/// Diesel's.
pub fn insert<'a>(
    connection: &mut PgConnection,
    opened: impl Iterator<Item = (TenantId, &'a Account)>,
) -> QueryResult<()> {
    let mut query = Insert {
        tenant_ids: Vec::new(),
        ids: Vec::new(),
        currencies: Vec::new(),
        kinds: Vec::new(),
        statuses: Vec::new(),
        names: Vec::new(),
        references: Vec::new(),
        metadata: Vec::new(),
        created_at: Vec::new(),
    };
    let mut external_ids = Vec::new();
    for (tenant, account) in opened {
        external_ids.push(AccountId::external(tenant, account.currency).0);
        query.tenant_ids.push(tenant.0);
        query.ids.push(account.id.0);
        query.currencies.push(account.currency.code());
        query.kinds.push(account.kind.as_str());
        query.statuses.push(account.status.as_str());
        query.names.push(account.name.as_str().to_owned());
        query
            .references
            .push(account.reference.as_ref().map(Reference::as_str).map(str::to_owned));
        query.metadata.push(rows::metadata_json(account.metadata.as_ref()));
        query.created_at.push(account.created_at);
    }
    if query.ids.is_empty() {
        return Ok(());
    }
    let external = InsertExternal {
        tenant_ids: query.tenant_ids.clone(),
        ids: external_ids,
        currencies: query.currencies.clone(),
    };
    external.execute(connection)?;
    query.execute(connection).map(drop)
}

/// An account that the tenant may see.
///
/// # Errors
/// Diesel's.
pub fn find(connection: &mut PgConnection, tenant: TenantId, id: AccountId) -> QueryResult<Option<Account>> {
    let row: Option<AccountRow> = table
        .find((tenant.0, id.0))
        .filter(accounts::kind.eq(AccountKind::Standard.as_str()))
        .first(connection)
        .optional()?;
    Ok(row
        .map(AccountRow::into_account)
        .transpose()?
        .map(|(_, account)| account))
}

/// Waits until whoever is moving this account's money at the moment has committed or rolled back. What they have written is seen
/// by the next statement. The lock that this takes for a moment is one that writers' locks exclude.
///
/// # Errors
/// Diesel's, also if they take longer than locks are waited for.
pub fn wait_for_writers(connection: &mut PgConnection, tenant: TenantId, id: AccountId) -> QueryResult<()> {
    let row = table.find((tenant.0, id.0)).select(accounts::id).for_share();
    row.first::<Uuid>(connection).map(drop)
}

/// At most `limit` of the tenant's accounts, newest first, after the one at `after`.
///
/// # Errors
/// Diesel's.
pub fn list(
    connection: &mut PgConnection,
    tenant: TenantId,
    after: Option<Position>,
    limit: i64,
) -> QueryResult<Vec<Account>> {
    let mut query = table
        .filter(accounts::tenant_id.eq(tenant.0))
        .filter(accounts::kind.eq(AccountKind::Standard.as_str()))
        .order((accounts::created_at.desc(), accounts::id.desc()))
        .limit(limit)
        .into_boxed();
    if let Some(position) = after {
        query = query.filter(after!(accounts, position));
    }
    let rows: Vec<AccountRow> = query.load(connection)?;
    rows.into_iter()
        .map(|row| row.into_account().map(|(_, account)| account))
        .collect()
}
