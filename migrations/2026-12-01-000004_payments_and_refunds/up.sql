-- What the money moved for. The movement itself is the transfer with the same id.

CREATE TABLE payments (
    tenant_id        uuid NOT NULL,
    id               uuid NOT NULL,
    payer_account_id uuid NOT NULL,
    payee_account_id uuid NOT NULL,
    currency         text NOT NULL,
    amount           numeric(19, 4) NOT NULL,
    refunded_amount  numeric(19, 4) NOT NULL,
    description      text CHECK (char_length(description) <= 500),
    reference        text CHECK (char_length(reference) BETWEEN 1 AND 255),
    metadata         jsonb CHECK (jsonb_typeof(metadata) = 'object'),
    created_at       timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT payments_amount_positive CHECK (amount > 0),
    CONSTRAINT payments_refunded_within_amount CHECK (refunded_amount BETWEEN 0 AND amount),
    CONSTRAINT payments_two_accounts CHECK (payer_account_id <> payee_account_id),
    CONSTRAINT payments_payer FOREIGN KEY (tenant_id, payer_account_id, currency)
        REFERENCES accounts (tenant_id, id, currency),
    CONSTRAINT payments_payee FOREIGN KEY (tenant_id, payee_account_id, currency)
        REFERENCES accounts (tenant_id, id, currency),
    CONSTRAINT payments_transfer FOREIGN KEY (tenant_id, id) REFERENCES transfers (tenant_id, id)
)
-- A refund rewrites refunded_amount, which no index holds: leave room for a HOT update.
WITH (fillfactor = 90);
COMMENT ON TABLE payments IS 'A charge from payer to payee. Its status is not stored: it follows from amount and refunded_amount.';
COMMENT ON COLUMN payments.refunded_amount IS 'Sum of the payment''s refunds, in major currency units.';

CREATE INDEX payments_newest ON payments (tenant_id, created_at, id);
CREATE INDEX payments_by_payer ON payments (tenant_id, payer_account_id, created_at, id);
CREATE INDEX payments_by_payee ON payments (tenant_id, payee_account_id, created_at, id);
CREATE INDEX payments_by_reference ON payments (tenant_id, reference, created_at, id) WHERE reference IS NOT NULL;

CREATE TABLE refunds (
    tenant_id  uuid NOT NULL,
    id         uuid NOT NULL,
    payment_id uuid NOT NULL,
    amount     numeric(19, 4) NOT NULL CONSTRAINT refunds_amount_positive CHECK (amount > 0),
    reason     text CHECK (char_length(reason) <= 500),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT refunds_payment FOREIGN KEY (tenant_id, payment_id) REFERENCES payments (tenant_id, id),
    CONSTRAINT refunds_transfer FOREIGN KEY (tenant_id, id) REFERENCES transfers (tenant_id, id)
);
COMMENT ON TABLE refunds IS 'Money given back to the payer of a payment, in the payment''s currency.';

CREATE INDEX refunds_by_payment ON refunds (tenant_id, payment_id, created_at, id);

CREATE TRIGGER refunds_append_only BEFORE UPDATE OR DELETE ON refunds
    FOR EACH ROW EXECUTE FUNCTION refuse_ledger_change();
CREATE TRIGGER refunds_no_truncate BEFORE TRUNCATE ON refunds
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_ledger_change();

-- UNION ALL over one table each, and nothing joined: only so a statement of one account reads the two entry indexes
-- in order and stops. A join in an arm would have all entries of the account read and sorted for one page.
CREATE VIEW ledger_entries AS
    SELECT t.tenant_id, t.id, t.debit_account_id AS account_id, t.debit_entry_no AS entry_no, t.kind,
           -t.amount AS amount, t.currency, t.debit_balance_after AS balance_after,
           CASE t.kind
               WHEN 'payment' THEN t.id
               WHEN 'refund' THEN (SELECT r.payment_id FROM refunds r WHERE r.tenant_id = t.tenant_id AND r.id = t.id)
           END AS payment_id,
           CASE t.kind WHEN 'refund' THEN t.id END AS refund_id,
           t.created_at
    FROM transfers t
UNION ALL
    SELECT t.tenant_id, t.id, t.credit_account_id, t.credit_entry_no, t.kind,
           t.amount, t.currency, t.credit_balance_after,
           CASE t.kind
               WHEN 'payment' THEN t.id
               WHEN 'refund' THEN (SELECT r.payment_id FROM refunds r WHERE r.tenant_id = t.tenant_id AND r.id = t.id)
           END,
           CASE t.kind WHEN 'refund' THEN t.id END,
           t.created_at
    FROM transfers t;
COMMENT ON VIEW ledger_entries IS 'Each transfer as its two signed entries, which share its id.';
