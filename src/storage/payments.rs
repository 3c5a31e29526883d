//! The table `payments`.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Array, Jsonb, Nullable, Numeric, Text, Timestamptz, Uuid as SqlUuid};
use rust_decimal::Decimal;
use serde_json::Value;
use uuid::Uuid;

use super::batch_query::batch_query;
use super::rows;
use super::schema::payments::{self, table};
use crate::domain::{AccountId, Description, Payment, PaymentId, Reference, TenantId};

#[derive(Queryable)]
pub(super) struct PaymentRow {
    tenant_id: Uuid,
    id: Uuid,
    payer_account_id: Uuid,
    payee_account_id: Uuid,
    currency: String,
    amount: Decimal,
    refunded_amount: Decimal,
    description: Option<String>,
    reference: Option<String>,
    metadata: Option<Value>,
    created_at: DateTime<Utc>,
}

impl PaymentRow {
    pub(super) fn into_payment(self) -> QueryResult<(TenantId, Payment)> {
        let currency = rows::currency(&self.currency)?;
        let payment = Payment {
            id: PaymentId(self.id),
            payer: AccountId(self.payer_account_id),
            payee: AccountId(self.payee_account_id),
            amount: rows::amount(self.amount, currency)?,
            refunded: currency.exact(self.refunded_amount),
            description: rows::description(self.description)?,
            reference: rows::reference(self.reference)?,
            metadata: rows::metadata(self.metadata)?,
            created_at: self.created_at,
        };
        Ok((TenantId(self.tenant_id), payment))
    }
}

batch_query! {
    /// Locks payments that are to be refunded, in the one order that all instances keep.
    Lock -> payments::SqlType {
        "SELECT tenant_id, id, payer_account_id, payee_account_id, currency, amount, refunded_amount, \
                description, reference, metadata, created_at \
         FROM payments \
         WHERE (tenant_id, id) IN (SELECT * FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [ids: Vec<Uuid> as Array<SqlUuid>]
        ")) \
         ORDER BY tenant_id, id \
         FOR NO KEY UPDATE"
    }
}

/// Locks the payments that exist.
///
/// # Errors
/// Diesel's.
pub fn lock(
    connection: &mut PgConnection,
    ids: impl Iterator<Item = (TenantId, PaymentId)>,
) -> QueryResult<Vec<(TenantId, Payment)>> {
    let (tenant_ids, ids): (_, Vec<_>) = ids.map(|(tenant, id)| (tenant.0, id.0)).unzip();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<PaymentRow> = Lock { tenant_ids, ids }.load(connection)?;
    rows.into_iter().map(PaymentRow::into_payment).collect()
}

batch_query! {
    /// New payments.
    Insert -> () {
        "INSERT INTO payments \
             (tenant_id, id, payer_account_id, payee_account_id, currency, amount, refunded_amount, \
              description, reference, metadata, created_at) \
         SELECT n.tenant_id, n.id, n.payer, n.payee, n.currency, n.amount, n.refunded, \
                n.description, n.reference, n.metadata, n.created_at \
         FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [payers: Vec<Uuid> as Array<SqlUuid>]
        ", " [payees: Vec<Uuid> as Array<SqlUuid>]
        ", " [currencies: Vec<&'static str> as Array<Text>]
        ", " [amounts: Vec<Decimal> as Array<Numeric>]
        ", " [refunded: Vec<Decimal> as Array<Numeric>]
        ", " [descriptions: Vec<Option<String>> as Array<Nullable<Text>>]
        ", " [references: Vec<Option<String>> as Array<Nullable<Text>>]
        ", " [metadata: Vec<Option<Value>> as Array<Nullable<Jsonb>>]
        ", " [created_at: Vec<DateTime<Utc>> as Array<Timestamptz>]
        ") AS n (tenant_id, id, payer, payee, currency, amount, refunded, description, reference, metadata, created_at)"
    }
}

/// Inserts new payments.
///
/// # Errors
/// Diesel's.
pub fn insert<'a>(
    connection: &mut PgConnection,
    new: impl Iterator<Item = (TenantId, &'a Payment)>,
) -> QueryResult<()> {
    let mut query = Insert {
        tenant_ids: Vec::new(),
        ids: Vec::new(),
        payers: Vec::new(),
        payees: Vec::new(),
        currencies: Vec::new(),
        amounts: Vec::new(),
        refunded: Vec::new(),
        descriptions: Vec::new(),
        references: Vec::new(),
        metadata: Vec::new(),
        created_at: Vec::new(),
    };
    for (tenant, payment) in new {
        query.tenant_ids.push(tenant.0);
        query.ids.push(payment.id.0);
        query.payers.push(payment.payer.0);
        query.payees.push(payment.payee.0);
        query.currencies.push(payment.currency().code());
        query.amounts.push(payment.amount.value());
        query.refunded.push(payment.refunded);
        query
            .descriptions
            .push(payment.description.as_ref().map(Description::as_str).map(str::to_owned));
        query
            .references
            .push(payment.reference.as_ref().map(Reference::as_str).map(str::to_owned));
        query.metadata.push(rows::metadata_json(payment.metadata.as_ref()));
        query.created_at.push(payment.created_at);
    }
    if query.ids.is_empty() {
        return Ok(());
    }
    query.execute(connection).map(drop)
}

batch_query! {
    /// Writes how much of payments went back.
    WriteRefunded -> () {
        "UPDATE payments p SET refunded_amount = w.refunded_amount \
         FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [refunded: Vec<Decimal> as Array<Numeric>]
        ") AS w (tenant_id, id, refunded_amount) \
         WHERE p.tenant_id = w.tenant_id AND p.id = w.id"
    }
}

/// Writes the refunded amount of locked payments.
///
/// # Errors
/// Diesel's.
pub fn write_refunded<'a>(
    connection: &mut PgConnection,
    changed: impl Iterator<Item = (TenantId, &'a Payment)>,
) -> QueryResult<()> {
    let mut query = WriteRefunded {
        tenant_ids: Vec::new(),
        ids: Vec::new(),
        refunded: Vec::new(),
    };
    for (tenant, payment) in changed {
        query.tenant_ids.push(tenant.0);
        query.ids.push(payment.id.0);
        query.refunded.push(payment.refunded);
    }
    if query.ids.is_empty() {
        return Ok(());
    }
    query.execute(connection).map(drop)
}

/// A payment of the tenant.
///
/// # Errors
/// Diesel's.
pub fn find(connection: &mut PgConnection, tenant: TenantId, id: PaymentId) -> QueryResult<Option<Payment>> {
    let row: Option<PaymentRow> = table.find((tenant.0, id.0)).first(connection).optional()?;
    Ok(row
        .map(PaymentRow::into_payment)
        .transpose()?
        .map(|(_, payment)| payment))
}
