//! The database's own rules, the last line: each CHECK, key, foreign key and trigger has raw SQL that runs into it.

use std::collections::BTreeSet;

use diesel::connection::SimpleConnection;
use diesel::result::Error;

use crate::support::TestDatabase;

/// Names for ids that the SQL below uses.
const IDS: [(&str, &str); 11] = [
    ("$TENANT", "00000000-0000-7000-8000-00000000000a"),
    ("$OTHER", "00000000-0000-7000-8000-00000000000b"),
    ("$ALICE", "00000000-0000-7000-8000-000000000001"),
    ("$BOB", "00000000-0000-7000-8000-000000000002"),
    ("$EURO", "00000000-0000-7000-8000-000000000003"),
    ("$WORLD", "00000000-0000-7000-8000-000000000004"),
    ("$DEPOSIT", "00000000-0000-7000-8000-000000000011"),
    ("$PAYMENT", "00000000-0000-7000-8000-000000000012"),
    ("$REFUND", "00000000-0000-7000-8000-000000000013"),
    ("$SPARE", "00000000-0000-7000-8000-000000000014"),
    ("$NEW", "00000000-0000-7000-8000-0000000000ff"),
];

/// Small books that are right: Alice got 100, paid Bob 10, and got 4 back.
const BOOKS: &str = "
INSERT INTO tenants (tenant_id, name) VALUES ('$TENANT', 'a'), ('$OTHER', 'b');
INSERT INTO api_keys (tenant_id, prefix, key_hash, scopes) VALUES ('$TENANT', 'p', sha256('k'), '{read}');
INSERT INTO accounts (tenant_id, id, currency, kind, status, balance, entry_count, name, created_at) VALUES
    ('$TENANT', '$ALICE', 'USD', 'standard', 'active', 94, 3, 'Alice', now()),
    ('$TENANT', '$BOB', 'USD', 'standard', 'active', 6, 2, 'Bob', now()),
    ('$TENANT', '$EURO', 'EUR', 'standard', 'active', 0, 0, 'Euro', now()),
    ('$TENANT', '$WORLD', 'USD', 'external', 'active', -100, 1, 'external USD', now());
INSERT INTO transfers (tenant_id, id, kind, debit_account_id, credit_account_id, currency, amount,
    debit_balance_after, credit_balance_after, debit_entry_no, credit_entry_no, created_at) VALUES
    ('$TENANT', '$DEPOSIT', 'deposit', '$WORLD', '$ALICE', 'USD', 100, -100, 100, 1, 1, now()),
    ('$TENANT', '$PAYMENT', 'payment', '$ALICE', '$BOB', 'USD', 10, 90, 10, 2, 1, now()),
    ('$TENANT', '$REFUND', 'refund', '$BOB', '$ALICE', 'USD', 4, 6, 94, 2, 3, now()),
    ('$TENANT', '$SPARE', 'refund', '$BOB', '$ALICE', 'USD', 1, 5, 95, 3, 4, now());
INSERT INTO payments (tenant_id, id, payer_account_id, payee_account_id, currency, amount, refunded_amount, created_at)
    VALUES ('$TENANT', '$PAYMENT', '$ALICE', '$BOB', 'USD', 10, 4, now());
INSERT INTO refunds (tenant_id, id, payment_id, amount, created_at) VALUES ('$TENANT', '$REFUND', '$PAYMENT', 4, now());
INSERT INTO idempotency_keys (tenant_id, key, request_hash, request_path, response_code, response_body, resource_kind,
    resource_id, created_at, expires_at, forget_at) VALUES
    ('$TENANT', 'live', sha256('r'), '/payments', 201, '{}', 'payment', '$PAYMENT', now(), now() + interval '1 day', now() + interval '9 days'),
    ('$TENANT', 'late', sha256('r'), '/payments', 201, '{}', 'payment', '$PAYMENT', now() - interval '2 days', now() - interval '1 day', now() + interval '9 days'),
    ('$TENANT', 'gone', sha256('r'), '/payments', 402, '{}', NULL, NULL, now() - interval '9 days', now() - interval '8 days', now() - interval '1 day');
";

fn with_ids(sql: &str) -> String {
    IDS.iter().fold(sql.to_owned(), |sql, (name, id)| sql.replace(name, id))
}

