//! (e) `kill -9` at the two moments that matter. The product has no fault points: the moments are made from outside, by
//! a proxy that withholds the news of a commit, and by a row that somebody else has locked.

use crate::Outcome;
use crate::books::Charges;
use crate::client::{Answer, Pair, new_key};
use crate::say::Say;
use crate::stage::Stage;

/// The money has moved, and nobody was told.
pub async fn after_the_commit(stage: &mut Stage, say: &mut Say) -> Outcome {
    say.scene("e", "kill -9 after the commit, before the answer");
    let pair = stage.client.alice_and_bob(&stage.b.url).await?;
    let key = new_key();

    say.does("Alice pays Bob 10.00 through A. PostgreSQL commits, but its word of that is withheld from A.");
    stage.postgres.hold_after_seeing(b"COMMIT");
    let asking = ask_a(stage, &key, pair);
    stage
        .until_books("the key's response is committed", |books| {
            Ok(books.stored_response(&key)?.is_some())
        })
        .await?;
    let stored = stage.books.stored_response(&key)?;
    say.does("As soon as the books show the payment, A is killed.");
    stage.a.kill().await?;
    say_lost(say, asking).await?;
    stage.postgres.pass();

    say.does("The client asks B, with the same key.");
    let again = stage.client.pay(&stage.b.url, &key, pair, "10.00").await?;
    say.back(&again.in_short());
    say.check(
        "it gets the answer that A could not give, as a replay",
        &(again.status, again.replayed),
        &(201, true),
    );
    let body = String::from_utf8(again.body)?;
    say.check(
        "byte for byte what was committed with the payment",
        &Some(body),
        &stored,
    );
    check_charged_once(stage, say, pair)?;
    stage.restart_a().await
}

/// The key is claimed, nothing is decided, and it must be as if nothing had been.
pub async fn in_mid_transaction(stage: &mut Stage, say: &mut Say) -> Outcome {
    say.scene("e", "kill -9 in mid-transaction");
    let pair = stage.client.alice_and_bob(&stage.b.url).await?;
    let key = new_key();

    say.does("Another session locks Alice's row.");
    say.does("Alice pays Bob 10.00 through A, whose transaction claims the key, and waits for that row.");
    let held = stage.books.hold_account(pair.alice)?;
    let asking = ask_a(stage, &key, pair);
    stage
        .until_books("A's transaction waits for the row", |books| {
            Ok(books.waiters(&held)? == 1)
        })
        .await?;
    say.does("There A is killed, and then the row is released.");
    stage.a.kill().await?;
    say_lost(say, asking).await?;
    drop(held);
    let nothing = Charges::new(0, "100.00");
    say.check(
        "nothing of it is in the books: 0 payments, 100.00 left",
        &stage.books.charges(pair.alice)?,
        &nothing,
    );

    say.does("The client asks B, with the same key.");
    let again = stage.client.pay(&stage.b.url, &key, pair, "10.00").await?;
    say.back(&again.in_short());
    say.check(
        "it is executed now, for the first time: the answer is no replay",
        &(again.status, again.replayed),
        &(201, false),
    );
    check_charged_once(stage, say, pair)?;
    stage.restart_a().await
}

type Asking = tokio::task::JoinHandle<Result<Answer, reqwest::Error>>;

fn ask_a(stage: &Stage, key: &str, pair: Pair) -> Asking {
    let (client, url, key) = (stage.client.clone(), stage.a.url.clone(), key.to_owned());
    tokio::spawn(async move { client.pay(&url, &key, pair, "10.00").await })
}

async fn say_lost(say: &mut Say, asking: Asking) -> Outcome {
    let lost = asking.await?;
    say.back(
        &lost
            .as_ref()
            .map_or_else(|_| "connection lost, no answer".to_owned(), Answer::in_short),
    );
    say.check("the client got no answer from A", &lost.is_err(), &true);
    Ok(())
}

fn check_charged_once(stage: &mut Stage, say: &mut Say, pair: Pair) -> Outcome {
    let charges = stage.books.charges(pair.alice)?;
    say.check(
        "Alice was charged once: 1 payment, 90.00 left",
        &charges,
        &Charges::new(1, "90.00"),
    );
    Ok(())
}
