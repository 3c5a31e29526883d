//! The `Idempotency-Key` header: read exactly, or refused.

use crate::ask::{Ask, new_key};
use crate::caller::Service;
use crate::card::{Case, Checked, case};

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "I3",
            "the header's name in any letter case; without it, or blank, nothing is executed",
            name_and_absence,
        ),
        case(
            "I17",
            "a key has 1 to 255 visible characters, bare or quoted, in one line",
            limits,
        ),
    ]
}

async fn name_and_absence(service: Service) -> Checked {
    let (payer, payee, pay) = a_payment(&service).await?;
    let key = new_key();
    let first = pay.clone().under(&key).await?;
    first.created_now()?;
    for name in ["idempotency-key", "IDEMPOTENCY-KEY", "iDEMPOTENCY-kEY"] {
        let line = format!("{name}: {key}");
        pay.clone().with_key_lines(&[line.as_bytes()]).await?.replays(&first)?;
    }
    let absent = pay.clone().without_key().await?;
    absent.refused(400, "idempotency_key_missing")?;
    for blank in ["Idempotency-Key:", "Idempotency-Key:   "] {
        let refused = pay.clone().with_key_lines(&[blank.as_bytes()]).await?;
        refused.refused(400, "idempotency_key_missing")?;
    }
    service.api.balance_is(&payer, "9.00").await?;
    service.api.balance_is(&payee, "1.00").await
}

async fn limits(service: Service) -> Checked {
    let (_, payee, pay) = a_payment(&service).await?;
    let key = new_key();
    let first = pay.clone().under(&key).await?;
    first.created_now()?;
    let quoted = pay.clone().under(&format!("\"{key}\"")).await?;
    quoted.replays(&first)?;

    // There are few keys of one character, so somebody may have used this one before.
    let short = pay.clone().under("k").await?;
    let taken = matches!(
        short.code().as_str(),
        "idempotency_key_reused" | "idempotency_key_expired"
    );
    short.must(
        short.status == 201 || taken,
        "201, or the refusal of a key that was used before",
    )?;
    let longest = format!("{key}{}", "k".repeat(255 - key.len()));
    pay.clone().under(&longest).await?.created_now()?;
    let too_long = pay.clone().under(&format!("{longest}k")).await?;
    too_long.refused(400, "idempotency_key_invalid")?;
    let far_too_long = pay.clone().under(&"k".repeat(8 * 1024)).await?;
    let refused = matches!(far_too_long.status, 400 | 431);
    far_too_long.must(refused, "400 or 431")?;

    for inside in [b"\0".as_slice(), b"\t", b"\x7f", "é".as_bytes(), b" ", b","] {
        let line = [b"Idempotency-Key: a", inside, b"b"].concat();
        let refused = pay.clone().with_key_lines(&[line.as_slice()]).await?;
        refused.must(refused.status == 400, "400")?;
    }
    let line = format!("Idempotency-Key: {}", new_key());
    let other = format!("Idempotency-Key: {}", new_key());
    let twice = pay.clone().with_key_lines(&[line.as_bytes(), other.as_bytes()]).await?;
    twice.refused(400, "idempotency_key_invalid")?;

    let executed = if short.status == 201 { "3.00" } else { "2.00" };
    service.api.balance_is(&payee, executed).await
}

/// A payer with 10.00, a payee with nothing, and the request that pays 1.00.
async fn a_payment(service: &Service) -> Checked<(String, String, Ask)> {
    let (payer, payee) = (
        service.api.account_with("10.00").await?,
        service.api.account("USD").await?,
    );
    let pay = service.api.pay(&payer, &payee, "1.00");
    Ok((payer, payee, pay))
}
