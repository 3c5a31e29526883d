//! The table `refunds`.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Array, Nullable, Numeric, Text, Timestamptz, Uuid as SqlUuid};
use rust_decimal::Decimal;
use uuid::Uuid;

use super::batch_query::batch_query;
use super::rows::{self, Position, after};
use super::schema::{payments, refunds};
use crate::domain::{Description, PaymentId, Refund, RefundId, TenantId};

batch_query! {
    /// New refunds.
    Insert -> () {
        "INSERT INTO refunds (tenant_id, id, payment_id, amount, reason, created_at) \
         SELECT * FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [payment_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [amounts: Vec<Decimal> as Array<Numeric>]
        ", " [reasons: Vec<Option<String>> as Array<Nullable<Text>>]
        ", " [created_at: Vec<DateTime<Utc>> as Array<Timestamptz>]
        ")"
    }
}

/// Inserts new refunds.
///
/// # Errors
/// Diesel's.
pub fn insert<'a>(connection: &mut PgConnection, new: impl Iterator<Item = (TenantId, &'a Refund)>) -> QueryResult<()> {
    let mut query = Insert {
        tenant_ids: Vec::new(),
        ids: Vec::new(),
        payment_ids: Vec::new(),
        amounts: Vec::new(),
        reasons: Vec::new(),
        created_at: Vec::new(),
    };
    for (tenant, refund) in new {
        query.tenant_ids.push(tenant.0);
        query.ids.push(refund.id.0);
        query.payment_ids.push(refund.payment.0);
        query.amounts.push(refund.amount.value());
        query
            .reasons
            .push(refund.reason.as_ref().map(Description::as_str).map(str::to_owned));
        query.created_at.push(refund.created_at);
    }
    if query.ids.is_empty() {
        return Ok(());
    }
    query.execute(connection).map(drop)
}

/// A refund's currency is its payment's.
#[derive(Queryable)]
struct RefundRow {
    id: Uuid,
    payment_id: Uuid,
    amount: Decimal,
    currency: String,
    reason: Option<String>,
    created_at: DateTime<Utc>,
}

impl RefundRow {
    fn into_refund(self) -> QueryResult<Refund> {
        Ok(Refund {
            id: RefundId(self.id),
            payment: PaymentId(self.payment_id),
            amount: rows::amount(self.amount, rows::currency(&self.currency)?)?,
            reason: rows::description(self.reason)?,
            created_at: self.created_at,
        })
    }
}

#[diesel::dsl::auto_type]
fn with_currency() -> _ {
    refunds::table
        .inner_join(
            payments::table.on(payments::tenant_id
                .eq(refunds::tenant_id)
                .and(payments::id.eq(refunds::payment_id))),
        )
        .select((
            refunds::id,
            refunds::payment_id,
            refunds::amount,
            payments::currency,
            refunds::reason,
            refunds::created_at,
        ))
}

/// A refund of the tenant.
///
/// # Errors
/// Diesel's.
pub fn find(connection: &mut PgConnection, tenant: TenantId, id: RefundId) -> QueryResult<Option<Refund>> {
    let row: Option<RefundRow> = with_currency()
        .filter(refunds::tenant_id.eq(tenant.0))
        .filter(refunds::id.eq(id.0))
        .first(connection)
        .optional()?;
    row.map(RefundRow::into_refund).transpose()
}

/// At most `limit` refunds of a payment, newest first, after the one at `position`.
///
/// # Errors
/// Diesel's.
pub fn list(
    connection: &mut PgConnection,
    tenant: TenantId,
    payment: PaymentId,
    position: Option<Position>,
    limit: i64,
) -> QueryResult<Vec<Refund>> {
    let mut query = with_currency()
        .filter(refunds::tenant_id.eq(tenant.0))
        .filter(refunds::payment_id.eq(payment.0))
        .order((refunds::created_at.desc(), refunds::id.desc()))
        .limit(limit)
        .into_boxed();
    if let Some(position) = position {
        query = query.filter(after!(refunds, position));
    }
    let rows: Vec<RefundRow> = query.load(connection)?;
    rows.into_iter().map(RefundRow::into_refund).collect()
}
