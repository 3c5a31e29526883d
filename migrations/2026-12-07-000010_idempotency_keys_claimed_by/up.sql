-- A request whose commit was not heard of asks again under its key. It has to recognise its own work, also where that made
-- nothing that bears its id (a freeze, a refusal): else the first answer its caller hears is marked as a replay.
SET LOCAL lock_timeout = '5s';
ALTER TABLE idempotency_keys ADD COLUMN claimed_by uuid;
COMMENT ON COLUMN idempotency_keys.claimed_by IS 'The request that claimed the key, by the id that it would give to what it creates; NULL in rows from before this column.';
