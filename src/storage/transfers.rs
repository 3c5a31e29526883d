//! The table `transfers`: the ledger.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Nullable, Numeric, Text, Timestamptz, Uuid as SqlUuid};
use rust_decimal::Decimal;
use uuid::Uuid;

use super::batch_query::batch_query;
use super::rows;
use super::schema::transfers::{self, table};
use crate::domain::transfer::Side;
use crate::domain::{AccountId, Description, TenantId, Transfer, TransferKind};

batch_query! {
    /// New rows of the ledger.
    Insert -> () {
        "INSERT INTO transfers \
             (tenant_id, id, kind, debit_account_id, credit_account_id, currency, amount, \
              debit_balance_after, credit_balance_after, debit_entry_no, credit_entry_no, description, created_at) \
         SELECT * FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [kinds: Vec<&'static str> as Array<Text>]
        ", " [debit_account_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [credit_account_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [currencies: Vec<&'static str> as Array<Text>]
        ", " [amounts: Vec<Decimal> as Array<Numeric>]
        ", " [debit_balances_after: Vec<Decimal> as Array<Numeric>]
        ", " [credit_balances_after: Vec<Decimal> as Array<Numeric>]
        ", " [debit_entry_nos: Vec<i64> as Array<BigInt>]
        ", " [credit_entry_nos: Vec<i64> as Array<BigInt>]
        ", " [descriptions: Vec<Option<String>> as Array<Nullable<Text>>]
        ", " [created_at: Vec<DateTime<Utc>> as Array<Timestamptz>]
        ")"
    }
}

/// Appends transfers to the ledger.
///
/// # Errors
/// Diesel's.
pub fn insert<'a>(
    connection: &mut PgConnection,
    new: impl Iterator<Item = (TenantId, &'a Transfer)>,
) -> QueryResult<()> {
    let mut query = Insert {
        tenant_ids: Vec::new(),
        ids: Vec::new(),
        kinds: Vec::new(),
        debit_account_ids: Vec::new(),
        credit_account_ids: Vec::new(),
        currencies: Vec::new(),
        amounts: Vec::new(),
        debit_balances_after: Vec::new(),
        credit_balances_after: Vec::new(),
        debit_entry_nos: Vec::new(),
        credit_entry_nos: Vec::new(),
        descriptions: Vec::new(),
        created_at: Vec::new(),
    };
    for (tenant, transfer) in new {
        query.tenant_ids.push(tenant.0);
        query.ids.push(transfer.id);
        query.kinds.push(transfer.kind.as_str());
        query.debit_account_ids.push(transfer.debit.account.0);
        query.credit_account_ids.push(transfer.credit.account.0);
        query.currencies.push(transfer.amount.currency().code());
        query.amounts.push(transfer.amount.value());
        query.debit_balances_after.push(transfer.debit.balance_after);
        query.credit_balances_after.push(transfer.credit.balance_after);
        query.debit_entry_nos.push(transfer.debit.entry_no);
        query.credit_entry_nos.push(transfer.credit.entry_no);
        query.descriptions.push(
            transfer
                .description
                .as_ref()
                .map(Description::as_str)
                .map(str::to_owned),
        );
        query.created_at.push(transfer.created_at);
    }
    if query.ids.is_empty() {
        return Ok(());
    }
    query.execute(connection).map(drop)
}

#[derive(Queryable)]
struct TransferRow {
    _tenant_id: Uuid,
    id: Uuid,
    kind: String,
    debit_account_id: Uuid,
    credit_account_id: Uuid,
    currency: String,
    amount: Decimal,
    debit_balance_after: Decimal,
    credit_balance_after: Decimal,
    debit_entry_no: i64,
    credit_entry_no: i64,
    description: Option<String>,
    created_at: DateTime<Utc>,
}

impl TransferRow {
    fn into_transfer(self) -> QueryResult<Transfer> {
        let currency = rows::currency(&self.currency)?;
        Ok(Transfer {
            id: self.id,
            kind: rows::named(&self.kind, TransferKind::parse)?,
            amount: rows::amount(self.amount, currency)?,
            debit: Side {
                account: AccountId(self.debit_account_id),
                entry_no: self.debit_entry_no,
                balance_after: currency.exact(self.debit_balance_after),
            },
            credit: Side {
                account: AccountId(self.credit_account_id),
                entry_no: self.credit_entry_no,
                balance_after: currency.exact(self.credit_balance_after),
            },
            description: rows::description(self.description)?,
            created_at: self.created_at,
        })
    }
}

/// A transfer of the tenant, if it is of this kind: how a deposit or withdrawal is read.
///
/// # Errors
/// Diesel's.
pub fn find(
    connection: &mut PgConnection,
    tenant: TenantId,
    kind: TransferKind,
    id: Uuid,
) -> QueryResult<Option<Transfer>> {
    let row: Option<TransferRow> = table
        .find((tenant.0, id))
        .filter(transfers::kind.eq(kind.as_str()))
        .first(connection)
        .optional()?;
    row.map(TransferRow::into_transfer).transpose()
}
