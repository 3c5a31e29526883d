//! The demo's own look into PostgreSQL, past the service: what it says is what is true.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::sql_types::{BigInt, Integer, Nullable, Text, Uuid as SqlUuid};
use diesel::{OptionalExtension, PgConnection, QueryResult, QueryableByName, RunQueryDsl, sql_query};
use payonce::storage::{DatabaseSettings, connect};
use uuid::Uuid;

use crate::Outcome;

const CHARGES: &str = "\
SELECT (SELECT count(*) FROM payments p WHERE (p.tenant_id, p.payer_account_id) = (a.tenant_id, a.id)) AS payments,
       round(balance, 2)::text AS balance
FROM accounts a WHERE tenant_id = $1 AND id = $2";

const STORED_RESPONSE: &str = "\
SELECT convert_from(response_body, 'UTF8') AS text FROM idempotency_keys WHERE tenant_id = $1 AND key = $2";

const REFUNDED: &str = "\
SELECT round(refunded_amount, 2)::text AS text FROM payments WHERE tenant_id = $1 AND id = $2";

const WAITERS: &str = "\
SELECT count(*) AS number FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";

/// Debits = credits: one currency's debits lower balances by as much as its credits raise them.
pub const SUM_OF_BALANCES: &str = "\
SELECT currency, round(sum(balance), 2)::text AS total
FROM accounts WHERE tenant_id = $1 GROUP BY currency";

/// Balances = entries.
pub const WRONG_BALANCES: &str = "\
SELECT count(*) AS accounts, count(*) FILTER (WHERE balance <> entered) AS wrong
FROM accounts a, LATERAL (SELECT coalesce(sum(amount), 0) AS entered FROM ledger_entries e
                          WHERE (e.tenant_id, e.account_id) = (a.tenant_id, a.id)) AS ledger
WHERE tenant_id = $1";

/// One payment per key.
pub const PAYMENTS_PER_KEY: &str = "\
SELECT count(k.key) AS keys, count(DISTINCT k.resource_id) AS made, count(DISTINCT p.id) AS payments
FROM payments p FULL JOIN (SELECT * FROM idempotency_keys WHERE resource_kind = 'payment') AS k
  ON (k.tenant_id, k.resource_id) = (p.tenant_id, p.id)
WHERE coalesce(p.tenant_id, k.tenant_id) = $1";

/// What an account has paid, and what is left.
#[derive(Debug, PartialEq, Eq, QueryableByName)]
pub struct Charges {
    #[diesel(sql_type = BigInt)]
    pub payments: i64,
    #[diesel(sql_type = Text)]
    pub balance: String,
}

impl Charges {
    pub fn new(payments: i64, balance: &str) -> Self {
        let balance = balance.to_owned();
        Self { payments, balance }
    }
}

/// A row of [`SUM_OF_BALANCES`].
#[derive(Debug, PartialEq, Eq, QueryableByName)]
pub struct Total {
    #[diesel(sql_type = Text)]
    pub currency: String,
    #[diesel(sql_type = Text)]
    pub total: String,
}

/// The row of [`WRONG_BALANCES`].
#[derive(Debug, QueryableByName)]
pub struct WrongBalances {
    #[diesel(sql_type = BigInt)]
    pub accounts: i64,
    #[diesel(sql_type = BigInt)]
    pub wrong: i64,
}

/// The row of [`PAYMENTS_PER_KEY`].
#[derive(Debug, QueryableByName)]
pub struct PaymentsPerKey {
    #[diesel(sql_type = BigInt)]
    pub keys: i64,
    #[diesel(sql_type = BigInt)]
    pub made: i64,
    #[diesel(sql_type = BigInt)]
    pub payments: i64,
}

#[derive(QueryableByName)]
struct TextRow {
    #[diesel(sql_type = Nullable<Text>)]
    text: Option<String>,
}

