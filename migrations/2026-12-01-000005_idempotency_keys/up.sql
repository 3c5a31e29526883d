-- The memory that makes a retry safe. A row is inserted (claimed) and completed in the same
-- transaction as the effect it guards, so no other transaction ever sees a claim without its
-- response, and there is no state "processing" that a crash could leave behind.

CREATE TABLE idempotency_keys (
    tenant_id     uuid NOT NULL,
    -- Byte order: the locks on keys are taken in it, by every instance alike.
    key           text COLLATE "C" NOT NULL CHECK (key ~ '^[!-~]+$' AND octet_length(key) <= 255),
    request_hash  bytea NOT NULL CHECK (octet_length(request_hash) = 32),
    request_path  text NOT NULL,
    response_code smallint,
    -- bytea, not jsonb or text: a replay is byte for byte what the first caller got.
    response_body bytea,
    resource_kind text CHECK (resource_kind IN ('account', 'deposit', 'withdrawal', 'payment', 'refund')),
    resource_id   uuid,
    created_at    timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL,
    forget_at     timestamptz NOT NULL,
    erased_at     timestamptz,
    PRIMARY KEY (tenant_id, key),
    CONSTRAINT idempotency_keys_times CHECK (created_at <= expires_at AND expires_at <= forget_at),
    CONSTRAINT idempotency_keys_resource CHECK ((resource_kind IS NULL) = (resource_id IS NULL)),
    -- Claimed (inside its transaction only), completed, or erased. Nothing else.
    CONSTRAINT idempotency_keys_state CHECK (
        CASE WHEN response_code IS NULL
             THEN response_body IS NULL AND resource_id IS NULL AND erased_at IS NULL
             ELSE (response_body IS NULL) = (erased_at IS NOT NULL)
        END)
    -- No foreign key to tenants: every claim would share-lock the tenant's one row.
)
-- The response is written into the claimed row: leave room for it in the page (a HOT update).
WITH (fillfactor = 50);

COMMENT ON TABLE idempotency_keys IS 'One row for each Idempotency-Key of a tenant: what was asked, what was answered, what came of it.';
COMMENT ON COLUMN idempotency_keys.request_hash IS 'SHA-256 of the request''s meaning (idempotency/request_hash.rs): the same key with another hash is refused.';
COMMENT ON COLUMN idempotency_keys.response_code IS 'HTTP status of the stored response; NULL only inside the claiming transaction.';
COMMENT ON COLUMN idempotency_keys.response_body IS 'The stored response, byte for byte; NULL once erased.';
COMMENT ON COLUMN idempotency_keys.resource_id IS 'What the request created or changed; NULL for a refusal.';
COMMENT ON COLUMN idempotency_keys.expires_at IS 'Until then the response is replayed, from then on the key answers 410.';
COMMENT ON COLUMN idempotency_keys.forget_at IS 'From then on the key is free again and the row may be deleted.';
COMMENT ON COLUMN idempotency_keys.erased_at IS 'When the clean-up erased the body and left this tombstone.';

-- The clean-up's two queues. Completing a claim changes neither.
CREATE INDEX idempotency_keys_to_erase ON idempotency_keys (expires_at) WHERE erased_at IS NULL;
CREATE INDEX idempotency_keys_to_forget ON idempotency_keys (forget_at) WHERE erased_at IS NOT NULL;

-- A stored response never changes. After its window its body may be erased; after the
-- tombstone's the row may go. That is all.
CREATE FUNCTION guard_stored_response() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.erased_at IS NULL AND OLD.expires_at <= now() THEN
        OLD.response_body := NULL;
        OLD.erased_at := NEW.erased_at;
        IF NEW = OLD AND NEW.erased_at IS NOT NULL THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'a stored response never changes: % of an idempotency key refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER idempotency_keys_never_change BEFORE UPDATE ON idempotency_keys
    FOR EACH ROW WHEN (OLD.response_code IS NOT NULL) EXECUTE FUNCTION guard_stored_response();
CREATE TRIGGER idempotency_keys_keep BEFORE DELETE ON idempotency_keys
    FOR EACH ROW WHEN (OLD.forget_at > now()) EXECUTE FUNCTION guard_stored_response();
CREATE TRIGGER idempotency_keys_no_truncate BEFORE TRUNCATE ON idempotency_keys
    FOR EACH STATEMENT EXECUTE FUNCTION guard_stored_response();

-- A claim without a response can not be committed: looked at when the transaction commits,
-- because inside it the claim comes first and the response last.
CREATE FUNCTION refuse_unanswered_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM idempotency_keys k
               WHERE k.tenant_id = NEW.tenant_id AND k.key = NEW.key AND k.response_code IS NULL) THEN
        RAISE EXCEPTION 'an idempotency key was claimed but not answered'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'idempotency_keys_answered';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER idempotency_keys_answered AFTER INSERT ON idempotency_keys
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse_unanswered_claim();
