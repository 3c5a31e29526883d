//! The scenes in which everybody lives: no key, one key, another request, no Redis, a race of refunds.

use std::time::Duration;

use futures_util::future::try_join_all;
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use crate::Outcome;
use crate::books::Charges;
use crate::client::{Answer, new_key, tally};
use crate::instance::COMMAND_LIMIT;
use crate::say::Say;
use crate::stage::{Redis, Stage, until};

/// How long the careless client waits for an answer.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);

const AT_ONCE: usize = 50;

const KEYS: usize = 8;
const ROUNDS: usize = 6;

const REFUNDS: usize = 20;

/// (a) Why this service exists.
pub async fn without_a_stable_key(stage: &mut Stage, say: &mut Say) -> Outcome {
    say.scene("a", "A client without a stable key");
    let pair = stage.client.alice_and_bob(&stage.a.url).await?;

    say.does("Alice pays Bob 10.00. The answer gets lost on its way, and the client gives up after 500 ms.");
    stage.postgres.hold_after_seeing(b"COMMIT");
    let hasty = stage.client.with_patience(SHORT_PATIENCE)?;
    let lost = hasty.pay(&stage.a.url, &new_key(), pair, "10.00").await;
    say.back("no answer");
    say.check(
        "the client can't know what happened",
        &lost.is_err_and(|error| error.is_timeout()),
        &true,
    );
    stage
        .until_books("the lost payment is committed", |books| {
            Ok(books.charges(pair.alice)?.payments == 1)
        })
        .await?;
    stage.postgres.pass();

    say.does("It tries again as if nothing had happened, with a new key.");
    let again = stage.client.pay(&stage.a.url, &new_key(), pair, "10.00").await?;
    say.back(&again.in_short());
    let charges = stage.books.charges(pair.alice)?;
    say.check(
        "Alice was charged twice: 2 payments, 80.00 left",
        &charges,
        &Charges::new(2, "80.00"),
    );
    Ok(())
}

/// (b) and (c) One key is one payment.
pub async fn one_key(stage: &mut Stage, say: &mut Say) -> Outcome {
    say.scene("b", "One key, 50 requests at once");
    let pair = stage.client.alice_and_bob(&stage.b.url).await?;
    let key = new_key();

    say.does("Alice pays Bob 10.00: 50 requests with one key, at the same time, 25 to each instance.");
    let requests = (0..AT_ONCE).map(|turn| stage.client.pay(stage.url(turn), &key, pair, "10.00"));
    let answers = try_join_all(requests).await?;
    say.back(&tally(&answers));
    say.check(
        "1 answer is the first, 49 are marked as its replays, and all are alike byte for byte",
        &shape(&answers),
        &(AT_ONCE - 1, 1, vec![201]),
    );
    let once = Charges::new(1, "90.00");
    say.check(
        "Alice was charged once: 1 payment, 90.00 left",
        &stage.books.charges(pair.alice)?,
        &once,
    );

    say.scene("c", "The same key for another amount");
    say.does("The same key again, but for 99.00.");
    let other = stage.client.pay(&stage.b.url, &key, pair, "99.00").await?;
    say.back(&other.in_short());
    let refused = (422, Some("idempotency_key_reused".to_owned()));
    say.check(
        "it is refused, not replayed",
        &(other.status, other.member("code")),
        &refused,
    );
    say.check(
        "nothing was executed: still 1 payment",
        &stage.books.charges(pair.alice)?,
        &once,
    );
    Ok(())
}

/// Of the answers under one key: how many replays, how many different bodies, which statuses.
fn shape(answers: &[Answer]) -> (usize, usize, Vec<u16>) {
    let replays = answers.iter().filter(|answer| answer.replayed).count();
    let mut bodies: Vec<_> = answers.iter().map(|answer| &answer.body).collect();
    bodies.sort();
    bodies.dedup();
    let mut statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    statuses.dedup();
    (replays, bodies.len(), statuses)
}

