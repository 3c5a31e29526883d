//! The laws of the books: what must hold for all rows at all times, each as a sentence and the query that finds the rows that break it.
//!
//! Every query answers with the same four columns: whose row it is, which one, what it should be, and what it is. `slice` stands for
//! some thousand rows of the table that the law is over ([`super::audit`] walks it). To each of them a query looks
//! up what it needs by an index, so it costs what those rows cost, however large the ledger is.
//!
//! Together they are more than one by one. Entries are numbered 1, 2, 3, … up to the account's count, each follows from the one
//! before, and the balance is the sum of all: so every balance that was ever seen was right.

/// A table that is walked from its first row to its last, in the order of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Where money is.
    Accounts,
    /// The statements of all accounts, one after the other. A row knows the one before it: `before_no`, `before_balance`, `before_at`.
    Entries,
    /// The ledger.
    Transfers,
    /// Charges.
    Payments,
    /// Money given back.
    Refunds,
    /// What was asked and answered.
    Keys,
}

/// How a law is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Each row by itself, so in slices.
    Slices,
    /// All rows at once. A key is random, and no index leads to it from what it made: one would cost every payment. So here whole tables are
    /// compared by their hashes, for which PostgreSQL takes no more memory than `work_mem`, and temporary files for the rest.
    Whole,
}

/// Something that must hold.
#[derive(Debug)]
pub struct Law {
    /// Its name, for machines.
    pub id: &'static str,
    /// What must hold, for people.
    pub law: &'static str,
    /// The table whose rows keep it or break it.
    pub over: Table,
    /// All at once or not.
    pub check: Check,
    /// Finds the rows that break it: `tenant_id uuid`, `at jsonb`, `expected text`, `found text`.
    pub(super) query: &'static str,
}

