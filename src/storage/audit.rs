//! One query for each law of the books. A query finds the first row that breaks its law; none found is the proof.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_query;
use diesel::sql_types::Text;

/// Something that must hold for all rows at all times.
#[derive(Debug, Clone, Copy)]
pub struct Law {
    /// What must hold.
    pub law: &'static str,
    /// Finds rows that break it, as one text column `broken`; the first is enough.
    query: &'static str,
}

/// All laws.
pub const LAWS: &[Law] = &[
    Law {
        law: "each balance is the sum of its entries",
        query: "SELECT format('account %s has balance %s, its entries sum up to %s', a.id, a.balance, coalesce(e.sum, 0)) AS broken \
                FROM accounts a \
                LEFT JOIN (SELECT tenant_id, account_id, sum(amount) AS sum FROM ledger_entries GROUP BY 1, 2) e \
                     ON e.tenant_id = a.tenant_id AND e.account_id = a.id \
                WHERE a.balance <> coalesce(e.sum, 0)",
    },
    Law {
        law: "each account's entries are numbered 1, 2, 3, … without a gap, up to its entry count",
        query: "SELECT format('account %s has %s entries, numbered up to %s, and counts %s', a.id, coalesce(e.n, 0), coalesce(e.last, 0), a.entry_count) AS broken \
                FROM accounts a \
                LEFT JOIN (SELECT tenant_id, account_id, count(*) AS n, count(DISTINCT entry_no) AS numbers, max(entry_no) AS last \
                           FROM ledger_entries GROUP BY 1, 2) e ON e.tenant_id = a.tenant_id AND e.account_id = a.id \
                WHERE (coalesce(e.n, 0), coalesce(e.numbers, 0), coalesce(e.last, 0)) <> (a.entry_count, a.entry_count, a.entry_count)",
    },
    Law {
        law: "each entry's balance is the one before plus its amount",
        query: "SELECT format('entry %s of account %s: %s after %s and %s', entry_no, account_id, balance_after, before, amount) AS broken \
                FROM (SELECT *, coalesce(lag(balance_after) OVER (PARTITION BY tenant_id, account_id ORDER BY entry_no), 0) AS before \
                      FROM ledger_entries) e \
                WHERE balance_after <> before + amount",
    },
    Law {
        law: "each account's entries are in the order of their times",
        query: "SELECT format('entry %s of account %s is older than the one before', entry_no, account_id) AS broken \
                FROM (SELECT *, lag(created_at) OVER (PARTITION BY tenant_id, account_id ORDER BY entry_no) AS before \
                      FROM ledger_entries) e \
                WHERE created_at < before",
    },
    Law {
        law: "no standard account was ever below zero",
        query: "SELECT format('account %s had %s after entry %s', a.id, e.balance_after, e.entry_no) AS broken \
                FROM ledger_entries e JOIN accounts a ON a.tenant_id = e.tenant_id AND a.id = e.account_id \
                WHERE a.kind = 'standard' AND e.balance_after < 0",
    },
    Law {
        law: "in each tenant and currency debits are credits: all balances sum up to zero",
        query: "SELECT format('tenant %s is out of balance by %s %s', tenant_id, sum(balance), currency) AS broken \
                FROM accounts GROUP BY tenant_id, currency HAVING sum(balance) <> 0",
    },
    Law {
        law: "each transfer is in the currency of its accounts",
        query: "SELECT format('transfer %s is in %s', t.id, t.currency) AS broken FROM transfers t \
                LEFT JOIN accounts d ON d.tenant_id = t.tenant_id AND d.id = t.debit_account_id AND d.currency = t.currency \
                LEFT JOIN accounts c ON c.tenant_id = t.tenant_id AND c.id = t.credit_account_id AND c.currency = t.currency \
                WHERE d.id IS NULL OR c.id IS NULL",
    },
    Law {
        law: "each payment has exactly its transfer, and each such transfer its payment",
        query: "SELECT format('payment %s and its transfer differ, or one is missing', coalesce(p.id, t.id)) AS broken \
                FROM payments p FULL JOIN (SELECT * FROM transfers WHERE kind = 'payment') t ON t.tenant_id = p.tenant_id AND t.id = p.id \
                WHERE (p.payer_account_id, p.payee_account_id, p.amount, p.currency, p.created_at) \
                      IS DISTINCT FROM (t.debit_account_id, t.credit_account_id, t.amount, t.currency, t.created_at)",
    },
    Law {
        law: "each refund has exactly its transfer, back from payee to payer, and each such transfer its refund",
        query: "SELECT format('refund %s and its transfer differ, or one is missing', coalesce(r.id, t.id)) AS broken \
                FROM (SELECT r.*, p.payer_account_id, p.payee_account_id, p.currency \
                      FROM refunds r JOIN payments p ON p.tenant_id = r.tenant_id AND p.id = r.payment_id) r \
                FULL JOIN (SELECT * FROM transfers WHERE kind = 'refund') t ON t.tenant_id = r.tenant_id AND t.id = r.id \
                WHERE (r.payee_account_id, r.payer_account_id, r.amount, r.currency, r.created_at) \
                      IS DISTINCT FROM (t.debit_account_id, t.credit_account_id, t.amount, t.currency, t.created_at)",
    },
    Law {
        law: "each refunded amount is the sum of the refunds and at most the payment",
        query: "SELECT format('payment %s of %s has %s refunded, its refunds sum up to %s', p.id, p.amount, p.refunded_amount, coalesce(r.sum, 0)) AS broken \
                FROM payments p \
                LEFT JOIN (SELECT tenant_id, payment_id, sum(amount) AS sum FROM refunds GROUP BY 1, 2) r \
                     ON r.tenant_id = p.tenant_id AND r.payment_id = p.id \
                WHERE p.refunded_amount <> coalesce(r.sum, 0) OR p.refunded_amount > p.amount",
    },
    Law {
        law: "deposits and withdrawals are against the external account, payments and refunds are not",
        query: "SELECT format('transfer %s (%s) goes from %s to %s', t.id, t.kind, d.kind, c.kind) AS broken FROM transfers t \
                JOIN accounts d ON d.tenant_id = t.tenant_id AND d.id = t.debit_account_id \
                JOIN accounts c ON c.tenant_id = t.tenant_id AND c.id = t.credit_account_id \
                WHERE (d.kind = 'external') <> (t.kind = 'deposit') OR (c.kind = 'external') <> (t.kind = 'withdrawal')",
    },
    Law {
        law: "no closed account holds money",
        query: "SELECT format('account %s is closed and holds %s', id, balance) AS broken FROM accounts WHERE status = 'closed' AND balance <> 0",
    },
    Law {
        law: "no idempotency key is without an answer",
        query: "SELECT format('key %s has no response', key) AS broken FROM idempotency_keys WHERE response_code IS NULL",
    },
    Law {
        law: "each stored 201 has its resource",
        query: "SELECT format('key %s answers 201, but its %s %s does not exist', k.key, k.resource_kind, k.resource_id) AS broken \
                FROM idempotency_keys k \
                LEFT JOIN transfers t ON t.tenant_id = k.tenant_id AND t.id = k.resource_id AND t.kind = k.resource_kind \
                LEFT JOIN accounts a ON a.tenant_id = k.tenant_id AND a.id = k.resource_id AND k.resource_kind = 'account' \
                WHERE (k.response_code = 201) AND t.id IS NULL AND a.id IS NULL",
    },
    Law {
        law: "no two keys made the same resource",
        query: "SELECT format('%s %s was made by %s keys', resource_kind, resource_id, count(*)) AS broken FROM idempotency_keys \
                WHERE response_code = 201 GROUP BY tenant_id, resource_kind, resource_id HAVING count(*) > 1",
    },
    Law {
        // How long keys are remembered is read off the keys themselves; it is never less than the shortest window. A
        // transfer may be younger than its key by as long as it waited for locks.
        law: "each transfer has the key that made it, as long as keys are remembered",
        query: "SELECT format('%s %s was made without a key', t.kind, t.id) AS broken FROM transfers t \
                LEFT JOIN idempotency_keys k ON k.tenant_id = t.tenant_id AND k.resource_id = t.id AND k.response_code = 201 \
                WHERE k.key IS NULL AND t.created_at > now() + interval '10 minutes' \
                      - coalesce((SELECT min(forget_at - created_at) FROM idempotency_keys), interval '1 hour')",
    },
];

/// Prepares a session for the laws. They compare whole tables, and for that only a hash join is right: its cost does not explode when
/// the planner's statistics lag behind a fast-growing table, as those of nested loops and merge joins over one tenant do.
///
/// # Errors
/// Diesel's.
pub fn prepare(connection: &mut PgConnection) -> QueryResult<()> {
    connection.batch_execute("SET enable_nestloop = off; SET enable_mergejoin = off")
}

#[derive(QueryableByName)]
struct Broken {
    #[diesel(sql_type = Text)]
    broken: String,
}

impl Law {
    /// The first row that breaks the law, in words.
    ///
    /// # Errors
    /// Diesel's.
    pub fn first_broken(self, connection: &mut PgConnection) -> QueryResult<Option<String>> {
        let first: Option<Broken> = sql_query(format!("{} LIMIT 1", self.query))
            .get_result(connection)
            .optional()?;
        Ok(first.map(|row| row.broken))
    }
}