#[derive(QueryableByName)]
struct NumberRow {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

#[derive(QueryableByName)]
struct BackendRow {
    #[diesel(sql_type = Integer)]
    backend: i32,
}

#[derive(QueryableByName)]
struct TenantRow {
    #[diesel(sql_type = SqlUuid)]
    tenant_id: Uuid,
}

/// A session of the demo's own, for one tenant.
pub struct Books {
    settings: DatabaseSettings,
    session: PgConnection,
    tenant: Uuid,
}

/// An account whose row another session has locked; released when dropped.
pub struct HeldAccount {
    _session: PgConnection,
    backend: i32,
}

impl Books {
    pub fn open(database_url: &str, tenant: &str) -> Outcome<Self> {
        let limit = Duration::from_secs(30);
        let settings = DatabaseSettings {
            url: database_url.to_owned(),
            connect_timeout: limit,
            statement_timeout: limit,
            lock_timeout: limit,
            idle_in_transaction_timeout: limit,
            read_pool_size: 1,
            read_timeout: limit,
            pool_timeout: limit,
        };
        let mut session = connect(&settings)?;
        let tenant: TenantRow = sql_query("SELECT tenant_id FROM tenants WHERE name = $1")
            .bind::<Text, _>(tenant)
            .get_result(&mut session)?;
        Ok(Self {
            settings,
            session,
            tenant: tenant.tenant_id,
        })
    }

    /// What `payer` was charged.
    pub fn charges(&mut self, payer: Uuid) -> QueryResult<Charges> {
        let query = sql_query(CHARGES).bind::<SqlUuid, _>(self.tenant);
        query.bind::<SqlUuid, _>(payer).get_result(&mut self.session)
    }

    /// The response that is committed under a key, if there is one.
    pub fn stored_response(&mut self, key: &str) -> QueryResult<Option<String>> {
        let query = sql_query(STORED_RESPONSE).bind::<SqlUuid, _>(self.tenant);
        let row: Option<TextRow> = query.bind::<Text, _>(key).get_result(&mut self.session).optional()?;
        Ok(row.and_then(|row| row.text))
    }

    pub fn refunded(&mut self, payment: Uuid) -> QueryResult<Option<String>> {
        let query = sql_query(REFUNDED).bind::<SqlUuid, _>(self.tenant);
        let row: TextRow = query.bind::<SqlUuid, _>(payment).get_result(&mut self.session)?;
        Ok(row.text)
    }

    /// Locks an account's row in a transaction of a session of its own.
    pub fn hold_account(&self, account: Uuid) -> Outcome<HeldAccount> {
        let mut session = connect(&self.settings)?;
        session.batch_execute("BEGIN")?;
        sql_query("SELECT FROM accounts WHERE tenant_id = $1 AND id = $2 FOR UPDATE")
            .bind::<SqlUuid, _>(self.tenant)
            .bind::<SqlUuid, _>(account)
            .execute(&mut session)?;
        let row: BackendRow = sql_query("SELECT pg_backend_pid() AS backend").get_result(&mut session)?;
        Ok(HeldAccount {
            _session: session,
            backend: row.backend,
        })
    }

    /// How many transactions wait for the lock.
    pub fn waiters(&mut self, held: &HeldAccount) -> QueryResult<i64> {
        let query = sql_query(WAITERS).bind::<Integer, _>(held.backend);
        let row: NumberRow = query.get_result(&mut self.session)?;
        Ok(row.number)
    }

    pub fn sum_of_balances(&mut self) -> QueryResult<Vec<Total>> {
        let query = sql_query(SUM_OF_BALANCES).bind::<SqlUuid, _>(self.tenant);
        query.load(&mut self.session)
    }

    pub fn wrong_balances(&mut self) -> QueryResult<WrongBalances> {
        let query = sql_query(WRONG_BALANCES).bind::<SqlUuid, _>(self.tenant);
        query.get_result(&mut self.session)
    }

    pub fn payments_per_key(&mut self) -> QueryResult<PaymentsPerKey> {
        let query = sql_query(PAYMENTS_PER_KEY).bind::<SqlUuid, _>(self.tenant);
        query.get_result(&mut self.session)
    }
}
