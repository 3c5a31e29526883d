//! At the end: what the clients were told, against what the database holds. All in plain SQL and sums of its own; the
//! service's own audit comes last.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::hash::Hash;

use uuid::Uuid;

use crate::Outcome;
use crate::model::{Account, Effect, History, Kind, Movement, Told, cents};
use crate::report::Tally;
use crate::stage::{DATABASE, Stage};

/// What the database holds.
struct Stored {
    /// Status, digest of the body, resource.
    keys: HashMap<Uuid, (u16, String, Option<Uuid>)>,
    transfers: HashMap<Uuid, Transfer>,
    /// Payer, payee, amount, refunded.
    payments: HashMap<Uuid, (Uuid, Uuid, i64, i64)>,
    /// Payment, amount.
    refunds: HashMap<Uuid, (Uuid, i64)>,
    /// Kind, status, balance.
    accounts: HashMap<Uuid, (String, String, i64)>,
}

struct Transfer {
    movement: Movement,
    /// Account, number of the entry, balance after it.
    sides: [(Uuid, i64, i64); 2],
}

/// Everything there is to check.
pub async fn all(stage: &mut Stage, histories: &[History], tally: &Tally) -> Outcome {
    let stored = Stored::read(stage, histories).await?;
    let told: Vec<&Told> = histories.iter().flat_map(|history| &history.told).collect();
    stored.check_keys(&told, tally);
    stored.check_movements(&told, tally);
    stored.check_accounts(&told, histories, tally);
    stored.check_chains(tally);
    let (good, printed) = stage.payonce.audit(&stage.postgres.url(DATABASE)).await?;
    println!("payonce audit: {printed}");
    if !good {
        tally.violation("payonce audit finds the books broken".to_owned());
    }
    check_logs(stage, tally)
}

impl Stored {
    async fn read(stage: &Stage, histories: &[History]) -> Outcome<Self> {
        let mut stored = Self {
            keys: HashMap::new(),
            transfers: HashMap::new(),
            payments: HashMap::new(),
            refunds: HashMap::new(),
            accounts: HashMap::new(),
        };
        let keys = "SELECT key, response_code, encode(sha256(response_body), 'hex'), resource_id FROM idempotency_keys";
        for row in rows(stage, keys).await? {
            let [key, status, digest, resource] = columns(&row)?;
            stored.keys.insert(
                key.parse()?,
                (status.parse()?, digest.to_owned(), resource.parse().ok()),
            );
        }
        let accounts = "SELECT id, kind, status, balance FROM accounts";
        for row in rows(stage, accounts).await? {
            let [id, kind, status, balance] = columns(&row)?;
            let balance = exact(balance)?;
            stored
                .accounts
                .insert(id.parse()?, (kind.to_owned(), status.to_owned(), balance));
        }
        let refunds = "SELECT id, payment_id, amount FROM refunds";
        for row in rows(stage, refunds).await? {
            let [id, payment, amount] = columns(&row)?;
            stored.refunds.insert(id.parse()?, (payment.parse()?, exact(amount)?));
        }
        let payments = "SELECT id, payer_account_id, payee_account_id, amount, refunded_amount FROM payments";
        for row in rows(stage, payments).await? {
            let [id, payer, payee, amount, refunded] = columns(&row)?;
            let payment = (payer.parse()?, payee.parse()?, exact(amount)?, exact(refunded)?);
            stored.payments.insert(id.parse()?, payment);
        }
        stored.read_transfers(stage).await?;
        let told = histories.iter().map(|history| history.told.len()).sum::<usize>();
        println!(
            "{told} keys were told; stored are {} keys, {} transfers, {} payments, {} refunds, {} accounts",
            stored.keys.len(),
            stored.transfers.len(),
            stored.payments.len(),
            stored.refunds.len(),
            stored.accounts.len()
        );
        Ok(stored)
    }

