-- Double entry by construction: one row is one debit, one credit, one amount, one currency.
-- An unbalanced ledger can not be written down.

CREATE TABLE transfers (
    tenant_id            uuid NOT NULL,
    id                   uuid NOT NULL,
    kind                 text NOT NULL CHECK (kind IN ('deposit', 'withdrawal', 'payment', 'refund')),
    debit_account_id     uuid NOT NULL,
    credit_account_id    uuid NOT NULL,
    currency             text NOT NULL,
    amount               numeric(19, 4) NOT NULL,
    debit_balance_after  numeric(28, 4) NOT NULL,
    credit_balance_after numeric(28, 4) NOT NULL,
    debit_entry_no       bigint NOT NULL CHECK (debit_entry_no > 0),
    credit_entry_no      bigint NOT NULL CHECK (credit_entry_no > 0),
    description          text CHECK (char_length(description) <= 500),
    created_at           timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT transfers_amount_positive CHECK (amount > 0),
    CONSTRAINT transfers_two_accounts CHECK (debit_account_id <> credit_account_id),
    CONSTRAINT transfers_debit_account FOREIGN KEY (tenant_id, debit_account_id, currency)
        REFERENCES accounts (tenant_id, id, currency),
    CONSTRAINT transfers_credit_account FOREIGN KEY (tenant_id, credit_account_id, currency)
        REFERENCES accounts (tenant_id, id, currency),
    -- The position in the account's statement. Two transfers that both believe to be the
    -- next one (a lost update) collide here. They are also the indexes the statement is read by.
    CONSTRAINT transfers_debit_entry UNIQUE (tenant_id, debit_account_id, debit_entry_no),
    CONSTRAINT transfers_credit_entry UNIQUE (tenant_id, credit_account_id, credit_entry_no)
);
COMMENT ON TABLE transfers IS 'The ledger, append-only. A transfer has the id of the deposit, withdrawal, payment or refund it belongs to, so none of them can move money twice.';
COMMENT ON COLUMN transfers.debit_account_id IS 'The account the amount leaves (accounts are liabilities of the service: a debit lowers the balance).';
COMMENT ON COLUMN transfers.debit_entry_no IS 'Number of this entry in the statement of the debited account: 1, 2, 3, … without a gap.';
COMMENT ON COLUMN transfers.debit_balance_after IS 'Balance of the debited account after this entry, in major currency units.';
COMMENT ON COLUMN transfers.description IS 'Of a deposit or withdrawal; payments and refunds keep their own text.';

CREATE FUNCTION refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is append-only: % on % refused', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation',
              HINT = 'Correct a mistake with a new transfer in the other direction.';
END $$;
CREATE TRIGGER transfers_append_only BEFORE UPDATE OR DELETE ON transfers
    FOR EACH ROW EXECUTE FUNCTION refuse_ledger_change();
CREATE TRIGGER transfers_no_truncate BEFORE TRUNCATE ON transfers
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_ledger_change();
