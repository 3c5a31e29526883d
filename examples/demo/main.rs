//! `make demo`: the double charge that does not happen, start to finish.
//!
//! Two instances of the release binary on one PostgreSQL and one Redis, and everything that goes wrong between them
//! and a client. Each scene says what is done and what came back, and checks it; the exit status is 0 only if all of it
//! was right. It needs `DATABASE_URL`, `REDIS_URL` and, to kill the Redis, `PAYONCE_KILL_REDIS`: scripts/with-services.sh gives them.

mod books;
#[path = "../support/client.rs"]
mod client;
mod crashes;
#[expect(dead_code, reason = "make torture needs the rest")]
#[path = "../support/instance.rs"]
mod instance;
#[path = "../support/interrupt.rs"]
mod interrupt;
#[expect(dead_code, reason = "shared with the tests, which throw the other switches")]
#[path = "../../tests/it/support/proxy.rs"]
mod proxy;
mod proof;
mod say;
mod scenes;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;

use uuid::Uuid;

use crate::interrupt::{INTERRUPTED, interrupted};
use crate::say::Say;
use crate::stage::Stage;

/// The demo stops at the first surprise; an expectation that fails is none, and is counted by [`Say`].
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let mut say = Say::new();
    let logs = std::env::temp_dir().join(format!("payonce-demo-{}", Uuid::now_v7()));
    let good = tokio::select! {
        played = play(&mut say, logs.clone()) => Some(say.sum_up(&played)),
        // The play is dropped, and ends with it all that it has started.
        _ = interrupted() => None,
    };
    match good {
        // Is there anything to read? An empty folder can be removed as it is.
        Some(false) if std::fs::remove_dir(&logs).is_err() => println!("  The instances' logs: {}", logs.display()),
        Some(false) => {}
        _ => drop(std::fs::remove_dir_all(&logs)),
    }
    match good {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => ExitCode::from(INTERRUPTED),
    }
}

async fn play(say: &mut Say, logs: PathBuf) -> Outcome {
    std::fs::create_dir_all(&logs)?;
    let mut stage = Stage::set(logs).await?;
    say.title("payonce: two instances, one database, and what goes wrong in between");
    say.does(&format!(
        "A  {}  its connections to PostgreSQL go through a proxy",
        stage.a.url
    ));
    say.does(&format!("B  {}", stage.b.url));
    say.does("Each scene has an Alice with 100.00 USD and a Bob with nothing.");

    scenes::without_a_stable_key(&mut stage, say).await?;
    scenes::one_key(&mut stage, say).await?;
    scenes::redis_dies(&mut stage, say).await?;
    crashes::after_the_commit(&mut stage, say).await?;
    crashes::in_mid_transaction(&mut stage, say).await?;
    scenes::refunds_race(&mut stage, say).await?;
    proof::of_the_books(&mut stage, say).await
}