    async fn read_transfers(&mut self, stage: &Stage) -> Outcome {
        let transfers = "SELECT id, kind, amount, debit_account_id, debit_entry_no, debit_balance_after,
                         credit_account_id, credit_entry_no, credit_balance_after FROM transfers";
        for row in rows(stage, transfers).await? {
            let [id, kind, amount, from, from_no, from_after, to, to_no, to_after] = columns(&row)?;
            let (id, from, to): (Uuid, Uuid, Uuid) = (id.parse()?, from.parse()?, to.parse()?);
            let kinds = [Kind::Deposit, Kind::Withdrawal, Kind::Payment, Kind::Refund];
            let kind = kinds.into_iter().find(|known| known.name() == kind);
            let inside = |account: Uuid| Some(account).filter(|id| self.accounts.get(id).is_some_and(is_standard));
            let movement = Movement {
                id,
                kind: kind.ok_or("a transfer of an unknown kind")?,
                from: inside(from),
                to: inside(to),
                cents: exact(amount)?,
                payment: self.refunds.get(&id).map(|(payment, _)| *payment),
            };
            let sides = [
                (from, from_no.parse()?, exact(from_after)?),
                (to, to_no.parse()?, exact(to_after)?),
            ];
            self.transfers.insert(id, Transfer { movement, sides });
        }
        Ok(())
    }

    /// Under each key that was answered is stored what was answered; and no key that nobody asked under.
    fn check_keys(&self, told: &[&Told], tally: &Tally) {
        let right = told.iter().map(|told| {
            let resource = told.effect.map(Effect::resource);
            (told.key, (told.status, hex::encode(told.body), resource))
        });
        compare(
            "key",
            &self.keys.iter().map(|(key, stored)| (*key, stored.clone())).collect(),
            &right.collect(),
            tally,
        );
    }

    /// Each movement that was acknowledged has happened, just so and once; and none that was not.
    fn check_movements(&self, told: &[&Told], tally: &Tally) {
        let moved = told.iter().filter_map(|told| match told.effect {
            Some(Effect::Moved(movement)) => Some((movement.id, movement)),
            _ => None,
        });
        let moved: HashMap<Uuid, Movement> = moved.collect();
        let found = self.transfers.iter().map(|(id, transfer)| (*id, transfer.movement));
        compare("transfer", &found.collect(), &moved, tally);
        let of = |kind| moved.values().filter(move |movement: &&Movement| movement.kind == kind);
        let mut refunded: HashMap<Uuid, i64> = HashMap::new();
        for refund in of(Kind::Refund) {
            *refunded.entry(refund.payment.unwrap_or_default()).or_default() += refund.cents;
        }
        let payments = of(Kind::Payment).filter_map(|payment| {
            let back = refunded.get(&payment.id).copied().unwrap_or_default();
            Some((payment.id, (payment.from?, payment.to?, payment.cents, back)))
        });
        compare("payment", &self.payments, &payments.collect(), tally);
        let refunds = of(Kind::Refund).filter_map(|refund| Some((refund.id, (refund.payment?, refund.cents))));
        compare("refund", &self.refunds, &refunds.collect(), tally);
        for (id, (_, _, amount, refunded)) in &self.payments {
            if refunded > amount {
                tally.violation(format!("payment {id} of {amount} has {refunded} cents refunded"));
            }
        }
    }

    /// Each account that was opened is there, and holds what was moved to it less what was moved from it.
    fn check_accounts(&self, told: &[&Told], histories: &[History], tally: &Tally) {
        let own: HashMap<Uuid, &Account> = histories
            .iter()
            .flat_map(|history| &history.own)
            .map(|own| (own.id, own))
            .collect();
        let mut right = HashMap::new();
        for account in histories.iter().flat_map(History::accounts) {
            let status = own.get(&account).map_or("active", |own| own.status.name());
            right.insert(account, ("standard".to_owned(), status.to_owned(), 0));
        }
        for told in told {
            if let Some(Effect::Moved(movement)) = told.effect {
                for (account, cents) in [(movement.from, -movement.cents), (movement.to, movement.cents)] {
                    if let Some((.., balance)) = account.and_then(|account| right.get_mut(&account)) {
                        *balance += cents;
                    }
                }
            }
        }
        let found = self.accounts.iter().filter(|(_, account)| is_standard(account));
        compare(
            "account",
            &found.map(|(id, found)| (*id, found.clone())).collect(),
            &right,
            tally,
        );
        for own in own.values() {
            if right.get(&own.id).is_none_or(|(.., balance)| *balance != own.cents) {
                tally.violation(format!("the model itself is wrong: account {}", own.id));
            }
        }
    }

