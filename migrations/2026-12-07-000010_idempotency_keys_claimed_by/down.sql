ALTER TABLE idempotency_keys DROP COLUMN claimed_by;
