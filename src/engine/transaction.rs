//! THE transaction. Check, execute and save the response: all of it happens, or none.
//!
//! | step | statement | why it is one of its own |
//! |---|---|---|
//! | claim | `INSERT INTO idempotency_keys … ON CONFLICT DO NOTHING RETURNING` | must come first: who inserts the key is first, and everybody else with it waits here for the outcome |
//! | lock | `SELECT payments … FOR NO KEY UPDATE` | a refund learns from its payment which accounts to lock; left out if nothing is refunded |
//! |  | `SELECT accounts … FOR NO KEY UPDATE` | what is decided must still be true at the commit |
//! | decide | none | pure: `domain::decide` |
//! | persist | `UPDATE accounts`, `INSERT transfers`, `INSERT payments` (`INSERT refunds`, `UPDATE payments`, `INSERT accounts`) | one for each table that the batch touches |
//! | save | `UPDATE idempotency_keys` | the response becomes durable together with its effect, or not at all |
//! | repeats | `SELECT idempotency_keys` | must come after the claim: a statement sees what was committed before it began, and the claim has waited for just that. After the save, too: then it also sees what this very batch has stored |
//! | | `COMMIT` | |
//!
//! With `BEGIN` that makes eight round trips for a batch of payments, however many they are.
//!
//! **Locks** are taken in one global order by all instances: keys, then payments, then accounts, each sorted by tenant and id in
//! the statement that locks. So two transactions can wait for each other in one direction only, which is no deadlock.
//!
//! **READ COMMITTED** is the right level: everything decided on is locked first, and at a higher level a plain duplicate
//! would raise 40001 from `ON CONFLICT DO NOTHING` instead of being one.
//!
//! Nothing remote is called in here, and answers travel with their requests: no two sequences are ever paired by position.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::{Connection, PgConnection, QueryResult};

use super::persist::persist;
use crate::api::render;
use crate::domain::{AccountId, Books, Command, Effect, Moment, Refusal, TenantId, decide};
use crate::idempotency::{Request, Retention, StoredResponse, Verdict, judge};
use crate::storage::{StorageError, accounts, idempotency_keys, payments};

/// A request and the place for its answer.
#[derive(Debug)]
pub struct Slot {
    /// What is asked.
    pub request: Request,
    /// What is answered; `None` until the transaction has run.
    pub answered: Option<Answered>,
}

impl Slot {
    /// Not answered yet.
    #[must_use]
    pub fn new(request: Request) -> Self {
        Self {
            request,
            answered: None,
        }
    }
}

/// What the transaction found out about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// It was the first under its key, and this is now stored.
    First(StoredResponse),
    /// Its key was known.
    Known(Verdict),
}

/// How far the transaction had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Not yet in it.
    Begin,
    /// Claiming; here it waits for others that run under the same keys.
    Claim,
    /// Between claim and commit.
    Execute,
    /// The commit.
    Commit,
}

/// A transaction that failed, as a whole.
#[derive(Debug, Clone)]
pub struct Failure {
    /// How far it came.
    pub step: Step,
    /// How long it ran.
    pub took: Duration,
    /// What it met.
    pub error: StorageError,
}

/// Runs a batch: after `Ok` every slot is answered, and each first is committed together with its effect.
///
/// # Errors
/// A [`Failure`]: then nothing was committed, except perhaps at [`StorageError::OutcomeUnknown`], when all or nothing was.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that may open a transaction"
)]
pub fn run(connection: &mut PgConnection, mut slots: Vec<&mut Slot>, retention: Retention) -> Result<(), Failure> {
    let mut step = Step::Begin;
    let started = Instant::now();
    let outcome = connection.transaction(|connection| {
        step = Step::Claim;
        let mut claimed = idempotency_keys::claim(connection, slots.iter().map(|slot| &slot.request), retention)?;
        let (firsts, repeats): (Vec<&mut Slot>, Vec<&mut Slot>) =
            slots.drain(..).partition(|slot| claimed.take(&slot.request));

        step = Step::Execute;
        if let Some(claimed_at) = claimed.at {
            let (mut books, locked_at) = lock(connection, &firsts)?;
            let now = locked_at.unwrap_or(claimed_at);
            let decided: Vec<Decided<'_>> = firsts
                .into_iter()
                .map(|slot| Decided::new(&mut books, slot, now))
                .collect();
            persist(connection, &books, decided.iter().filter_map(Decided::effect))?;
            save(connection, decided)?;
        }
        if !repeats.is_empty() {
            answer_repeats(connection, repeats)?;
        }
        step = Step::Commit;
        Ok(())
    });
    outcome.map_err(|error: diesel::result::Error| Failure {
        step,
        took: started.elapsed(),
        error: match step {
            Step::Commit => StorageError::at_commit(&error),
            Step::Begin | Step::Claim | Step::Execute => StorageError::before_commit(&error),
        },
    })
}

