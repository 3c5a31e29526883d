-- A clock may go back: a step of NTP, a fail-over to a host that is a little behind. The next entry of an account is therefore
-- stamped by the clock or just after the account's last entry, whichever is later. The time stands in the account's own row, because
-- that is what a writer waits for: a look into the ledger, in the same statement, would not see what was committed meanwhile.
-- No index has it, so balance updates stay HOT.

SET LOCAL lock_timeout = '5s';

-- NULL until the account is moved the next time: its last entry is then older than this column, and is looked up.
ALTER TABLE accounts ADD COLUMN last_entry_at timestamptz;
COMMENT ON COLUMN accounts.last_entry_at IS 'No entry of the account is later than this. NULL: it has none, or had its last before the column was there.';

-- While a deploy is under way, instances that do not know the column move accounts, too. May go in a later release.
CREATE FUNCTION stamp_last_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.last_entry_at := greatest(OLD.last_entry_at, clock_timestamp());
    RETURN NEW;
END $$;
CREATE TRIGGER accounts_last_entry BEFORE UPDATE ON accounts FOR EACH ROW
    WHEN (NEW.entry_count <> OLD.entry_count AND NEW.last_entry_at IS NOT DISTINCT FROM OLD.last_entry_at)
    EXECUTE FUNCTION stamp_last_entry();
