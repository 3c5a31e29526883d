DROP VIEW ledger_entries;
DROP TABLE refunds;
DROP TABLE payments;
