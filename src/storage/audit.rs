//! Reads the books and checks the [laws](LAWS): each table once, in the order of its key, a slice at a time, all in one snapshot.
//!
//! One slice is all that PostgreSQL holds in memory, and its last key all that we do: an audit of a hundred million rows needs no
//! more than one of a hundred. And the plan is known beforehand, for all but an index is switched off: the rows come in the order of one, and
//! what a law needs to each of them is looked up by one. Left to itself, the planner would now and then read a whole table for
//! each slice, on statistics from the time when the table was small.

use chrono::{DateTime, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::{BigInt, Jsonb, Nullable, Text};
use serde_json::Value;

use super::entries;
use super::laws::{Check, Law, Table};

pub use super::laws::LAWS;

/// Rows in a slice: a small part of a second. Larger ones are no faster.
pub const SLICE: i64 = 5000;

/// One backend on one core, and no time spent on compiling: the payments need the others.
const MODEST: &str = "SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off";

/// For [`Check::Slices`]: nothing but an index.
const LOOK_UP: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; \
                       SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// For [`Check::Whole`]: nothing but hashes, whose cost does not explode when the statistics are wrong.
const HASH: &str = "SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on; \
                    SET LOCAL enable_hashjoin = on; SET LOCAL enable_nestloop = off; \
                    SET LOCAL work_mem = '64MB'";

/// What an audit found.
#[derive(Debug)]
pub struct Report {
    /// The moment whose books were read.
    pub at: DateTime<Utc>,
    /// Each law.
    pub laws: Vec<Checked>,
}

/// A law and what came of it.
#[derive(Debug)]
pub struct Checked {
    /// The law.
    pub law: &'static Law,
    /// How many rows of its table were checked: all of them, or those up to the end of the slice that broke it.
    pub rows: i64,
    /// The first row that breaks it: an object of `tenant_id`, `at` (ids by name), `expected` and `found`.
    pub broken: Option<Value>,
}

/// Checks all laws on the books as they are at this moment. Whatever is paid meanwhile is not seen and not held up.
/// `progress` is told how many rows are done, and of how many.
///
/// # Errors
/// Diesel's.
#[expect(
    clippy::disallowed_methods,
    reason = "one snapshot for many reads; it writes nothing, so there is nothing that it could split"
)]
pub fn run(connection: &mut PgConnection, progress: impl FnMut(i64, i64)) -> QueryResult<Report> {
    connection
        .build_transaction()
        .repeatable_read()
        .read_only()
        .run(|connection| check(connection, SLICE, progress))
}

/// The same in a transaction of the caller, with slices of so many rows: at least 2.
///
/// # Errors
/// Diesel's.
pub fn check(connection: &mut PgConnection, size: i64, mut progress: impl FnMut(i64, i64)) -> QueryResult<Report> {
    connection.batch_execute(MODEST)?;
    let at = entries::now(connection)?;
    let mut laws: Vec<Checked> = LAWS.iter().map(Checked::not_yet).collect();
    let (mut done, mut total) = (0, 0);
    for table in Table::ALL {
        let rows = table.count(connection)?;
        total += table.order().map_or(0, |_| rows);
        for checked in laws.iter_mut().filter(|checked| checked.is(table, Check::Whole)) {
            checked.rows = rows;
            total += rows;
        }
    }
    let mut advance = |rows| {
        done += rows;
        progress(done, total);
    };
    advance(0);
    connection.batch_execute(LOOK_UP)?;
    for table in Table::ALL {
        walk(connection, table, size, &mut laws, &mut advance)?;
    }
    connection.batch_execute(HASH)?;
    for checked in laws.iter_mut().filter(|checked| checked.law.check == Check::Whole) {
        checked.broken = checked.law.first_broken(connection)?;
        advance(checked.rows);
    }
    Ok(Report { at, laws })
}

/// Asks of all rows of a table, slice by slice, all the laws that are not broken yet.
fn walk(
    connection: &mut PgConnection,
    table: Table,
    size: i64,
    laws: &mut [Checked],
    advance: &mut impl FnMut(i64),
) -> QueryResult<()> {
    let Some(order) = table.order() else { return Ok(()) };
    let mut after = None;
    loop {
        let holds = |checked: &&mut Checked| checked.is(table, Check::Slices) && checked.broken.is_none();
        let mut holding: Vec<&mut Checked> = laws.iter_mut().filter(holds).collect();
        let asked: Vec<&Law> = holding.iter().map(|checked| checked.law).collect();
        let mut slice: Slice = sql_query(table.slice(order, size, after.as_deref(), &asked)).get_result(connection)?;
        for checked in &mut holding {
            let answer = slice.broken.get_mut(checked.law.id).ok_or(diesel::NotFound)?;
            checked.broken = Some(answer.take()).filter(|row| !row.is_null());
            checked.rows += slice.rows;
        }
        advance(slice.rows);
        // Where thousands of entries have one and the same number, there is no way on. That law is broken then.
        if slice.rows < size || slice.last == after {
            return Ok(());
        }
        after = slice.last;
    }
}

