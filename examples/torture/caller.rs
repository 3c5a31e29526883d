//! One client of many. He has accounts of his own, on which he knows what every answer must be, and pays from and to accounts that
//! all clients share, where they get in each other's way.

use std::sync::Arc;

use serde_json::{Map, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::Outcome;
use crate::ask::{Answer, Line};
use crate::model::{Account, Digest, Effect, History, Kind, Movement, Payment, Status, Told, money, refusals};
use crate::question::{Question, members};
use crate::report::Tally;
use crate::stage::Service;

/// Shared accounts: few, so that they are hot; and so rich (in cents) that they never run dry.
const SHARED: usize = 8;
const RICH: i64 = 100_000_000_000;

/// Accounts of one's own that are kept open.
const OWN: usize = 3;

/// The largest deposit, in cents.
const DEPOSIT_MAX: i64 = 50_000;

/// Payments that may still be refunded, and keys that are used again: a random choice of all there were.
const KEPT: usize = 64;

/// A client, and all he knows.
pub struct Caller {
    pub line: Line,
    pub shared: Arc<Vec<Uuid>>,
    pub payments: Vec<Payment>,
    pub history: History,
    past: Vec<Past>,
}

/// A key that has been answered.
struct Past {
    key: Uuid,
    question: Question,
    answered: (u16, Digest),
}

/// The accounts that all clients share.
pub async fn open_shared(service: &Arc<Service>, tally: &Arc<Tally>, seed: u64) -> Outcome<History> {
    let mut caller = Caller::new(service, tally, &Arc::default(), seed, u64::MAX)?;
    for _ in 0..SHARED {
        caller.open().await;
    }
    for account in caller.history.accounts() {
        caller.move_in_or_out(Kind::Deposit, account, RICH).await;
    }
    // Nobody's own any more.
    caller.history.own.clear();
    Ok(caller.history)
}

impl Caller {
    pub fn new(
        service: &Arc<Service>,
        tally: &Arc<Tally>,
        shared: &Arc<Vec<Uuid>>,
        seed: u64,
        number: u64,
    ) -> Outcome<Self> {
        Ok(Self {
            line: Line::new(service, tally, seed.wrapping_mul(31).wrapping_add(number))?,
            shared: Arc::clone(shared),
            payments: Vec::new(),
            history: History::default(),
            past: Vec::new(),
        })
    }

    /// Acts until told to stop; what was begun is brought to its end.
    pub async fn call(mut self, stopping: watch::Receiver<bool>) -> History {
        while !*stopping.borrow() {
            self.act().await;
        }
        self.history
    }

    async fn act(&mut self) {
        let open = self.history.own.iter().filter(|own| own.status != Status::Closed);
        if open.count() < OWN {
            return self.open().await;
        }
        match self.line.random.u8(0..100) {
            0..40 => self.pay().await,
            40..50 => {
                let (account, cents) = (self.own_account().id, self.line.random.i64(1..=DEPOSIT_MAX));
                self.move_in_or_out(Kind::Deposit, account, cents).await;
            }
            50..55 => {
                let account = self.own_account();
                let cents = self.about(account.cents);
                self.move_in_or_out(Kind::Withdrawal, account.id, cents).await;
            }
            55..68 => self.refund().await,
            68..72 => self.set_status().await,
            72..76 => self.race().await,
            76..85 => self.ask_again().await,
            85..88 => self.use_key_again().await,
            _ => self.read().await,
        }
    }

    #[expect(clippy::expect_used, reason = "there is one as soon as there is anything to do")]
    pub fn own_account(&mut self) -> Account {
        let number = self.line.random.usize(0..self.history.own.len());
        let chosen = self.history.own.get(number);
        *chosen.expect("act has opened some")
    }

    #[expect(clippy::expect_used, reason = "there are some before anybody calls")]
    pub fn shared_account(&mut self) -> Uuid {
        let number = self.line.random.usize(0..self.shared.len());
        *self.shared.get(number).expect("main has opened some")
    }

    pub fn own(&self, id: Uuid) -> Option<&Account> {
        self.history.own.iter().find(|own| own.id == id)
    }

    /// An amount that `limit` mostly, but not always, allows.
    fn about(&mut self, limit: i64) -> i64 {
        self.line.random.i64(1..=limit + limit / 4 + 1)
    }

    async fn open(&mut self) {
        let question = Question::new("/accounts", members([("currency", json!("USD"))]), "name");
        let opened = self
            .command(question, &[], Effect::Opened { account: Uuid::nil() })
            .await;
        if let Some(Effect::Opened { account: id }) = opened {
            self.history.own.push(Account {
                id,
                cents: 0,
                status: Status::Active,
            });
        }
    }

    async fn move_in_or_out(&mut self, kind: Kind, account: Uuid, cents: i64) {
        let own = self.own(account).copied();
        let (from, to, verb) = match kind {
            Kind::Deposit => (None, Some(account), "deposits"),
            _ => (Some(account), None, "withdrawals"),
        };
        let allowed = refusals(
            own.as_ref().filter(|_| from.is_some()),
            own.as_ref().filter(|_| to.is_some()),
            cents,
        );
        let body = members([("amount", json!(money(cents))), ("currency", json!("USD"))]);
        let question = Question::new(&format!("/accounts/{account}/{verb}"), body, "description");
        let movement = Movement {
            id: Uuid::nil(),
            kind,
            from,
            to,
            cents,
            payment: None,
        };
        self.command(question, &allowed, Effect::Moved(movement)).await;
    }

    async fn pay(&mut self) {
        let own = self.own_account();
        let (from, to) = match self.line.random.u8(0..4) {
            0 => (self.shared_account(), self.shared_account()),
            1 => (self.shared_account(), own.id),
            2 => (own.id, self.shared_account()),
            _ => (own.id, self.own_account().id),
        };
        if from == to {
            return;
        }
        let cents = self.about(self.own(from).map_or(DEPOSIT_MAX, |own| own.cents));
        let allowed = refusals(self.own(from), self.own(to), cents);
        let movement = Movement::payment(from, to, cents);
        self.command(Question::payment(from, to, cents), &allowed, Effect::Moved(movement))
            .await;
    }

    async fn refund(&mut self) {
        if self.payments.is_empty() {
            return;
        }
        let number = self.line.random.usize(0..self.payments.len());
        let Some(payment) = self.payments.get(number).copied() else {
            return;
        };
        let mut body = Map::new();
        let mut allowed = Vec::new();
        let mut cents = payment.refundable();
        if self.line.random.u8(0..3) > 0 {
            cents = self.about(cents);
            body.insert("amount".to_owned(), json!(money(cents)));
        }
        if cents > payment.refundable() || payment.refundable() == 0 {
            allowed.push("refund_exceeds_remaining");
        }
        let off = match self.line.random.u8(0..6) {
            0 => Some(0),
            1 => Some(1),
            _ => None,
        };
        if let Some(off) = off {
            let expected = json!(money(payment.refunded + off));
            body.insert("expected_refunded_amount".to_owned(), expected);
        }
        if off == Some(1) {
            allowed.push("refunded_amount_changed");
        }
        allowed.extend(refusals(self.own(payment.payee), self.own(payment.payer), cents));
        let question = Question::new(&format!("/payments/{}/refunds", payment.id), body, "reason");
        let movement = Movement::refund(&payment, cents);
        self.command(question, &allowed, Effect::Moved(movement)).await;
    }

    async fn set_status(&mut self) {
        let account = self.own_account();
        let (verb, other, status) = match self.line.random.u8(0..8) {
            0..3 => ("freeze", "close", Status::Frozen),
            3..7 => ("unfreeze", "freeze", Status::Active),
            _ => ("close", "unfreeze", Status::Closed),
        };
        let mut allowed = Vec::new();
        if account.status == Status::Closed && status != Status::Closed {
            allowed.push("account_closed");
        }
        if status == Status::Closed && account.cents != 0 {
            allowed.push("account_not_empty");
        }
        let question = Question::bare(account.id, verb, other);
        let set = self
            .command(question, &allowed, Effect::StatusSet { account: account.id })
            .await;
        if let (Some(_), Some(own)) = (set, self.history.own.iter_mut().find(|own| own.id == account.id)) {
            own.status = status;
        }
    }

    /// Asks under a new key, and judges the answer: a refusal must be one of `allowed`, and if there are any it must be refused.
    /// Sometimes something else is asked for under the same key at the same time.
    async fn command(&mut self, question: Question, allowed: &[&str], effect: Effect) -> Option<Effect> {
        let key = self.line.new_key();
        let contested = question.ask.path == question.other.path && self.line.random.u8(0..25) == 0;
        let (question, answer) = if contested {
            self.ask_contested(key, question).await?
        } else {
            let answer = self.line.ask_first(key, &question.ask).await?;
            (question, answer)
        };
        self.note(key, question, &answer, allowed, effect)
    }

    /// Judges an answer, and notes it with what must have come of it.
    pub fn note(
        &mut self,
        key: Uuid,
        question: Question,
        answer: &Answer,
        allowed: &[&str],
        effect: Effect,
    ) -> Option<Effect> {
        let granted = answer.status < 300;
        let code = answer.code();
        if granted != allowed.is_empty() || (!granted && !allowed.contains(&code.as_str())) {
            let (path, body) = (&question.ask.path, &question.ask.body);
            let right = if allowed.is_empty() {
                "no refusal".to_owned()
            } else {
                allowed.join(" or ")
            };
            self.line.tally.violation(format!(
                "{key}: POST {path} {body} was answered {} {code}; right would be {right}",
                answer.status
            ));
        }
        let told = answer.id().filter(|_| granted);
        if granted && told.is_none() {
            self.line
                .tally
                .violation(format!("{key} was answered {} without an id", answer.status));
        }
        let effect = told.map(|id| effect.with(id));
        let (status, body) = (answer.status, answer.digest());
        self.history.told.push(Told {
            key,
            status,
            body,
            effect,
        });
        if let Some(Effect::Moved(movement)) = effect {
            self.apply(movement);
        }
        let past = Past {
            key,
            question,
            answered: (status, body),
        };
        keep(&mut self.line.random, &mut self.past, past);
        effect
    }

    fn apply(&mut self, movement: Movement) {
        for own in &mut self.history.own {
            own.cents -= if movement.from == Some(own.id) {
                movement.cents
            } else {
                0
            };
            own.cents += if movement.to == Some(own.id) { movement.cents } else { 0 };
        }
        let Movement { id, cents, .. } = movement;
        match (movement.kind, movement.from, movement.to) {
            (Kind::Payment, Some(payer), Some(payee)) => {
                let payment = Payment {
                    id,
                    payer,
                    payee,
                    cents,
                    refunded: 0,
                };
                keep(&mut self.line.random, &mut self.payments, payment);
            }
            (Kind::Refund, ..) => {
                let of = self
                    .payments
                    .iter_mut()
                    .find(|payment| movement.payment == Some(payment.id));
                if let Some(payment) = of {
                    payment.refunded += cents;
                }
            }
            _ => {}
        }
    }

    /// The same key for two requests at once, one to each instance: one of them gets it, the other is told so.
    async fn ask_contested(&mut self, key: Uuid, question: Question) -> Option<(Question, Answer)> {
        self.line.tally.count("keys used again for something else");
        let mut rival = self.line.fork();
        let (mine, theirs) = tokio::join!(self.line.ask(key, &question.ask), rival.ask(key, &question.other));
        let (mine, theirs) = (mine?, theirs?);
        match (mine.is_reused(), theirs.is_reused()) {
            (false, true) => Some((question, mine)),
            (true, false) => {
                let Question { ask, other } = question;
                Some((Question { ask: other, other: ask }, theirs))
            }
            (both, _) => {
                let what = if both {
                    "neither was told that he has it"
                } else {
                    "both were answered"
                };
                self.line.tally.violation(format!("two requests under {key}: {what}"));
                None
            }
        }
    }

    /// An old key, asked again: the same bytes.
    async fn ask_again(&mut self) {
        let Some((key, question, answered)) = self.past_key() else {
            return;
        };
        if let Some(answer) = self.line.ask(key, &question.ask).await
            && (answered != (answer.status, answer.digest()) || !answer.replayed)
        {
            let status = answer.status;
            self.line.tally.violation(format!(
                "{key}, asked again, was answered otherwise: {status}, replayed: {}",
                answer.replayed
            ));
        }
    }

    /// An old key for something else: refused.
    async fn use_key_again(&mut self) {
        let Some((key, question, _)) = self.past_key() else {
            return;
        };
        self.line.tally.count("keys used again for something else");
        if let Some(answer) = self.line.ask(key, &question.other).await
            && !answer.is_reused()
        {
            self.line.tally.violation(format!(
                "{key}, used for something else, was answered {} {}",
                answer.status,
                answer.code()
            ));
        }
    }

    fn past_key(&mut self) -> Option<(Uuid, Question, (u16, Digest))> {
        let number = self.line.random.usize(0..self.past.len().max(1));
        let past = self.past.get(number)?;
        Some((past.key, past.question.clone(), past.answered))
    }
}

fn keep<T>(random: &mut fastrand::Rng, kept: &mut Vec<T>, new: T) {
    if kept.len() < KEPT {
        kept.push(new);
    } else if let Some(place) = kept.get_mut(random.usize(0..KEPT)) {
        *place = new;
    }
}
