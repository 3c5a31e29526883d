-- The largest amount and the largest balance of the API are 999 999 999 999 999.9999, the largest value of a
-- NUMERIC(19,4). The external account owes what all others hold together, so balances have a wider type.

CREATE TABLE accounts (
    tenant_id   uuid NOT NULL REFERENCES tenants,
    id          uuid NOT NULL,
    currency    text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    kind        text NOT NULL CHECK (kind IN ('standard', 'external')),
    status      text NOT NULL CHECK (status IN ('active', 'frozen', 'closed')),
    balance     numeric(28, 4) NOT NULL,
    entry_count bigint NOT NULL CHECK (entry_count >= 0),
    name        text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 255),
    reference   text CHECK (char_length(reference) BETWEEN 1 AND 255),
    metadata    jsonb CHECK (jsonb_typeof(metadata) = 'object'),
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    -- What the ledger's foreign keys point to: a transfer must be in its accounts' currency.
    CONSTRAINT accounts_currency UNIQUE (tenant_id, id, currency),
    CONSTRAINT accounts_no_overdraft CHECK (balance >= 0 OR kind = 'external'),
    CONSTRAINT accounts_largest_balance CHECK (balance <= 999999999999999.9999),
    CONSTRAINT accounts_closed_is_empty CHECK (status <> 'closed' OR balance = 0),
    CONSTRAINT accounts_external_is_active CHECK (kind <> 'external' OR status = 'active')
)
-- Room in each page, so that a balance update stays in it and touches no index (a HOT update).
WITH (fillfactor = 80);

COMMENT ON TABLE accounts IS 'Where money is. The balance is the sum of the account''s ledger entries; payonce audit proves it.';
COMMENT ON COLUMN accounts.kind IS 'standard: opened through the API, never below zero. external: the world outside, one per tenant and currency; deposits come from it, withdrawals go to it.';
COMMENT ON COLUMN accounts.status IS 'active; frozen: nothing may leave; closed: nothing may move, the balance is 0.';
COMMENT ON COLUMN accounts.balance IS 'Major currency units.';
COMMENT ON COLUMN accounts.entry_count IS 'How many ledger entries the account has: the number of the last one.';

CREATE UNIQUE INDEX accounts_external ON accounts (tenant_id, currency) WHERE kind = 'external';
CREATE INDEX accounts_newest ON accounts (tenant_id, created_at, id) WHERE kind = 'standard';