/// All laws.
pub const LAWS: &[Law] = &[
    Law {
        id: "balance_is_sum",
        law: "each balance is the sum of the account's entries",
        over: Table::Accounts,
        check: Check::Slices,
        query: "SELECT a.tenant_id, jsonb_build_object('account_id', a.id) AS at, e.sum::text AS expected, a.balance::text AS found
                FROM slice a
                CROSS JOIN LATERAL (SELECT coalesce(sum(amount), 0) AS sum FROM ledger_entries e
                                    WHERE e.tenant_id = a.tenant_id AND e.account_id = a.id) e
                WHERE a.balance <> e.sum",
    },
    Law {
        id: "entry_count",
        law: "each account's entry count is the number of its last entry",
        over: Table::Accounts,
        check: Check::Slices,
        query: "SELECT a.tenant_id, jsonb_build_object('account_id', a.id) AS at,
                       coalesce(e.entry_no, 0)::text AS expected, a.entry_count::text AS found
                FROM slice a
                LEFT JOIN LATERAL (SELECT entry_no FROM ledger_entries e
                                   WHERE e.tenant_id = a.tenant_id AND e.account_id = a.id
                                   ORDER BY entry_no DESC LIMIT 1) e ON true
                WHERE a.entry_count <> coalesce(e.entry_no, 0)",
    },
    Law {
        // The next entry is stamped after this time. NULL: not known, so the last entry is looked up.
        id: "last_entry_at",
        law: "each account knows the time of its last entry, or a later one",
        over: Table::Accounts,
        check: Check::Slices,
        query: "SELECT a.tenant_id, jsonb_build_object('account_id', a.id) AS at, e.created_at || ' or later' AS expected, a.last_entry_at::text AS found
                FROM slice a
                JOIN ledger_entries e ON e.tenant_id = a.tenant_id AND e.account_id = a.id AND e.entry_no = a.entry_count
                WHERE a.last_entry_at < e.created_at",
    },
    Law {
        id: "closed_is_empty",
        law: "no closed account holds money",
        over: Table::Accounts,
        check: Check::Slices,
        query: "SELECT tenant_id, jsonb_build_object('account_id', id) AS at, '0' AS expected, balance::text AS found
                FROM slice
                WHERE status = 'closed' AND balance <> 0",
    },
    Law {
        id: "debits_are_credits",
        law: "in each tenant and currency debits are credits: all balances sum up to zero",
        over: Table::Accounts,
        check: Check::Whole,
        query: "SELECT tenant_id, jsonb_build_object('currency', currency) AS at, '0' AS expected, sum(balance)::text AS found
                FROM accounts
                GROUP BY tenant_id, currency
                HAVING sum(balance) <> 0",
    },
    Law {
        id: "entries_are_numbered",
        law: "each account's entries are numbered 1, 2, 3, … without a gap",
        over: Table::Entries,
        check: Check::Slices,
        query: "SELECT tenant_id, jsonb_build_object('account_id', account_id, 'transfer_id', id) AS at,
                       (coalesce(before_no, 0) + 1)::text AS expected, entry_no::text AS found
                FROM slice
                WHERE entry_no <> coalesce(before_no, 0) + 1",
    },
    Law {
        id: "balances_follow",
        law: "each entry's balance is the one before plus its amount",
        over: Table::Entries,
        check: Check::Slices,
        query: "SELECT tenant_id, jsonb_build_object('account_id', account_id, 'entry_no', entry_no, 'transfer_id', id) AS at,
                       (coalesce(before_balance, 0) + amount)::text AS expected, balance_after::text AS found
                FROM slice
                WHERE balance_after <> coalesce(before_balance, 0) + amount",
    },
    Law {
        id: "entries_are_in_time_order",
        law: "no entry is older than the one before",
        over: Table::Entries,
        check: Check::Slices,
        query: "SELECT tenant_id, jsonb_build_object('account_id', account_id, 'entry_no', entry_no, 'transfer_id', id) AS at,
                       before_at || ' or later' AS expected, created_at::text AS found
                FROM slice
                WHERE created_at < before_at",
    },
    Law {
        id: "never_below_zero",
        law: "no standard account was ever below zero",
        over: Table::Entries,
        check: Check::Slices,
        query: "SELECT e.tenant_id, jsonb_build_object('account_id', e.account_id, 'entry_no', e.entry_no, 'transfer_id', e.id) AS at,
                       '0 or more' AS expected, e.balance_after::text AS found
                FROM slice e
                JOIN accounts a ON a.tenant_id = e.tenant_id AND a.id = e.account_id
                WHERE a.kind = 'standard' AND e.balance_after < 0",
    },
    Law {
        id: "one_currency",
        law: "each transfer is in the currency of its two accounts",
        over: Table::Transfers,
        check: Check::Slices,
        query: "SELECT t.tenant_id, jsonb_build_object('transfer_id', t.id) AS at, (t.currency, t.currency)::text AS expected,
                       (coalesce(d.currency, 'no account'), coalesce(c.currency, 'no account'))::text AS found
                FROM slice t
                LEFT JOIN accounts d ON d.tenant_id = t.tenant_id AND d.id = t.debit_account_id
                LEFT JOIN accounts c ON c.tenant_id = t.tenant_id AND c.id = t.credit_account_id
                WHERE (d.currency, c.currency) IS DISTINCT FROM (t.currency, t.currency)",
    },
    Law {
        id: "external_only_for_deposits_and_withdrawals",
        law: "deposits come from the external account, withdrawals go to it, payments and refunds do neither",
        over: Table::Transfers,
        check: Check::Slices,
        query: "SELECT t.tenant_id, jsonb_build_object('transfer_id', t.id) AS at, way.expected, way.found
                FROM slice t
                JOIN accounts d ON d.tenant_id = t.tenant_id AND d.id = t.debit_account_id
                JOIN accounts c ON c.tenant_id = t.tenant_id AND c.id = t.credit_account_id
                CROSS JOIN LATERAL (SELECT CASE t.kind WHEN 'deposit' THEN 'external to standard'
                                                       WHEN 'withdrawal' THEN 'standard to external'
                                                       ELSE 'standard to standard' END AS expected,
                                           d.kind || ' to ' || c.kind AS found) way
                WHERE way.found <> way.expected",
    },
    Law {
        id: "transfer_has_its_payment",
        law: "each transfer of a payment has that payment",
        over: Table::Transfers,
        check: Check::Slices,
        query: "SELECT t.tenant_id, jsonb_build_object('transfer_id', t.id) AS at, 'a payment' AS expected, 'none' AS found
                FROM slice t
                WHERE t.kind = 'payment'
                  AND NOT EXISTS (SELECT FROM payments p WHERE p.tenant_id = t.tenant_id AND p.id = t.id)",
    },
    Law {
        id: "transfer_has_its_refund",
        law: "each transfer of a refund has that refund",
        over: Table::Transfers,
        check: Check::Slices,
        query: "SELECT t.tenant_id, jsonb_build_object('transfer_id', t.id) AS at, 'a refund' AS expected, 'none' AS found
                FROM slice t
                WHERE t.kind = 'refund'
                  AND NOT EXISTS (SELECT FROM refunds r WHERE r.tenant_id = t.tenant_id AND r.id = t.id)",
    },
    Law {
        // How long keys are remembered is read off the keys themselves; it is never less than the shortest window. A
        // transfer may be younger than its key by as long as it waited for locks.
        id: "transfer_has_its_key",
        law: "each transfer has the key that made it, as long as keys are remembered",
        over: Table::Transfers,
        check: Check::Whole,
        query: "SELECT t.tenant_id, jsonb_build_object('transfer_id', t.id) AS at, 'a key' AS expected, 'none' AS found
                FROM transfers t
                WHERE t.created_at > now() + interval '10 minutes'
                      - coalesce((SELECT min(forget_at - created_at) FROM idempotency_keys), interval '1 hour')
                  AND NOT EXISTS (SELECT FROM idempotency_keys k
                                  WHERE k.tenant_id = t.tenant_id AND k.resource_id = t.id AND k.response_code = 201)",
    },
    Law {
        id: "payment_is_its_transfer",
        law: "each payment has exactly its transfer: the same accounts, amount, currency and time",
        over: Table::Payments,
        check: Check::Slices,
        query: "SELECT p.tenant_id, jsonb_build_object('payment_id', p.id) AS at,
                       (p.payer_account_id, p.payee_account_id, p.amount, p.currency, p.created_at)::text AS expected,
                       (t.debit_account_id, t.credit_account_id, t.amount, t.currency, t.created_at)::text AS found
                FROM slice p
                LEFT JOIN transfers t ON t.tenant_id = p.tenant_id AND t.id = p.id AND t.kind = 'payment'
                WHERE (t.debit_account_id, t.credit_account_id, t.amount, t.currency, t.created_at)
                      IS DISTINCT FROM (p.payer_account_id, p.payee_account_id, p.amount, p.currency, p.created_at)",
    },
    Law {
        id: "refunded_is_sum",
        law: "each refunded amount is the sum of the payment's refunds",
        over: Table::Payments,
        check: Check::Slices,
        query: "SELECT p.tenant_id, jsonb_build_object('payment_id', p.id) AS at, r.sum::text AS expected, p.refunded_amount::text AS found
                FROM slice p
                CROSS JOIN LATERAL (SELECT coalesce(sum(amount), 0) AS sum FROM refunds r
                                    WHERE r.tenant_id = p.tenant_id AND r.payment_id = p.id) r
                WHERE p.refunded_amount <> r.sum",
    },
    Law {
        id: "refunded_at_most_amount",
        law: "no payment is refunded by more than its amount",
        over: Table::Payments,
        check: Check::Slices,
        query: "SELECT tenant_id, jsonb_build_object('payment_id', id) AS at, 'at most ' || amount AS expected, refunded_amount::text AS found
                FROM slice
                WHERE refunded_amount > amount",
    },
    Law {
        id: "refund_is_its_transfer",
        law: "each refund has exactly its transfer: back from the payment's payee to its payer, the same amount, currency and time",
        over: Table::Refunds,
        check: Check::Slices,
        query: "SELECT r.tenant_id, jsonb_build_object('refund_id', r.id) AS at,
                       (p.payee_account_id, p.payer_account_id, r.amount, p.currency, r.created_at)::text AS expected,
                       (t.debit_account_id, t.credit_account_id, t.amount, t.currency, t.created_at)::text AS found
                FROM slice r
                LEFT JOIN payments p ON p.tenant_id = r.tenant_id AND p.id = r.payment_id
                LEFT JOIN transfers t ON t.tenant_id = r.tenant_id AND t.id = r.id AND t.kind = 'refund'
                WHERE (t.debit_account_id, t.credit_account_id, t.amount, t.currency, t.created_at)
                      IS DISTINCT FROM (p.payee_account_id, p.payer_account_id, r.amount, p.currency, r.created_at)",
    },
    Law {
        id: "key_is_answered",
        law: "no idempotency key is without an answer",
        over: Table::Keys,
        check: Check::Whole,
        query: "SELECT tenant_id, jsonb_build_object('key', key) AS at, 'a response' AS expected, 'none' AS found
                FROM idempotency_keys
                WHERE response_code IS NULL",
    },
    Law {
        id: "success_has_its_resource",
        law: "each stored success has its resource",
        over: Table::Keys,
        check: Check::Whole,
        query: "SELECT k.tenant_id, jsonb_build_object('key', k.key, 'resource_id', k.resource_id) AS at,
                       coalesce(k.resource_kind, 'a resource') AS expected, 'none' AS found
                FROM idempotency_keys k
                LEFT JOIN transfers t ON t.tenant_id = k.tenant_id AND t.id = k.resource_id AND t.kind = k.resource_kind
                LEFT JOIN accounts a ON a.tenant_id = k.tenant_id AND a.id = k.resource_id AND k.resource_kind = 'account'
                WHERE k.response_code < 300 AND t.id IS NULL AND a.id IS NULL",
    },
    Law {
        id: "refusal_made_nothing",
        law: "no stored refusal has a resource",
        over: Table::Keys,
        check: Check::Whole,
        query: "SELECT tenant_id, jsonb_build_object('key', key, 'resource_id', resource_id) AS at,
                       'nothing' AS expected, resource_kind AS found
                FROM idempotency_keys
                WHERE response_code >= 300 AND resource_id IS NOT NULL",
    },
    Law {
        id: "made_once",
        law: "no two keys made the same resource",
        over: Table::Keys,
        check: Check::Whole,
        query: "SELECT tenant_id, jsonb_build_object('resource_id', resource_id) AS at, '1 key' AS expected, count(*) || ' keys' AS found
                FROM idempotency_keys
                WHERE response_code = 201
                GROUP BY tenant_id, resource_kind, resource_id
                HAVING count(*) > 1",
    },
];
