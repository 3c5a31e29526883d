//! The tables as Diesel sees them. A test compares them with the migrated database.

use diesel::{allow_tables_to_appear_in_same_query, table};

table! {
    tenants (tenant_id) {
        tenant_id -> Uuid,
        name -> Text,
        created_at -> Timestamptz,
    }
}

table! {
    api_keys (tenant_id, prefix) {
        tenant_id -> Uuid,
        prefix -> Text,
        key_hash -> Bytea,
        scopes -> Array<Text>,
        created_at -> Timestamptz,
        expires_at -> Nullable<Timestamptz>,
        revoked_at -> Nullable<Timestamptz>,
    }
}

table! {
    accounts (tenant_id, id) {
        tenant_id -> Uuid,
        id -> Uuid,
        currency -> Text,
        kind -> Text,
        status -> Text,
        balance -> Numeric,
        entry_count -> Int8,
        name -> Text,
        reference -> Nullable<Text>,
        metadata -> Nullable<Jsonb>,
        created_at -> Timestamptz,
        last_entry_at -> Nullable<Timestamptz>,
    }
}

table! {
    transfers (tenant_id, id) {
        tenant_id -> Uuid,
        id -> Uuid,
        kind -> Text,
        debit_account_id -> Uuid,
        credit_account_id -> Uuid,
        currency -> Text,
        amount -> Numeric,
        debit_balance_after -> Numeric,
        credit_balance_after -> Numeric,
        debit_entry_no -> Int8,
        credit_entry_no -> Int8,
        description -> Nullable<Text>,
        created_at -> Timestamptz,
    }
}

table! {
    payments (tenant_id, id) {
        tenant_id -> Uuid,
        id -> Uuid,
        payer_account_id -> Uuid,
        payee_account_id -> Uuid,
        currency -> Text,
        amount -> Numeric,
        refunded_amount -> Numeric,
        description -> Nullable<Text>,
        reference -> Nullable<Text>,
        metadata -> Nullable<Jsonb>,
        created_at -> Timestamptz,
    }
}

table! {
    refunds (tenant_id, id) {
        tenant_id -> Uuid,
        id -> Uuid,
        payment_id -> Uuid,
        amount -> Numeric,
        reason -> Nullable<Text>,
        created_at -> Timestamptz,
    }
}

table! {
    idempotency_keys (tenant_id, key) {
        tenant_id -> Uuid,
        key -> Text,
        request_hash -> Bytea,
        request_path -> Text,
        response_code -> Nullable<Int2>,
        response_body -> Nullable<Bytea>,
        resource_kind -> Nullable<Text>,
        resource_id -> Nullable<Uuid>,
        created_at -> Timestamptz,
        expires_at -> Timestamptz,
        forget_at -> Timestamptz,
        erased_at -> Nullable<Timestamptz>,
        claimed_by -> Nullable<Uuid>,
    }
}

table! {
    /// A view: each transfer as its two entries.
    ledger_entries (tenant_id, account_id, entry_no) {
        tenant_id -> Uuid,
        id -> Uuid,
        account_id -> Uuid,
        entry_no -> Int8,
        kind -> Text,
        amount -> Numeric,
        currency -> Text,
        balance_after -> Numeric,
        payment_id -> Nullable<Uuid>,
        refund_id -> Nullable<Uuid>,
        created_at -> Timestamptz,
    }
}

allow_tables_to_appear_in_same_query!(payments, refunds);
allow_tables_to_appear_in_same_query!(api_keys, tenants);
