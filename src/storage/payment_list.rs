//! Lists of payments, by any conditions, at a bounded price.
//!
//! A list walks one index in its order: that of the reference, of the account (as payer, as payee), of what was refunded, or of all. The cursor
//! and the times bound that walk. What the index does not know is looked at payment by payment, and of these no more than [`LOOKED_AT_MAX`]
//! for one page: the page then ends where the look has ended, short or even empty, and the next goes on from there. An index for each
//! combination of conditions would make every payment dearer than any list is worth.

use chrono::{DateTime, Utc};
use diesel::dsl::sql;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool, Uuid as SqlUuid};
use uuid::Uuid;

use super::payments::PaymentRow;
use super::rows::{Position, after};
use super::schema::payments::{self, BoxedQuery, table};
use crate::domain::{AccountId, Payment, PaymentId, PaymentStatus, TenantId};

/// Most payments that are looked at for one page and one role of an account: some milliseconds.
pub const LOOKED_AT_MAX: i64 = 5000;

/// Which payments a list shall show; all conditions must hold.
#[derive(Debug, Default)]
pub struct PaymentFilter {
    /// The payment with this id.
    pub id: Option<PaymentId>,
    /// As payer or payee.
    pub account: Option<AccountId>,
    /// How much went back.
    pub status: Option<PaymentStatus>,
    /// The caller's own number.
    pub reference: Option<String>,
    /// Made at this time or later.
    pub created_from: Option<DateTime<Utc>>,
    /// Made before this time.
    pub created_to: Option<DateTime<Utc>>,
}

/// Some payments of a list, newest first.
#[derive(Debug, Default)]
pub struct Stretch {
    /// Those that the conditions hold for.
    pub payments: Vec<Payment>,
    /// How far was looked; `None`: to the end of the list.
    pub looked_to: Option<Position>,
}

/// Which index is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// `payments_by_payer`
    Payer(AccountId),
    /// `payments_by_payee`
    Payee(AccountId),
    /// `payments_refunded`
    Refunded,
    /// The key or `payments_by_reference`, if the filter names an id or a reference; else `payments_newest`.
    Newest,
}

/// At most `limit` of the tenant's payments, newest first, after the one at `position`.
///
/// # Errors
/// Diesel's.
pub fn list(
    connection: &mut PgConnection,
    tenant: TenantId,
    filter: &PaymentFilter,
    position: Option<Position>,
    limit: i64,
) -> QueryResult<Stretch> {
    let mut look = |walk| {
        let list = List {
            tenant,
            filter,
            walk,
            position,
        };
        list.look(connection, limit)
    };
    let refunded = matches!(
        filter.status,
        Some(PaymentStatus::PartiallyRefunded | PaymentStatus::Refunded)
    );
    match filter.account {
        _ if filter.id.is_some() || filter.reference.is_some() => look(Walk::Newest),
        // Two walks merged here, because under an OR PostgreSQL would sort all the account's payments for one page. A payment is
        // in one of the two only, since nobody pays himself.
        Some(account) => Ok(merge(look(Walk::Payer(account))?, look(Walk::Payee(account))?, limit)),
        None if refunded => look(Walk::Refunded),
        None => look(Walk::Newest),
    }
}

/// Newest first of two stretches, as far down as both have looked.
fn merge(one: Stretch, other: Stretch, limit: i64) -> Stretch {
    let looked_to = one.looked_to.max(other.looked_to);
    let mut payments = one.payments;
    payments.extend(other.payments);
    payments.sort_by_key(|payment| std::cmp::Reverse(place(payment)));
    payments.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Stretch { payments, looked_to }.ended()
}

impl Stretch {
    /// Without what was found beyond its end: the next page begins there.
    fn ended(mut self) -> Self {
        let end = self.looked_to;
        self.payments
            .retain(|payment| end.is_none_or(|end| place(payment) >= end));
        self
    }
}

/// Where a payment stands in every list.
#[must_use]
pub fn place(payment: &Payment) -> Position {
    Position {
        created_at: payment.created_at,
        id: payment.id.0,
    }
}

/// One walk.
struct List<'a> {
    tenant: TenantId,
    filter: &'a PaymentFilter,
    walk: Walk,
    position: Option<Position>,
}

