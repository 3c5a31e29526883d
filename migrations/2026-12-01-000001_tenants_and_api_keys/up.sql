-- Who may call. Every other table starts with tenant_id: that keeps tenants apart
-- inside the database, and lets the tables be distributed by tenant later on.

CREATE TABLE tenants (
    tenant_id  uuid PRIMARY KEY,
    name       text NOT NULL UNIQUE CHECK (char_length(name) BETWEEN 1 AND 255),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE tenants IS 'One customer of the service; nothing of one tenant is ever visible to another.';

CREATE TABLE api_keys (
    tenant_id  uuid NOT NULL REFERENCES tenants,
    prefix     text NOT NULL,
    key_hash   bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    scopes     text[] NOT NULL CHECK (scopes <@ ARRAY['read', 'write'] AND cardinality(scopes) > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    PRIMARY KEY (tenant_id, prefix)
);
COMMENT ON TABLE api_keys IS 'Bearer keys. The key itself is shown once, when it is made, and never stored.';
COMMENT ON COLUMN api_keys.prefix IS 'The visible beginning of the key: names it in lists and in api-key revoke.';
COMMENT ON COLUMN api_keys.key_hash IS 'SHA-256 of the whole key. The key has 256 random bits, so a plain hash can not be guessed back.';

-- A request brings only the key, not the tenant, so this index alone does not start with tenant_id.
CREATE INDEX api_keys_by_hash ON api_keys (key_hash);

-- Running services cache keys; they hear of a revocation the moment it commits.
CREATE FUNCTION announce_api_key_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('payonce_api_keys', '');
    RETURN NULL;
END $$;
CREATE TRIGGER api_keys_announce AFTER UPDATE OR DELETE ON api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION announce_api_key_change();
