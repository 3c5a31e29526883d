DROP TABLE transfers;
DROP FUNCTION refuse_ledger_change();