impl<'a> List<'a> {
    fn look(&self, connection: &mut PgConnection, limit: i64) -> QueryResult<Stretch> {
        let sieve = self.sieve();
        let open = sieve == Sieve::default();
        let walked = self.walked().limit(if open { limit } else { LOOKED_AT_MAX });
        let rows: Vec<PaymentRow> = Sieved { walked, sieve, limit }.load(connection)?;
        let payments: Vec<Payment> = rows
            .into_iter()
            .map(|row| row.into_payment().map(|(_, payment)| payment))
            .collect::<QueryResult<_>>()?;
        let full = i64::try_from(payments.len()).unwrap_or(i64::MAX) >= limit;
        let looked_to = match payments.last() {
            Some(last) if full => Some(place(last)),
            _ if open => None,
            _ => self.end_of_look(connection)?,
        };
        Ok(Stretch { payments, looked_to }.ended())
    }

    /// The last payment that may be looked at for one page. A payment that was added since the look makes it a newer one than was
    /// really the last; never an older one, so nothing is passed over.
    fn end_of_look(&self, connection: &mut PgConnection) -> QueryResult<Option<Position>> {
        let end = self
            .walked()
            .select((payments::created_at, payments::id))
            .offset(LOOKED_AT_MAX - 1)
            .limit(1);
        let end: Option<(DateTime<Utc>, Uuid)> = end.first(connection).optional()?;
        Ok(end.map(|(created_at, id)| Position { created_at, id }))
    }

    /// The walk, from its place in the index on.
    fn walked(&self) -> BoxedQuery<'a, Pg> {
        let filter = self.filter;
        let mut query = table
            .filter(payments::tenant_id.eq(self.tenant.0))
            .order((payments::created_at.desc(), payments::id.desc()))
            .into_boxed();
        query = match self.walk {
            Walk::Payer(id) => query.filter(payments::payer_account_id.eq(id.0)),
            Walk::Payee(id) => query.filter(payments::payee_account_id.eq(id.0)),
            // In the words of the index, with the zero in it: otherwise PostgreSQL can't know that it holds all that is asked for.
            Walk::Refunded => query.filter(sql::<Bool>("refunded_amount > 0")),
            Walk::Newest => query,
        };
        if let Some(position) = self.position {
            query = query.filter(after!(payments, position));
        }
        if let Some(id) = filter.id {
            query = query.filter(payments::id.eq(id.0));
        }
        if let Some(reference) = &filter.reference {
            query = query.filter(payments::reference.eq(reference));
        }
        if let Some(from) = filter.created_from {
            query = query.filter(payments::created_at.ge(from));
        }
        if let Some(to) = filter.created_to {
            query = query.filter(payments::created_at.lt(to));
        }
        query
    }

    /// What the walk does not see to by itself.
    fn sieve(&self) -> Sieve {
        let walked_by_account = matches!(self.walk, Walk::Payer(_) | Walk::Payee(_));
        Sieve {
            account: self.filter.account.filter(|_| !walked_by_account),
            status: self.filter.status,
        }
    }
}

/// Conditions on payments that a walk has come by.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sieve {
    account: Option<AccountId>,
    status: Option<PaymentStatus>,
}

/// The first of the walked payments that go through a sieve. Diesel can't say `FROM (SELECT …)`.
struct Sieved<'a> {
    walked: BoxedQuery<'a, Pg>,
    sieve: Sieve,
    limit: i64,
}

impl Query for Sieved<'_> {
    type SqlType = payments::SqlType;
}

impl RunQueryDsl<PgConnection> for Sieved<'_> {}

impl QueryId for Sieved<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl QueryFragment<Pg> for Sieved<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql("SELECT * FROM (");
        QueryFragment::<Pg>::walk_ast(&self.walked, out.reborrow())?;
        out.push_sql(") AS walked WHERE ");
        out.push_sql(match self.sieve.status {
            Some(PaymentStatus::Succeeded) => "refunded_amount = 0",
            Some(PaymentStatus::PartiallyRefunded) => "refunded_amount > 0 AND refunded_amount < amount",
            Some(PaymentStatus::Refunded) => "refunded_amount = amount",
            None => "true",
        });
        if let Some(AccountId(id)) = &self.sieve.account {
            out.push_sql(" AND ");
            out.push_bind_param::<SqlUuid, _>(id)?;
            out.push_sql(" IN (payer_account_id, payee_account_id)");
        }
        out.push_sql(" ORDER BY created_at DESC, id DESC LIMIT ");
        out.push_bind_param::<BigInt, _>(&self.limit)
    }
}
