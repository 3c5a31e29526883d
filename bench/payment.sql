-- One payment as one would write it by hand: the statements of engine/transaction.rs, for one command.
\set a random(1, 1000)
\set b 1 + (:a + random(0, 998)) % 1000
\set n random(1, 9000000000000000000)
BEGIN;
INSERT INTO idempotency_keys (tenant_id, key, request_hash, request_path, created_at, expires_at, forget_at) VALUES (:tenant::uuid, 'pgbench-' || :n::text, sha256(:n::text::bytea), '/payments', now(), now() + interval '1 day', now() + interval '91 days') ON CONFLICT DO NOTHING RETURNING tenant_id, key, created_at;
SELECT tenant_id, id, currency, kind, status, balance, entry_count, name, reference, metadata, created_at, clock_timestamp() FROM accounts WHERE tenant_id = :tenant::uuid AND id IN (md5('account' || :a::text)::uuid, md5('account' || :b::text)::uuid) ORDER BY tenant_id, id FOR NO KEY UPDATE;
UPDATE accounts SET balance = balance + CASE id WHEN md5('account' || :a::text)::uuid THEN -0.01 ELSE 0.01 END, entry_count = entry_count + 1 WHERE tenant_id = :tenant::uuid AND id IN (md5('account' || :a::text)::uuid, md5('account' || :b::text)::uuid);
INSERT INTO transfers (tenant_id, id, kind, debit_account_id, credit_account_id, currency, amount, debit_balance_after, credit_balance_after, debit_entry_no, credit_entry_no, created_at) SELECT :tenant::uuid, md5(:n::text)::uuid, 'payment', d.id, c.id, 'USD', 0.01, d.balance, c.balance, d.entry_count, c.entry_count, now() FROM accounts d, accounts c WHERE d.tenant_id = :tenant::uuid AND d.id = md5('account' || :a::text)::uuid AND c.tenant_id = :tenant::uuid AND c.id = md5('account' || :b::text)::uuid;
INSERT INTO payments (tenant_id, id, payer_account_id, payee_account_id, currency, amount, refunded_amount, created_at) VALUES (:tenant::uuid, md5(:n::text)::uuid, md5('account' || :a::text)::uuid, md5('account' || :b::text)::uuid, 'USD', 0.01, 0, now());
UPDATE idempotency_keys SET response_code = 201, response_body = convert_to('{"id":"' || md5(:n::text)::uuid || '","payer_account_id":"' || md5('account' || :a::text)::uuid || '","payee_account_id":"' || md5('account' || :b::text)::uuid || '","amount":"0.01","currency":"USD","refunded_amount":"0.00","status":"succeeded","description": null,"reference": null,"metadata": null,"created_at":"' || now() || '"}', 'UTF8'), resource_kind = 'payment', resource_id = md5(:n::text)::uuid WHERE tenant_id = :tenant::uuid AND key = 'pgbench-' || :n::text;
COMMIT;