/// Locks what the commands may look at: payments, then accounts.
fn lock(connection: &mut PgConnection, firsts: &[&mut Slot]) -> QueryResult<(Books, Option<DateTime<Utc>>)> {
    let mut books = Books::default();
    let refunded: Vec<_> = firsts
        .iter()
        .filter_map(|slot| match &slot.request.command {
            Command::Refund(refund) => Some((slot.request.tenant, refund.payment)),
            Command::OpenAccount(_)
            | Command::Deposit(_)
            | Command::Withdraw(_)
            | Command::Freeze(_)
            | Command::Unfreeze(_)
            | Command::Close(_)
            | Command::Pay(_) => None,
        })
        .collect();
    if !refunded.is_empty() {
        for (tenant, payment) in payments::lock(connection, refunded.into_iter())? {
            books.add_payment(tenant, payment);
        }
    }
    let needed: Vec<_> = firsts
        .iter()
        .flat_map(|slot| accounts_of(&slot.request, &books))
        .collect();
    let (locked, locked_at) = accounts::lock(connection, needed.into_iter())?;
    for (tenant, account) in locked {
        books.add_account(tenant, account);
    }
    Ok((books, locked_at))
}

/// The accounts that a command may look at or change.
fn accounts_of(request: &Request, books: &Books) -> Vec<(TenantId, AccountId)> {
    let tenant = request.tenant;
    let ids = match &request.command {
        Command::OpenAccount(_) => vec![],
        Command::Freeze(id) | Command::Unfreeze(id) | Command::Close(id) => vec![*id],
        Command::Deposit(movement) | Command::Withdraw(movement) => {
            vec![
                movement.account,
                AccountId::external(tenant, movement.amount.currency()),
            ]
        }
        Command::Pay(pay) => vec![pay.parties.payer(), pay.parties.payee()],
        Command::Refund(refund) => books
            .payment(tenant, refund.payment)
            .map_or(vec![], |payment| vec![payment.payer, payment.payee]),
    };
    ids.into_iter().map(|id| (tenant, id)).collect()
}

/// A first request with what was decided on it.
struct Decided<'a> {
    slot: &'a mut Slot,
    decision: Result<Effect, Refusal>,
}

impl<'a> Decided<'a> {
    fn new(books: &mut Books, slot: &'a mut Slot, now: DateTime<Utc>) -> Self {
        let moment = Moment {
            now,
            id: slot.request.new_id,
        };
        let decision = decide(books, slot.request.tenant, &slot.request.command, moment);
        Self { slot, decision }
    }

    fn effect(&self) -> Option<(TenantId, &Effect)> {
        Some((self.slot.request.tenant, self.decision.as_ref().ok()?))
    }
}

/// Renders the answers and completes the claims with them.
fn save(connection: &mut PgConnection, decided: Vec<Decided<'_>>) -> QueryResult<()> {
    let mut answers = Vec::with_capacity(decided.len());
    for Decided { slot, decision } in decided {
        let response = render(slot.request.id, &decision)
            .map_err(|error| diesel::result::Error::SerializationError(error.into()))?;
        slot.answered = Some(Answered::First(response.clone()));
        answers.push((&slot.request, response));
    }
    idempotency_keys::save_responses(
        connection,
        answers.iter().map(|(request, response)| (*request, response)),
    )
}

/// Answers those whose key was known from what is stored under it.
fn answer_repeats(connection: &mut PgConnection, repeats: Vec<&mut Slot>) -> QueryResult<()> {
    let records = idempotency_keys::find(connection, repeats.iter().map(|slot| &slot.request))?;
    for slot in repeats {
        let known = records.get(&(slot.request.tenant.0, slot.request.key.as_str().to_owned()));
        // Gone between claim and look: the clean-up has just forgotten it.
        let verdict = known.map_or(Verdict::Free, |record| judge(record.clone(), &slot.request));
        slot.answered = Some(Answered::Known(verdict));
    }
    Ok(())
}
