//! Several requests at once of which only so many can be granted.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::json;
use uuid::Uuid;

use crate::ask::Answer;
use crate::caller::Caller;
use crate::model::{Effect, Movement, Status, money};
use crate::question::{Question, members};

/// How many at once.
const AT_ONCE: usize = 4;

impl Caller {
    pub async fn race(&mut self) {
        self.line.tally.count("races");
        match self.line.random.u8(0..3) {
            0 => self.race_for_a_balance().await,
            1 => self.race_for_a_refund().await,
            _ => self.race_under_one_key().await,
        }
    }

    /// Each payment takes more than half of what is there: one is granted.
    async fn race_for_a_balance(&mut self) {
        let own = self.own_account();
        if own.status != Status::Active || own.cents < 2 {
            return;
        }
        let (to, cents) = (self.shared_account(), own.cents / 2 + 1);
        let question = Question::payment(own.id, to, cents);
        self.race_for_one(&question, "insufficient_funds", Movement::payment(own.id, to, cents))
            .await;
    }

    /// Each refund takes more than half of what remains: one is granted.
    async fn race_for_a_refund(&mut self) {
        let fit = self.payments.iter().find(|payment| {
            let fine = |id| self.own(id).is_none_or(|own| own.status == Status::Active);
            payment.refundable() >= 2 && fine(payment.payer) && self.own(payment.payee).is_none()
        });
        let Some(payment) = fit.copied() else {
            return;
        };
        let cents = payment.refundable() / 2 + 1;
        let path = format!("/payments/{}/refunds", payment.id);
        let question = Question::new(&path, members([("amount", json!(money(cents)))]), "reason");
        self.race_for_one(&question, "refund_exceeds_remaining", Movement::refund(&payment, cents))
            .await;
    }

    async fn race_for_one(&mut self, question: &Question, refusal: &str, movement: Movement) {
        let keys: Vec<Uuid> = (0..AT_ONCE).map(|_| self.line.new_key()).collect();
        let asked = self.ask_at_once(&keys, question).await;
        let granted = asked.iter().filter(|(_, answer)| answer.status < 300).count();
        // Without all answers it can't be told.
        if granted != 1 && asked.len() == keys.len() {
            let told: Vec<_> = asked
                .iter()
                .map(|(key, answer)| format!("{key}: {}", answer.status))
                .collect();
            let path = &question.ask.path;
            self.line.tally.violation(format!(
                "{path}: {granted} were granted where one can be ({})",
                told.join(", ")
            ));
        }
        for (key, answer) in asked {
            let allowed: &[&str] = if answer.status < 300 { &[] } else { &[refusal] };
            self.note(key, question.clone(), &answer, allowed, Effect::Moved(movement));
        }
    }

    /// All answers are one.
    async fn race_under_one_key(&mut self) {
        let (from, to, cents) = (
            self.shared_account(),
            self.shared_account(),
            self.line.random.i64(1..=100),
        );
        if from == to {
            return;
        }
        let key = self.line.new_key();
        let question = Question::payment(from, to, cents);
        let mut asked = self.ask_at_once(&[key; AT_ONCE], &question).await;
        let mut kinds = BTreeMap::new();
        for (_, answer) in &asked {
            *kinds.entry((answer.status, answer.digest())).or_insert(0) += u32::from(!answer.replayed);
        }
        if kinds.len() > 1 || kinds.values().any(|first| *first > 1) {
            self.line.tally.violation(format!(
                "{AT_ONCE} at once under {key}: {} different answers",
                kinds.len()
            ));
        }
        if let Some((key, answer)) = asked.pop() {
            let movement = Movement::payment(from, to, cents);
            self.note(key, question, &answer, &[], Effect::Moved(movement));
        }
    }

    async fn ask_at_once(&mut self, keys: &[Uuid], question: &Question) -> Vec<(Uuid, Answer)> {
        let lines: Vec<_> = keys.iter().map(|key| (*key, self.line.fork())).collect();
        let asking = lines
            .into_iter()
            .map(async |(key, mut line)| Some((key, line.ask(key, &question.ask).await?)));
        join_all(asking).await.into_iter().flatten().collect()
    }
}
