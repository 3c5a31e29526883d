DROP TRIGGER accounts_last_entry ON accounts;
DROP FUNCTION stamp_last_entry;
ALTER TABLE accounts DROP COLUMN last_entry_at;
