//! `/accounts/{id}/deposits`, `/accounts/{id}/withdrawals`, and the address of what they made.

use actix_web::HttpResponse;

use super::envelope::{answer, read_answer};
use super::extract::{Get, Post};
use super::operation::{Body, Operation};
use crate::api::body::MovementBody;
use crate::api::resource::MovementJson;
use crate::api::{Code, Problem};
use crate::domain::{AccountId, Command, Movement, Transfer, TransferKind};
use crate::storage::transfers;

/// What the document says about them.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        id: "createDeposit",
        refuses: &[
            Code::NotFound,
            Code::AccountClosed,
            Code::ValidationFailed,
            Code::CurrencyMismatch,
            Code::BalanceOverflow,
        ],
        body: Body::Required,
        then: &["getDeposit"],
    },
    Operation {
        id: "createWithdrawal",
        refuses: &[
            Code::InsufficientFunds,
            Code::NotFound,
            Code::AccountFrozen,
            Code::AccountClosed,
            Code::ValidationFailed,
            Code::CurrencyMismatch,
        ],
        body: Body::Required,
        then: &["getWithdrawal"],
    },
    Operation::get("getDeposit", &[Code::NotFound]),
    Operation::get("getWithdrawal", &[Code::NotFound]),
];

/// Deposit money
///
/// It comes from the tenant's external account of the currency.
#[utoipa::path(
    post, path = "/accounts/{id}/deposits", operation_id = "createDeposit", tag = "accounts", request_body = MovementBody,
    params(("id" = Uuid, Path, description = "The account")),
    responses((status = 201, description = "The deposit, made now or by an earlier request under the same key", body = MovementJson)),
)]
pub(super) async fn deposit(post: Post) -> Result<HttpResponse, Problem> {
    move_money(post, Command::Deposit).await
}

/// Withdraw money
///
/// It goes to the tenant's external account of the currency.
#[utoipa::path(
    post, path = "/accounts/{id}/withdrawals", operation_id = "createWithdrawal", tag = "accounts", request_body = MovementBody,
    params(("id" = Uuid, Path, description = "The account")),
    responses((status = 201, description = "The withdrawal, made now or by an earlier request under the same key", body = MovementJson)),
)]
pub(super) async fn withdraw(post: Post) -> Result<HttpResponse, Problem> {
    move_money(post, Command::Withdraw).await
}

async fn move_money(post: Post, command: fn(Movement) -> Command) -> Result<HttpResponse, Problem> {
    let account = AccountId(post.id()?);
    let movement = post.body::<MovementBody>()?.into_movement(account)?;
    answer(post.service.engine.execute(post.request(command(movement))).await)
}

/// Read a deposit
#[utoipa::path(
    get, path = "/deposits/{id}", operation_id = "getDeposit", tag = "accounts", params(("id" = Uuid, Path, description = "The deposit")),
    responses((status = 200, description = "The deposit", body = MovementJson)),
)]
pub(super) async fn show_deposit(get: Get) -> Result<HttpResponse, Problem> {
    let deposit = find(&get, TransferKind::Deposit).await?;
    Ok(read_answer(&MovementJson::deposit(&deposit)))
}

/// Read a withdrawal
#[utoipa::path(
    get, path = "/withdrawals/{id}", operation_id = "getWithdrawal", tag = "accounts", params(("id" = Uuid, Path, description = "The withdrawal")),
    responses((status = 200, description = "The withdrawal", body = MovementJson)),
)]
pub(super) async fn show_withdrawal(get: Get) -> Result<HttpResponse, Problem> {
    let withdrawal = find(&get, TransferKind::Withdrawal).await?;
    Ok(read_answer(&MovementJson::withdrawal(&withdrawal)))
}

async fn find(get: &Get, kind: TransferKind) -> Result<Transfer, Problem> {
    get.query(&[])?;
    let (tenant, id) = (get.tenant, get.id()?);
    let transfer = get
        .service
        .read(tenant, move |connection| transfers::find(connection, tenant, kind, id))
        .await?;
    transfer.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no {} {id}", kind.as_str())))
}