impl Checked {
    fn not_yet(law: &'static Law) -> Self {
        Self {
            law,
            rows: 0,
            broken: None,
        }
    }

    fn is(&self, table: Table, check: Check) -> bool {
        self.law.over == table && self.law.check == check
    }
}

impl Law {
    /// An SQL expression: the first row that breaks it, or NULL.
    fn sql(&self) -> String {
        format!("(SELECT to_jsonb(broken) FROM ({}) broken LIMIT 1)", self.query)
    }

    fn first_broken(&self, connection: &mut PgConnection) -> QueryResult<Option<Value>> {
        let first: First = sql_query(format!("SELECT {} AS broken", self.sql())).get_result(connection)?;
        Ok(first.broken)
    }
}

#[derive(QueryableByName)]
struct First {
    #[diesel(sql_type = Nullable<Jsonb>)]
    broken: Option<Value>,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    rows: i64,
}

/// What is said about a slice.
#[derive(QueryableByName)]
struct Slice {
    #[diesel(sql_type = BigInt)]
    rows: i64,
    /// The key of its last row, as literals that PostgreSQL has quoted itself.
    #[diesel(sql_type = Nullable<Text>)]
    last: Option<String>,
    /// For each law the first row that breaks it, or null.
    #[diesel(sql_type = Jsonb)]
    broken: Value,
}

impl Table {
    const ALL: [Self; 6] = [
        Self::Accounts,
        Self::Entries,
        Self::Transfers,
        Self::Payments,
        Self::Refunds,
        Self::Keys,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Accounts => "accounts",
            Self::Entries => "ledger_entries",
            Self::Transfers => "transfers",
            Self::Payments => "payments",
            Self::Refunds => "refunds",
            Self::Keys => "idempotency_keys",
        }
    }

    /// For a walk: the columns of its key, and what else the laws look at. Idempotency keys have no order to walk in.
    fn order(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Accounts => Some(("tenant_id, id", "status, balance, entry_count, last_entry_at")),
            Self::Entries => Some((
                "tenant_id, account_id, entry_no",
                "id, amount, balance_after, created_at, \
                 lag(entry_no) OVER (PARTITION BY tenant_id, account_id ORDER BY entry_no) AS before_no, \
                 lag(balance_after) OVER (PARTITION BY tenant_id, account_id ORDER BY entry_no) AS before_balance, \
                 lag(created_at) OVER (PARTITION BY tenant_id, account_id ORDER BY entry_no) AS before_at",
            )),
            Self::Transfers => Some(("tenant_id, id", "kind, debit_account_id, credit_account_id, currency")),
            Self::Payments => Some((
                "tenant_id, id",
                "payer_account_id, payee_account_id, currency, amount, refunded_amount, created_at",
            )),
            Self::Refunds => Some(("tenant_id, id", "payment_id, amount, created_at")),
            Self::Keys => None,
        }
    }

    fn count(self, connection: &mut PgConnection) -> QueryResult<i64> {
        let count: Count = sql_query(format!("SELECT count(*) AS rows FROM {}", self.name())).get_result(connection)?;
        Ok(count.rows)
    }

    /// The statement that reads the rows that come after a key, and asks these laws of them.
    fn slice(self, (key, columns): (&str, &str), size: i64, after: Option<&str>, laws: &[&Law]) -> String {
        let name = self.name();
        let (begin, overlap) = match after {
            None => (String::new(), 0),
            // An entry is compared with the one before it: the last one of the slice before is read again, and passed over.
            Some(after) if self == Self::Entries => (format!("WHERE ({key}) >= ({after})"), 1),
            Some(after) => (format!("WHERE ({key}) > ({after})"), 0),
        };
        let last: Vec<String> = key
            .split(", ")
            .map(|column| format!("quote_literal({column})"))
            .collect();
        let laws: Vec<String> = laws.iter().map(|law| format!("'{}', {}", law.id, law.sql())).collect();
        format!(
            "WITH slice AS MATERIALIZED \
                 (SELECT {key}, {columns} FROM {name} {begin} ORDER BY {key} LIMIT {size} OFFSET {overlap}) \
             SELECT (SELECT count(*) FROM slice) AS rows, \
                    (SELECT concat_ws(', ', {}) FROM slice ORDER BY ({key}) DESC LIMIT 1) AS last, \
                    jsonb_build_object({}) AS broken",
            last.join(", "),
            laws.join(", "),
        )
    }
}
