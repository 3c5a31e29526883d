DROP TABLE idempotency_keys;
DROP FUNCTION refuse_unanswered_claim();
DROP FUNCTION guard_stored_response();
