-- A tenant with 1,000 accounts of 1,000,000.00 USD each. The ids are made from their numbers, so that pgbench and wrk
-- can name them. The money comes from the external account, by transfers like any other, each with
-- its key: the audit must hold afterwards.
\set ON_ERROR_STOP on
SELECT tenant_id AS tenant FROM tenants WHERE name = 'bench' \gset

BEGIN;
INSERT INTO accounts (tenant_id, id, currency, kind, status, balance, entry_count, name, created_at)
SELECT :'tenant', md5('account' || n)::uuid, 'USD', 'standard', 'active', 1000000, 1, 'account ' || n, now()
FROM generate_series(1, 1000) n;
INSERT INTO accounts (tenant_id, id, currency, kind, status, balance, entry_count, name, created_at)
SELECT :'tenant', md5('external')::uuid, 'USD', 'external', 'active', -1000000.0 * 1000, 1000, 'external USD', now();
INSERT INTO transfers (tenant_id, id, kind, debit_account_id, credit_account_id, currency, amount,
                       debit_balance_after, credit_balance_after, debit_entry_no, credit_entry_no, created_at)
SELECT :'tenant', md5('deposit' || n)::uuid, 'deposit', md5('external')::uuid, md5('account' || n)::uuid, 'USD', 1000000,
       -1000000.0 * n, 1000000, n, 1, now()
FROM generate_series(1, 1000) n;
INSERT INTO idempotency_keys (tenant_id, key, request_hash, request_path, response_code, response_body,
                              resource_kind, resource_id, created_at, expires_at, forget_at)
SELECT :'tenant', 'deposit-' || n, sha256(n::text::bytea), '/accounts/' || md5('account' || n)::uuid || '/deposits', 201, '{}',
       'deposit', md5('deposit' || n)::uuid, now(), now() + interval '1 day', now() + interval '91 days'
FROM generate_series(1, 1000) n;
COMMIT;
VACUUM ANALYZE;