/// (d) Redis is only a hint.
pub async fn redis_dies(stage: &mut Stage, say: &mut Say) -> Outcome {
    say.scene("d", "Redis dies in the middle of retries");
    let pair = stage.client.alice_and_bob(&stage.b.url).await?;
    let keys: Vec<_> = (0..KEYS).map(|_| new_key()).collect();

    say.does("8 keys for 10.00 each, every one sent 6 times, in turn to both instances.");
    say.does(&match &stage.redis {
        Redis::Ours { kill, .. } => format!("In the third round Redis is killed: {kill}"),
        Redis::Theirs(_) => {
            "In the third round Redis is cut off; by a proxy, since this Redis is not ours to kill.".to_owned()
        }
    });
    let mut answers = vec![Vec::new(); KEYS];
    for round in 0..ROUNDS {
        let requests = keys.iter().enumerate();
        let requests = requests.map(|(turn, key)| stage.client.pay(stage.url(turn + round), key, pair, "10.00"));
        let dies = async {
            if round == ROUNDS / 2 - 1 {
                stage.redis.die().await
            } else {
                Ok(())
            }
        };
        let (answered, died) = tokio::join!(try_join_all(requests), dies);
        died?;
        for (of_key, answer) in answers.iter_mut().zip(answered?) {
            of_key.push(answer);
        }
    }
    say.back(&tally(answers.iter().flatten()));
    let shapes: Vec<_> = answers.iter().map(|of_key| shape(of_key)).collect();
    let expected = vec![(ROUNDS - 1, 1, vec![201]); KEYS];
    say.check(
        "each key got 1 first answer and 5 replays of it, and none an error",
        &shapes,
        &expected,
    );
    let charges = stage.books.charges(pair.alice)?;
    say.check(
        "Alice was charged once a key: 8 payments, 20.00 left",
        &charges,
        &Charges::new(8, "20.00"),
    );
    say.does("Redis stays dead from here on.");
    Ok(())
}

impl Redis {
    /// Returns when nobody answers any more.
    async fn die(&self) -> Outcome {
        match self {
            Self::Theirs(proxy) => proxy.cut(),
            Self::Ours { kill, address } => {
                let mut command = Command::new("sh");
                let killing = command.args(["-c", kill]).kill_on_drop(true).output();
                let killed = timeout(COMMAND_LIMIT, killing).await??;
                if !killed.status.success() {
                    return Err(format!("`{kill}` failed: {}", String::from_utf8_lossy(&killed.stderr)).into());
                }
                until("Redis is gone", || Ok(std::net::TcpStream::connect(address).is_err())).await?;
            }
        }
        Ok(())
    }
}

/// (f) Never more than was paid.
pub async fn refunds_race(stage: &mut Stage, say: &mut Say) -> Outcome {
    say.scene("f", "20 refunds race over one payment");
    let pair = stage.client.alice_and_bob(&stage.b.url).await?;
    let payment = stage
        .client
        .pay(&stage.b.url, &new_key(), pair, "100.00")
        .await?
        .created()?;

    say.does("Alice has paid Bob 100.00.");
    say.does("20 refunds of 60.00, each with a key of its own, at the same time over both instances.");
    let (path, body) = (format!("/payments/{payment}/refunds"), json!({"amount": "60.00"}));
    let keys: Vec<_> = (0..REFUNDS).map(|_| new_key()).collect();
    let requests = keys.iter().enumerate();
    let requests = requests.map(|(turn, key)| stage.client.post(stage.url(turn), &path, key, body.clone()));
    let answers = try_join_all(requests).await?;
    say.back(&tally(&answers));
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    let exceeds = |answer: &&Answer| answer.member("code").as_deref() == Some("refund_exceeds_remaining");
    let refused = answers.iter().filter(exceeds).count();
    say.check(
        "1 was made, 19 were refused: only 40.00 remained",
        &(made, refused),
        &(1, REFUNDS - 1),
    );
    let refunded = stage.books.refunded(payment)?;
    say.check(
        "60.00 were refunded, never more than was paid",
        &refunded.as_deref(),
        &Some("60.00"),
    );
    let charges = stage.books.charges(pair.alice)?;
    say.check("Alice has 60.00 again", &charges, &Charges::new(1, "60.00"));
    Ok(())
}