    /// Each account's entries are 1, 2, 3, …, each balance is the one before and the amount, the last is the account's, and none
    /// of a standard account is negative.
    fn check_chains(&self, tally: &Tally) {
        let mut chains: HashMap<Uuid, BTreeMap<i64, (i64, i64)>> = HashMap::new();
        for transfer in self.transfers.values() {
            let cents = transfer.movement.cents;
            for ((account, number, after), amount) in transfer.sides.into_iter().zip([-cents, cents]) {
                let doubled = chains.entry(account).or_default().insert(number, (amount, after));
                if doubled.is_some() {
                    tally.violation(format!("account {account} has two entries {number}"));
                }
            }
        }
        for (account, (kind, _, balance)) in &self.accounts {
            let chain = chains.remove(account).unwrap_or_default();
            let mut before = 0;
            for ((number, (amount, after)), wanted) in chain.into_iter().zip(1_i64..) {
                if number != wanted || before + amount != after || (kind == "standard" && after < 0) {
                    tally.violation(format!(
                        "account {account}, entry {number} (place {wanted}): {after} after {before} and {amount}"
                    ));
                }
                before = after;
            }
            if before != *balance {
                tally.violation(format!(
                    "account {account} holds {balance}, its entries end with {before}"
                ));
            }
        }
        for account in chains.keys() {
            tally.violation(format!("there are entries of {account}, which does not exist"));
        }
    }
}

fn is_standard((kind, ..): &(String, String, i64)) -> bool {
    kind == "standard"
}

/// Must be the same, neither more nor less.
fn compare<K: Eq + Hash + Debug, V: PartialEq + Debug>(
    what: &str,
    found: &HashMap<K, V>,
    right: &HashMap<K, V>,
    tally: &Tally,
) {
    for (id, right) in right {
        match found.get(id) {
            Some(found) if found == right => {}
            Some(found) => tally.violation(format!("{what} {id:?} is {found:?}; told was {right:?}")),
            None => tally.violation(format!("{what} {id:?} is lost; told was {right:?}")),
        }
    }
    for (id, found) in found {
        if !right.contains_key(id) {
            tally.violation(format!("{what} {id:?}, {found:?}, is there, and nobody was told of it"));
        }
    }
}

async fn rows(stage: &Stage, query: &str) -> Outcome<Vec<String>> {
    let printed = stage.postgres.sql_in(DATABASE, query).await?;
    Ok(printed.lines().map(str::to_owned).collect())
}

fn columns<const N: usize>(row: &str) -> Outcome<[&str; N]> {
    let columns: Vec<&str> = row.split('|').collect();
    Ok(columns
        .try_into()
        .map_err(|_| format!("a row of other columns: {row}"))?)
}

fn exact(numeric: &str) -> Outcome<i64> {
    Ok(cents(numeric).ok_or_else(|| format!("{numeric} is no whole number of cents"))?)
}

/// No deadlock, and nobody panicked.
fn check_logs(stage: &Stage, tally: &Tally) -> Outcome {
    let log = String::from_utf8_lossy(&std::fs::read(stage.postgres.log())?).into_owned();
    for line in log.lines().filter(|line| line.contains("deadlock detected")) {
        tally.violation(format!("PostgreSQL's log: {line}"));
    }
    for log in stage.payonce.logs()? {
        for line in log.lines().filter(|line| line.contains("panicked at")) {
            tally.violation(format!("an instance's log: {line}"));
        }
    }
    Ok(())
}
