//! A repetition from elsewhere, by somebody else, or after a lost answer.

use std::time::{Duration, Instant};

use crate::ask::{Ask, new_key};
use crate::caller::Service;
use crate::card::{Case, Checked, case};

/// A `Date` header moves on once a second.
const DATE_LIMIT: Duration = Duration::from_secs(5);

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "I23",
            "what was asked of one instance is replayed by the other",
            other_instance,
        ),
        case(
            "I24",
            "another tenant's equal key and body have nothing to do with ours",
            other_tenant,
        ),
        case(
            "I25",
            "a new API key of the same tenant does not pay again",
            rotated_api_key,
        ),
        case("I26", "an API key that nobody knows sees no replay", unknown_api_key),
        case("I26r", "a revoked API key sees no replay", revoked_api_key),
        case("I26w", "an API key that may only read posts nothing", read_only_api_key),
        case(
            "I27",
            "a replay has the first answer's Location and Content-Type, and a date and request id of its own",
            replay_headers,
        ),
        case(
            "I29",
            "who hung up before the answer gets it when asking again",
            hung_up,
        ),
    ]
}

/// A payee, and a payment to it.
async fn a_payment(service: &Service) -> Checked<(String, Ask)> {
    let (payer, payee) = (
        service.api.account_with("100.00").await?,
        service.api.account("USD").await?,
    );
    let pay = service.api.pay(&payer, &payee, "10.00");
    Ok((payee, pay))
}

async fn other_instance(service: Service) -> Checked {
    let second = service.second_instance()?;
    let (payee, pay) = a_payment(&service).await?;
    let first = pay.clone().await?;
    first.created_now()?;
    pay.by(second).await?.replays(&first)?;
    service.api.balance_is(&payee, "10.00").await
}

async fn other_tenant(service: Service) -> Checked {
    let stranger = service.other_tenant()?;
    let key = new_key();
    let ours = service.api.open("USD").under(&key);
    let account = ours.clone().await?.created_now()?;
    let theirs = ours.by(stranger).await?.created_now()?;
    stranger.get(format!("/accounts/{theirs}")).await?.ok()?;
    let refused = stranger.get(format!("/accounts/{account}")).await?;
    refused.refused(404, "not_found")?;
    Ok(())
}

async fn rotated_api_key(service: Service) -> Checked {
    let rotated = service.rotated()?;
    let (payee, pay) = a_payment(&service).await?;
    let first = pay.clone().await?;
    first.created_now()?;
    pay.by(rotated).await?.replays(&first)?;
    service.api.balance_is(&payee, "10.00").await
}

async fn unknown_api_key(service: Service) -> Checked {
    let (payee, pay) = a_payment(&service).await?;
    pay.clone().await?.created_now()?;
    let nobody = service.api.with_api_key("nobody-knows-this-api-key");
    let refused = pay.by(&nobody).await?;
    refused.refused(401, "unauthenticated")?;
    refused.must(!refused.is_replay(), "no replay")?;
    service.api.balance_is(&payee, "10.00").await
}

async fn revoked_api_key(service: Service) -> Checked {
    let revoked = service.revoked()?;
    let (payee, pay) = a_payment(&service).await?;
    pay.clone().await?.created_now()?;
    let refused = pay.by(revoked).await?;
    refused.refused(401, "unauthenticated")?;
    service.api.balance_is(&payee, "10.00").await
}

async fn read_only_api_key(service: Service) -> Checked {
    let reader = service.read_only()?;
    let (payee, pay) = a_payment(&service).await?;
    let refused = pay.clone().by(reader).await?;
    refused.refused(403, "forbidden")?;
    pay.clone().await?.created_now()?;
    let refused = pay.by(reader).await?;
    refused.refused(403, "forbidden")?;
    service.api.balance_is(&payee, "10.00").await
}

async fn replay_headers(service: Service) -> Checked {
    let (_, pay) = a_payment(&service).await?;
    let first = pay.clone().await?;
    first.created_now()?;
    let deadline = Instant::now() + DATE_LIMIT;
    loop {
        let replay = pay.clone().await?;
        replay.replays(&first)?;
        let repeated = |name| replay.header(name).is_some() && replay.header(name) == first.header(name);
        replay.must(repeated("Idempotency-Key"), "the key, echoed")?;
        replay.must(!repeated("X-Request-Id"), "an X-Request-Id of its own, or none")?;
        replay.must(replay.header("Set-Cookie").is_none(), "no Set-Cookie")?;
        if !repeated("Date") {
            return Ok(());
        }
        replay.must(
            Instant::now() < deadline,
            "the Date of this answer, not the first one's",
        )?;
    }
}

async fn hung_up(service: Service) -> Checked {
    let (payee, pay) = a_payment(&service).await?;
    pay.clone().hang_up().await?;
    let answered = pay.clone().by(service.instance(1)).await?;
    answered.created()?;
    let again = pay.await?;
    again.must(
        again.body == answered.body && again.is_replay(),
        "the same answer, as a replay",
    )?;
    service.api.balance_is(&payee, "10.00").await
}
