//! What can be wrong with books: each corruption, and the laws that it breaks.

/// How a corruption is planted, and which laws it must break: these and no others, each with what its first broken row must name (`|`: or).
pub type Corruption = (&'static str, &'static [(&'static str, &'static str)]);

pub const CORRUPTIONS: &[Corruption] = &[
    (
        "UPDATE accounts SET balance = balance + CASE id WHEN '$ALICE' THEN 1 ELSE -1 END WHERE id IN ('$ALICE', '$WORLD')",
        &[("balance_is_sum", "$ALICE|$WORLD")],
    ),
    (
        "UPDATE accounts SET balance = balance + 1 WHERE id = '$ALICE'",
        &[("balance_is_sum", "$ALICE"), ("debits_are_credits", "USD")],
    ),
    (
        "UPDATE accounts SET balance = 1 WHERE id = '$EURO'",
        &[("balance_is_sum", "$EURO"), ("debits_are_credits", "EUR")],
    ),
    (
        "UPDATE transfers SET amount = amount + 1 WHERE id = '$WITHDRAWAL'",
        &[("balance_is_sum", "$BOB|$WORLD"), ("balances_follow", "$WITHDRAWAL")],
    ),
    (
        "DELETE FROM transfers WHERE id = '$WITHDRAWAL'",
        &[("balance_is_sum", "$BOB|$WORLD"), ("entry_count", "$BOB|$WORLD"), ("success_has_its_resource", "$WITHDRAWAL")],
    ),
    (
        "DELETE FROM transfers WHERE id = '$DEPOSIT'",
        &[("balance_is_sum", "$ALICE|$WORLD"), ("entries_are_numbered", "$ALICE|$WORLD"), ("balances_follow", "$ALICE|$WORLD"), ("success_has_its_resource", "$DEPOSIT")],
    ),
    (
        "UPDATE accounts SET entry_count = entry_count + 1 WHERE id = '$ALICE'",
        &[("entry_count", "$ALICE")],
    ),
    (
        "UPDATE accounts SET entry_count = 1 WHERE id = '$EURO'",
        &[("entry_count", "$EURO")],
    ),
    (
        "UPDATE accounts SET last_entry_at = last_entry_at - interval '1 second' WHERE id = '$ALICE'",
        &[("last_entry_at", "$ALICE")],
    ),
    (
        "ALTER TABLE accounts DROP CONSTRAINT accounts_closed_is_empty; UPDATE accounts SET status = 'closed' WHERE id = '$ALICE'",
        &[("closed_is_empty", "$ALICE")],
    ),
    (
        "UPDATE accounts SET currency = 'EUR' WHERE id = '$BOB'",
        &[("debits_are_credits", "EUR|USD"), ("one_currency", "")],
    ),
    (
        "DELETE FROM accounts WHERE id = '$BOB'",
        &[("debits_are_credits", "USD"), ("one_currency", ""), ("success_has_its_resource", "$BOB")],
    ),
    (
        "UPDATE transfers SET credit_entry_no = 50 WHERE id = '$REFUND'; UPDATE accounts SET entry_count = 50 WHERE id = '$ALICE'",
        &[("entries_are_numbered", "$REFUND")],
    ),
    (
        "UPDATE transfers SET debit_entry_no = 50 WHERE id = '$OTHER'",
        &[("entry_count", "$ALICE"), ("entries_are_numbered", "$ALICE"), ("balances_follow", "$ALICE"), ("entries_are_in_time_order", "$OTHER")],
    ),
    // Now two entries have the number 1.
    (
        "UPDATE transfers SET debit_entry_no = 1 WHERE id = '$OTHER'",
        &[
            ("entries_are_numbered", "$ALICE"),
            ("balances_follow", "$ALICE"),
            ("entries_are_in_time_order", "$ALICE"),
        ],
    ),
    (
        "UPDATE transfers SET debit_balance_after = 91 WHERE id = '$PAYMENT'",
        &[("balances_follow", "$PAYMENT")],
    ),
    (
        "UPDATE transfers SET credit_balance_after = 0 WHERE id = '$DEPOSIT'",
        &[("balances_follow", "$DEPOSIT")],
    ),
    (
        "UPDATE transfers SET credit_balance_after = credit_balance_after + 1 WHERE id = '$REFUND'",
        &[("balances_follow", "$REFUND")],
    ),
    (
        "UPDATE transfers SET created_at = created_at - interval '1 day' WHERE id = '$WITHDRAWAL'",
        &[("entries_are_in_time_order", "$WITHDRAWAL")],
    ),
    (
        "UPDATE transfers SET created_at = created_at + interval '1 minute' WHERE id = '$DEPOSIT'",
        &[("entries_are_in_time_order", "$ALICE|$WORLD")],
    ),
    (
        "ALTER TABLE accounts DROP CONSTRAINT accounts_no_overdraft;
         UPDATE transfers SET amount = amount - 95 WHERE id = '$DEPOSIT';
         UPDATE transfers SET debit_balance_after = debit_balance_after - 95 WHERE debit_account_id = '$ALICE';
         UPDATE transfers SET credit_balance_after = credit_balance_after - 95 WHERE credit_account_id = '$ALICE';
         UPDATE transfers SET debit_balance_after = debit_balance_after + 95 WHERE debit_account_id = '$WORLD';
         UPDATE transfers SET credit_balance_after = credit_balance_after + 95 WHERE credit_account_id = '$WORLD';
         UPDATE accounts SET balance = balance + CASE id WHEN '$ALICE' THEN -95 ELSE 95 END WHERE id IN ('$ALICE', '$WORLD')",
        &[("never_below_zero", "$PAYMENT")],
    ),
    (
        "ALTER TABLE accounts DROP CONSTRAINT accounts_no_overdraft; UPDATE accounts SET kind = 'standard' WHERE id = '$WORLD'",
        &[("never_below_zero", "$WORLD"), ("external_only_for_deposits_and_withdrawals", "$DEPOSIT")],
    ),
    (
        "UPDATE transfers SET currency = 'EUR' WHERE id = '$WITHDRAWAL'",
        &[("one_currency", "$WITHDRAWAL")],
    ),
    (
        "UPDATE transfers SET currency = 'EUR' WHERE id = '$PAYMENT'",
        &[("one_currency", "$PAYMENT"), ("payment_is_its_transfer", "$PAYMENT")],
    ),
    (
        "DELETE FROM accounts WHERE id = '$WORLD'",
        &[("debits_are_credits", "USD"), ("one_currency", "$DEPOSIT")],
    ),
    (
        "UPDATE transfers SET kind = 'withdrawal' WHERE id = '$DEPOSIT'; UPDATE idempotency_keys SET resource_kind = 'withdrawal' WHERE resource_id = '$DEPOSIT'",
        &[("external_only_for_deposits_and_withdrawals", "$DEPOSIT")],
    ),
    (
        "DELETE FROM payments WHERE id = '$OTHER'",
        &[("transfer_has_its_payment", "$OTHER")],
    ),
    (
        "UPDATE transfers SET kind = 'refund' WHERE id = '$OTHER'",
        &[("transfer_has_its_refund", "$OTHER"), ("payment_is_its_transfer", "$OTHER"), ("success_has_its_resource", "$OTHER")],
    ),
    (
        "DELETE FROM refunds WHERE id = '$REFUND'; UPDATE payments SET refunded_amount = 0 WHERE id = '$PAYMENT'",
        &[("transfer_has_its_refund", "$REFUND")],
    ),
    (
        "DELETE FROM refunds WHERE id = '$REFUND'",
        &[("transfer_has_its_refund", "$REFUND"), ("refunded_is_sum", "$PAYMENT")],
    ),
    (
        "UPDATE payments SET payee_account_id = '$CLOSED' WHERE id = '$OTHER'",
        &[("payment_is_its_transfer", "$OTHER")],
    ),
    (
        "UPDATE payments SET amount = amount + 1 WHERE id = '$OTHER'",
        &[("payment_is_its_transfer", "$OTHER")],
    ),
    (
        "UPDATE payments SET created_at = created_at + interval '1 second' WHERE id = '$OTHER'",
        &[("payment_is_its_transfer", "$OTHER")],
    ),
    (
        "UPDATE payments SET refunded_amount = 1 WHERE id = '$OTHER'",
        &[("refunded_is_sum", "$OTHER")],
    ),
    (
        "UPDATE payments SET refunded_amount = 0 WHERE id = '$PAYMENT'",
        &[("refunded_is_sum", "$PAYMENT")],
    ),
    (
        "ALTER TABLE payments DROP CONSTRAINT payments_refunded_within_amount;
         UPDATE payments SET refunded_amount = 11 WHERE id = '$PAYMENT'; UPDATE refunds SET amount = 11 WHERE id = '$REFUND';
         UPDATE transfers SET amount = 11, debit_balance_after = debit_balance_after - 7, credit_balance_after = credit_balance_after + 7
             WHERE id = '$REFUND';
         UPDATE transfers SET debit_balance_after = debit_balance_after - 7 WHERE id = '$WITHDRAWAL';
         UPDATE accounts SET balance = balance + CASE id WHEN '$ALICE' THEN 7 ELSE -7 END WHERE id IN ('$ALICE', '$BOB')",
        &[("refunded_at_most_amount", "$PAYMENT")],
    ),
    (
        "UPDATE refunds SET created_at = created_at + interval '1 second' WHERE id = '$REFUND'",
        &[("refund_is_its_transfer", "$REFUND")],
    ),
    (
        "UPDATE refunds SET amount = 3 WHERE id = '$REFUND'",
        &[("refunded_is_sum", "$PAYMENT"), ("refund_is_its_transfer", "$REFUND")],
    ),
    (
        "UPDATE refunds SET payment_id = '$UNKNOWN' WHERE id = '$REFUND'",
        &[("refunded_is_sum", "$PAYMENT"), ("refund_is_its_transfer", "$REFUND")],
    ),
    (
        "UPDATE idempotency_keys SET response_code = NULL, response_body = NULL WHERE key = '$REFUSED'",
        &[("key_is_answered", "$REFUSED")],
    ),
    (
        "UPDATE idempotency_keys SET resource_id = '$UNKNOWN' WHERE resource_id = '$CLOSED' AND response_code = 200",
        &[("success_has_its_resource", "$UNKNOWN")],
    ),
    (
        "UPDATE idempotency_keys SET resource_kind = NULL, resource_id = NULL WHERE key = '$KEY'",
        &[("transfer_has_its_key", "$PAYMENT"), ("success_has_its_resource", "$KEY")],
    ),
    (
        "DELETE FROM accounts WHERE id = '$EURO'",
        &[("success_has_its_resource", "$EURO")],
    ),
    (
        "UPDATE idempotency_keys SET resource_kind = 'account', resource_id = '$ALICE' WHERE key = '$REFUSED'",
        &[("refusal_made_nothing", "$REFUSED")],
    ),
    (
        "INSERT INTO idempotency_keys
         SELECT tenant_id, 'again', request_hash, request_path, response_code, response_body, resource_kind, resource_id, created_at, expires_at, forget_at
         FROM idempotency_keys WHERE key = '$KEY'",
        &[("made_once", "$PAYMENT")],
    ),
    (
        "UPDATE idempotency_keys SET resource_id = '$OTHER' WHERE key = '$KEY'",
        &[("transfer_has_its_key", "$PAYMENT"), ("made_once", "$OTHER")],
    ),
    (
        "DELETE FROM idempotency_keys WHERE key = '$KEY'",
        &[("transfer_has_its_key", "$PAYMENT")],
    ),
];

/// The laws that no corruption breaks alone. A transfer takes from one account what it gives another, so if each balance is the sum of its entries and
/// no transfer crosses currencies, debits are credits. It is the law that accountants ask for, and the one that needs no other to be believed.
pub const FOLLOWS_FROM_OTHERS: [&str; 1] = ["debits_are_credits"];
