//! An effect or a refusal as the response that is stored with it. This runs inside the transaction.

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use super::resource::{AccountJson, MovementJson, PaymentJson, RefundJson};
use super::{Code, FieldError, Problem};
use crate::domain::{Effect, Party, Refusal};
use crate::idempotency::{Resource, ResourceKind, StoredResponse};
use crate::money::{MAX, MoneyError};

/// Renders what was decided. `request_id` becomes the `instance` of a problem.
///
/// # Errors
/// If the JSON can't be written, which no known value causes.
pub fn render(request_id: Uuid, decided: &Result<Effect, Refusal>) -> serde_json::Result<StoredResponse> {
    match decided {
        Ok(Effect::Opened(account)) => created(ResourceKind::Account, account.id.0, &AccountJson::from(account)),
        Ok(Effect::Account(account)) => {
            let resource = Resource {
                kind: ResourceKind::Account,
                id: account.id.0,
            };
            stored(200, Some(resource), &AccountJson::from(account))
        }
        Ok(Effect::Deposit(transfer)) => created(ResourceKind::Deposit, transfer.id, &MovementJson::deposit(transfer)),
        Ok(Effect::Withdrawal(transfer)) => created(
            ResourceKind::Withdrawal,
            transfer.id,
            &MovementJson::withdrawal(transfer),
        ),
        Ok(Effect::Payment(payment)) => created(ResourceKind::Payment, payment.id.0, &PaymentJson::from(payment)),
        Ok(Effect::Refund(refund)) => created(ResourceKind::Refund, refund.id.0, &RefundJson::from(refund)),
        Err(refusal) => {
            let problem = problem(refusal);
            stored(problem.status(), None, &problem.for_request(request_id))
        }
    }
}

fn created(kind: ResourceKind, id: Uuid, body: &impl Serialize) -> serde_json::Result<StoredResponse> {
    stored(201, Some(Resource { kind, id }), body)
}

fn stored(status: u16, resource: Option<Resource>, body: &impl Serialize) -> serde_json::Result<StoredResponse> {
    let body = Bytes::from(serde_json::to_vec(body)?);
    Ok(StoredResponse { status, body, resource })
}

fn field(party: Party) -> &'static str {
    match party {
        Party::Account => "the account",
        Party::Payer => "payer_account_id",
        Party::Payee => "payee_account_id",
    }
}

/// What a refusal says to the caller.
#[must_use]
pub fn problem(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::NoSuchAccount(party, id) => {
            Problem::new(Code::NotFound, format!("{}: there is no account {id}", field(*party)))
        }
        Refusal::NoSuchPayment(id) => Problem::new(Code::NotFound, format!("there is no payment {id}")),
        Refusal::CurrencyMismatch { party, holds, asked } => Problem::new(
            Code::CurrencyMismatch,
            format!(
                "{} holds {holds}, but the amount is in {asked}; nothing is ever converted",
                field(*party)
            ),
        ),
        Refusal::AccountFrozen(id) => Problem::new(
            Code::AccountFrozen,
            format!("account {id} is frozen: no money may leave it"),
        ),
        Refusal::AccountClosed(id) => Problem::new(
            Code::AccountClosed,
            format!("account {id} is closed: nothing moves on it any more"),
        ),
        Refusal::AccountNotEmpty { balance, currency } => Problem::new(
            Code::AccountNotEmpty,
            format!("the account holds {balance} {currency}; only an empty account can be closed"),
        ),
        Refusal::InsufficientFunds(id) => Problem::new(
            Code::InsufficientFunds,
            format!("the balance of account {id} is less than the amount"),
        ),
        Refusal::BalanceOverflow(id) => Problem::new(
            Code::BalanceOverflow,
            format!("the balance of account {id} would pass {MAX}"),
        ),
        Refusal::RefundAmount(error) => {
            let example = match error {
                MoneyError::TooPrecise(currency) => format!("; for example \"{}\"", currency.example()),
                _ => String::new(),
            };
            Problem::invalid(vec![FieldError::new("amount", &format!("{error}{example}"))])
        }
        Refusal::RefundExceedsRemaining { refundable } => Problem::new(
            Code::RefundExceedsRemaining,
            format!("at most {refundable} of this payment can still be refunded"),
        )
        .with_refundable_amount(*refundable),
        Refusal::RefundedAmountChanged { refunded } => Problem::new(
            Code::RefundedAmountChanged,
            format!("{refunded} has been refunded by now; look at the payment again before you refund more"),
        )
        .with_refunded_amount(*refunded),
    }
}