fn books() -> TestDatabase {
    let database = TestDatabase::new();
    database.run(&with_ids(BOOKS));
    database
}

/// A copy of the row where `condition` holds, with some columns changed.
fn copy(table: &str, condition: &str, changes: &str) -> String {
    format!(
        "INSERT INTO {table} SELECT (jsonb_populate_record(r, $json${{{changes}}}$json$)).* FROM {table} r WHERE {condition}"
    )
}

/// Runs SQL and checks deferred constraints, in a transaction that is rolled back.
fn attempt(database: &TestDatabase, sql: &str) -> Result<(), Error> {
    let mut connection = database.connect();
    connection.batch_execute("BEGIN")?;
    connection.batch_execute(&with_ids(sql))?;
    connection.batch_execute("SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK")
}

fn accounts(changes: &str) -> String {
    let changes = format!(r#""id": "$NEW"{}{changes}"#, if changes.is_empty() { "" } else { ", " });
    copy("accounts", "id = '$ALICE'", &changes)
}

fn transfers(changes: &str) -> String {
    let changes = format!(r#""id": "$NEW", "debit_entry_no": 90, "credit_entry_no": 90, {changes}"#);
    copy("transfers", "id = '$PAYMENT'", &changes)
}

/// The id is that of a transfer that has no payment yet.
fn payments(changes: &str) -> String {
    copy("payments", "id = '$PAYMENT'", &format!(r#""id": "$SPARE", {changes}"#))
}

fn refunds(changes: &str) -> String {
    copy("refunds", "id = '$REFUND'", &format!(r#""id": "$SPARE", {changes}"#))
}

fn keys(changes: &str) -> String {
    copy(
        "idempotency_keys",
        "key = 'live'",
        &format!(r#""key": "new", {changes}"#),
    )
}

/// Each constraint with an attempt to break it.
fn attempts() -> Vec<(&'static str, String)> {
    let long = "x".repeat(501);
    let name = "x".repeat(256);
    let api_key = |changes: &str| copy("api_keys", "prefix = 'p'", changes);
    let tenant = |changes: &str| copy("tenants", "name = 'a'", &format!(r#""tenant_id": "$NEW", {changes}"#));
    let text = |member: &str, value: &str| format!(r#""{member}": "{value}""#);
    vec![
        ("tenants_pkey", copy("tenants", "name = 'a'", r#""name": "c""#)),
        ("tenants_name_key", tenant(r#""name": "b""#)),
        ("tenants_name_check", tenant(r#""name": """#)),
        ("api_keys_pkey", api_key(r#""scopes": ["write"]"#)),
        ("api_keys_tenant_id_fkey", api_key(r#""tenant_id": "$NEW""#)),
        (
            "api_keys_key_hash_check",
            api_key(r#""prefix": "q", "key_hash": "\\x00""#),
        ),
        (
            "api_keys_scopes_check",
            api_key(r#""prefix": "q", "scopes": ["admin"]"#),
        ),
        ("api_keys_scopes_check", api_key(r#""prefix": "q", "scopes": []"#)),
        (
            "accounts_pkey",
            copy("accounts", "id = '$ALICE'", r#""currency": "EUR""#),
        ),
        // The primary key would be faster to refuse this; it is out of the way for the rest of the transaction.
        (
            "accounts_currency",
            format!(
                "ALTER TABLE accounts DROP CONSTRAINT accounts_pkey; {}",
                copy("accounts", "id = '$ALICE'", "")
            ),
        ),
        ("accounts_external", accounts(r#""kind": "external""#)),
        ("accounts_tenant_id_fkey", accounts(r#""tenant_id": "$NEW""#)),
        ("accounts_currency_check", accounts(r#""currency": "usd""#)),
        ("accounts_kind_check", accounts(r#""kind": "other""#)),
        ("accounts_status_check", accounts(r#""status": "other""#)),
        ("accounts_entry_count_check", accounts(r#""entry_count": -1"#)),
        ("accounts_name_check", accounts(r#""name": """#)),
        ("accounts_name_check", accounts(&text("name", &name))),
        ("accounts_reference_check", accounts(r#""reference": """#)),
        ("accounts_metadata_check", accounts(r#""metadata": ["a"]"#)),
        ("accounts_no_overdraft", accounts(r#""balance": -0.01"#)),
        ("accounts_largest_balance", accounts(r#""balance": 1000000000000000"#)),
        ("accounts_closed_is_empty", accounts(r#""status": "closed""#)),
        (
            "accounts_external_is_active",
            "UPDATE accounts SET status = 'frozen' WHERE id = '$WORLD'".to_owned(),
        ),
        ("transfers_pkey", transfers(r#""id": "$DEPOSIT""#)),
        ("transfers_kind_check", transfers(r#""kind": "gift""#)),
        ("transfers_debit_entry_no_check", transfers(r#""debit_entry_no": 0"#)),
        ("transfers_credit_entry_no_check", transfers(r#""credit_entry_no": 0"#)),
        ("transfers_description_check", transfers(&text("description", &long))),
        ("transfers_amount_positive", transfers(r#""amount": 0"#)),
        ("transfers_amount_positive", transfers(r#""amount": -1"#)),
        (
            "transfers_two_accounts",
            transfers(r#""credit_account_id": "$ALICE", "credit_entry_no": 91"#),
        ),
        ("transfers_debit_account", transfers(r#""debit_account_id": "$NEW""#)),
        ("transfers_debit_account", transfers(r#""debit_account_id": "$EURO""#)),
        ("transfers_credit_account", transfers(r#""credit_account_id": "$NEW""#)),
        ("transfers_credit_account", transfers(r#""credit_account_id": "$EURO""#)),
        (
            "transfers_debit_account",
            transfers(r#""currency": "EUR", "credit_account_id": "$EURO""#),
        ),
        ("transfers_debit_account", transfers(r#""tenant_id": "$OTHER""#)),
        ("transfers_debit_entry", transfers(r#""debit_entry_no": 2"#)),
        ("transfers_credit_entry", transfers(r#""credit_entry_no": 1"#)),
        ("payments_pkey", copy("payments", "id = '$PAYMENT'", r#""amount": 11"#)),
        ("payments_description_check", payments(&text("description", &long))),
        ("payments_reference_check", payments(r#""reference": """#)),
        ("payments_metadata_check", payments(r#""metadata": 1"#)),
        (
            "payments_amount_positive",
            payments(r#""amount": 0, "refunded_amount": 0"#),
        ),
        (
            "payments_refunded_within_amount",
            payments(r#""refunded_amount": 10.01"#),
        ),
        (
            "payments_refunded_within_amount",
            payments(r#""refunded_amount": -0.01"#),
        ),
        ("payments_two_accounts", payments(r#""payee_account_id": "$ALICE""#)),
        ("payments_payer", payments(r#""payer_account_id": "$EURO""#)),
        ("payments_payee", payments(r#""payee_account_id": "$NEW""#)),
        ("payments_transfer", payments(r#""id": "$NEW""#)),
        ("refunds_pkey", copy("refunds", "id = '$REFUND'", r#""amount": 1"#)),
        ("refunds_amount_positive", refunds(r#""amount": 0"#)),
        ("refunds_reason_check", refunds(&text("reason", &long))),
        ("refunds_payment", refunds(r#""payment_id": "$NEW""#)),
        ("refunds_transfer", refunds(r#""id": "$NEW""#)),
        ("idempotency_keys_pkey", keys(r#""key": "live""#)),
        ("idempotency_keys_key_check", keys(r#""key": """#)),
        ("idempotency_keys_key_check", keys(r#""key": "a b""#)),
        ("idempotency_keys_key_check", keys(&text("key", &name))),
        (
            "idempotency_keys_request_hash_check",
            keys(r#""request_hash": "\\x00""#),
        ),
        (
            "idempotency_keys_resource_kind_check",
            keys(r#""resource_kind": "gift""#),
        ),
        ("idempotency_keys_times", keys(r#""expires_at": "2000-01-01""#)),
        ("idempotency_keys_times", keys(r#""forget_at": "2000-01-01""#)),
        ("idempotency_keys_resource", keys(r#""resource_id": null"#)),
        // Answered without a body; a body without an answer; a body that is said to be erased.
        ("idempotency_keys_state", keys(r#""response_body": null"#)),
        ("idempotency_keys_state", keys(r#""response_code": null"#)),
        ("idempotency_keys_state", keys(r#""erased_at": "2026-01-01""#)),
        (
            "idempotency_keys_answered",
            keys(r#""response_code": null, "response_body": null, "resource_kind": null, "resource_id": null"#),
        ),
    ]
}

/// C2, and all its kind: a rule that only the program keeps is one program error, or one hand-written UPDATE, from being broken.
#[test]
fn every_constraint_refuses_what_it_is_there_to_refuse() {
    let database = books();
    for (constraint, sql) in attempts() {
        match attempt(&database, &sql) {
            Err(Error::DatabaseError(_, info)) => {
                assert_eq!(info.constraint_name(), Some(constraint), "{}: {sql}", info.message());
            }
            other => panic!("{constraint}: {other:?}: {sql}"),
        }
    }
}

/// A constraint that a later migration adds has no test until somebody writes one: this fails until then.
#[test]
fn every_constraint_of_the_schema_has_an_attempt_above() {
    let database = TestDatabase::new();
    let exist: BTreeSet<String> = database
        .lines(
            "SELECT conname::text AS value FROM pg_constraint
             WHERE connamespace = 'public'::regnamespace AND conrelid <> '__diesel_schema_migrations'::regclass
             UNION SELECT indexrelid::regclass::text FROM pg_index
             WHERE indisunique AND indrelid <> '__diesel_schema_migrations'::regclass
               AND indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)",
        )
        .into_iter()
        .collect();
    let tried: BTreeSet<String> = attempts().into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(tried, exist);
}

/// C2: the fault of half the double-entry libraries: two transactions read 100 and both take it.
#[test]
fn a_standard_account_can_not_be_taken_below_zero_by_raw_sql() {
    let database = books();
    for sql in [
        "UPDATE accounts SET balance = balance - 94.01 WHERE id = '$ALICE'",
        "UPDATE accounts SET balance = -1 WHERE id = '$BOB'",
        "UPDATE accounts SET kind = 'standard' WHERE id = '$WORLD'",
    ] {
        match attempt(&database, sql) {
            Err(Error::DatabaseError(_, info)) => assert_eq!(info.constraint_name(), Some("accounts_no_overdraft")),
            other => panic!("{other:?}: {sql}"),
        }
    }
    attempt(&database, "UPDATE accounts SET balance = 0 WHERE id = '$ALICE'").unwrap();
}

/// Each trigger with what it refuses, and words of its refusal.
const TRIGGERS: [(&str, &str, &str); 12] = [
    (
        "transfers_append_only",
        "UPDATE transfers SET amount = 1",
        "append-only: UPDATE on transfers",
    ),
    (
        "transfers_append_only",
        "DELETE FROM transfers WHERE id = '$SPARE'",
        "append-only: DELETE on transfers",
    ),
    (
        "transfers_no_truncate",
        "TRUNCATE transfers CASCADE",
        "append-only: TRUNCATE on transfers",
    ),
    (
        "refunds_append_only",
        "UPDATE refunds SET amount = 1",
        "append-only: UPDATE on refunds",
    ),
    (
        "refunds_append_only",
        "DELETE FROM refunds",
        "append-only: DELETE on refunds",
    ),
    (
        "refunds_no_truncate",
        "TRUNCATE refunds",
        "append-only: TRUNCATE on refunds",
    ),
    (
        "idempotency_keys_never_change",
        "UPDATE idempotency_keys SET response_body = 'x' WHERE key = 'live'",
        "never changes: UPDATE",
    ),
    (
        "idempotency_keys_never_change",
        "UPDATE idempotency_keys SET response_body = NULL, erased_at = now() WHERE key = 'live'",
        "never changes: UPDATE",
    ),
    (
        "idempotency_keys_never_change",
        "UPDATE idempotency_keys SET response_body = NULL, erased_at = now(), forget_at = forget_at + interval '1 day' WHERE key = 'late'",
        "never changes: UPDATE",
    ),
    (
        "idempotency_keys_never_change",
        "UPDATE idempotency_keys SET response_code = 402 WHERE key = 'late'",
        "never changes: UPDATE",
    ),
    (
        "idempotency_keys_keep",
        "DELETE FROM idempotency_keys WHERE key = 'late'",
        "never changes: DELETE",
    ),
    (
        "idempotency_keys_no_truncate",
        "TRUNCATE idempotency_keys",
        "never changes: TRUNCATE",
    ),
];

/// A ledger that can be edited proves nothing. Without its trigger each of these statements would go through.
#[test]
fn every_trigger_refuses_what_nothing_else_would_refuse() {
    let database = books();
    for (trigger, sql, words) in TRIGGERS {
        match attempt(&database, sql) {
            Err(Error::DatabaseError(_, info)) => {
                assert!(info.message().contains(words), "{trigger}: {}", info.message());
            }
            other => panic!("{trigger}: {other:?}: {sql}"),
        }
        let table = trigger.split("_append").next().unwrap();
        let table = table.split("_no_truncate").next().unwrap();
        let table = table.split("_never").next().unwrap().split("_keep").next().unwrap();
        let also = if sql.contains("CASCADE") {
            "ALTER TABLE refunds DISABLE TRIGGER refunds_no_truncate;"
        } else {
            ""
        };
        let without = format!(
            "SET CONSTRAINTS ALL IMMEDIATE; {also} ALTER TABLE {table} DISABLE TRIGGER {trigger};
             ALTER TABLE payments DROP CONSTRAINT payments_transfer; ALTER TABLE refunds DROP CONSTRAINT refunds_transfer; {sql}"
        );
        attempt(&database, &without).unwrap_or_else(|error| panic!("{trigger} is not what refuses {sql}: {error}"));
    }
}

/// The same for triggers: a new one without a test fails here. The announcement of changed API keys refuses nothing,
/// nor does the time of an account's last entry (`clock.rs`).
#[test]
fn every_trigger_of_the_schema_has_an_attempt_above() {
    let database = TestDatabase::new();
    let exist: BTreeSet<String> = database
        .lines("SELECT tgname::text AS value FROM pg_trigger WHERE NOT tgisinternal")
        .into_iter()
        .collect();
    let tried = TRIGGERS.iter().map(|(name, ..)| (*name).to_owned());
    let tried: BTreeSet<String> = tried
        .chain(["idempotency_keys_answered", "api_keys_announce", "accounts_last_entry"].map(str::to_owned))
        .collect();
    assert_eq!(tried, exist);
}

/// What the guard must let through: the clean-up's two steps, and nothing earlier than their time.
#[test]
fn the_guard_of_stored_responses_lets_the_clean_up_through() {
    let database = books();
    attempt(
        &database,
        "UPDATE idempotency_keys SET response_body = NULL, erased_at = now() WHERE key = 'late'",
    )
    .unwrap();
    attempt(&database, "DELETE FROM idempotency_keys WHERE key = 'gone'").unwrap();
}

/// A claim without an answer is a key that is "in progress" for ever. The commit itself refuses it.
#[test]
fn a_claim_without_an_answer_can_not_be_committed() {
    let database = books();
    let claim = keys(r#""response_code": null, "response_body": null, "resource_kind": null, "resource_id": null"#);
    let mut connection = database.connect();
    connection.batch_execute("BEGIN").unwrap();
    connection.batch_execute(&with_ids(&claim)).unwrap();
    match connection.batch_execute("COMMIT") {
        Err(Error::DatabaseError(_, info)) => assert_eq!(info.constraint_name(), Some("idempotency_keys_answered")),
        other => panic!("{other:?}"),
    }
    let left = "SELECT count(*) FROM idempotency_keys WHERE key = 'new'";
    assert_eq!(database.number(left), 0);
    // Answered in the same transaction, it can.
    let answered = format!(
        "BEGIN; {claim}; UPDATE idempotency_keys SET response_code = 200, response_body = 'x' WHERE key = 'new'; COMMIT"
    );
    database.run(&with_ids(&answered));
    assert_eq!(database.number(left), 1);
}

/// Larger than the largest amount is not rounded and not cut: the type has no room for it.
#[test]
fn a_balance_or_an_amount_beyond_the_largest_can_not_be_stored() {
    let database = books();
    let largest = "999999999999999.9999";
    attempt(
        &database,
        &format!("UPDATE accounts SET balance = {largest} WHERE id = '$ALICE'"),
    )
    .unwrap();
    for sql in [
        format!("UPDATE accounts SET balance = {largest} + 0.0001 WHERE id = '$ALICE'"),
        transfers(r#""amount": 1000000000000000"#),
    ] {
        attempt(&database, &sql).unwrap_err();
    }
}
