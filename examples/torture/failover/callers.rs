//! Callers that pay, ask again until they are answered, and note what they were told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;
use uuid::Uuid;

use crate::Outcome;
use crate::client::{Client, Pair, new_key};

/// How long a caller asks again, in all. The service is away for seconds at most.
pub const GIVE_UP: Duration = Duration::from_mins(1);

/// The longest pause of a caller between two tries.
const LONGEST_PAUSE_MS: u64 = 50;

/// What the callers were told.
#[derive(Default)]
pub struct Heard(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    paid: Vec<Paid>,
    /// How many answers of each kind.
    answers: BTreeMap<String, u64>,
}

/// A payment that was acknowledged.
#[derive(Clone)]
pub struct Paid {
    pub key: String,
    pub pair: Pair,
    pub body: Vec<u8>,
    /// The instance that said so.
    pub url: String,
    /// When it did.
    pub told: Instant,
}

impl Heard {
    fn notes<T>(&self, look: impl FnOnce(&mut Notes) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn answer(&self, kind: String) {
        self.notes(|notes| *notes.answers.entry(kind).or_default() += 1);
    }

    fn paid_is(&self, paid: Paid) {
        self.notes(|notes| notes.paid.push(paid));
    }

    pub fn paid(&self) -> Vec<Paid> {
        self.notes(|notes| notes.paid.clone())
    }

    /// When callers got answers from the instance.
    pub fn told_by(&self, url: &str) -> Vec<Instant> {
        self.notes(|notes| {
            let by = notes.paid.iter().filter(|paid| paid.url == url);
            by.map(|paid| paid.told).collect()
        })
    }

    pub fn count(&self) -> usize {
        self.notes(|notes| notes.paid.len())
    }

    pub fn in_short(&self) -> String {
        self.notes(|notes| {
            let kinds: Vec<_> = notes
                .answers
                .iter()
                .map(|(kind, count)| format!("{count} × {kind}"))
                .collect();
            format!(
                "{} payments acknowledged; all answers: {}",
                notes.paid.len(),
                kinds.join(", ")
            )
        })
    }
}

/// Someone who pays 1.00 again and again, until he is told to stop.
pub struct Caller {
    pub client: Client,
    pub urls: [String; 2],
    pub pair: Pair,
    pub heard: Arc<Heard>,
    pub stopping: watch::Receiver<bool>,
}

impl Caller {
    pub async fn call(self) -> Outcome {
        while !*self.stopping.borrow() {
            self.pay().await?;
        }
        Ok(())
    }

    /// One payment: asks again under the same key, the instances in turn, until it is made.
    async fn pay(&self) -> Outcome {
        let key = new_key();
        let began = Instant::now();
        for url in self.urls.iter().cycle() {
            match self.client.pay(url, &key, self.pair, "1.00").await {
                Ok(answer) => {
                    self.heard.answer(answer.in_short());
                    match answer.status {
                        201 => {
                            self.heard.paid_is(Paid {
                                key,
                                pair: self.pair,
                                body: answer.body,
                                url: url.clone(),
                                told: Instant::now(),
                            });
                            return Ok(());
                        }
                        // Out of reach, or the other instance is still at it.
                        503 | 409 => {}
                        _ => return Err(format!("{key} was answered {}", answer.in_short()).into()),
                    }
                }
                Err(_) => self.heard.answer("no answer".to_owned()),
            }
            if began.elapsed() > GIVE_UP {
                break;
            }
            let pause = u64::try_from(Uuid::new_v4().as_u128() % u128::from(LONGEST_PAUSE_MS))?;
            sleep(Duration::from_millis(pause)).await;
        }
        Err(format!("{key} was not paid within {} s", GIVE_UP.as_secs()).into())
    }
}
