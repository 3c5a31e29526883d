//! `/accounts`

use actix_web::HttpResponse;

use super::envelope::{answer, read_answer};
use super::extract::{Get, Post};
use super::operation::{Body, Operation};
use crate::api::body::{NoBody, OpenAccountBody};
use crate::api::resource::{AccountJson, AccountPage, Page};
use crate::api::{Code, Problem};
use crate::domain::{Account, AccountId, Command};
use crate::storage::{Position, accounts};

/// What the document says about them.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        id: "openAccount",
        refuses: &[Code::ValidationFailed],
        body: Body::Required,
        then: &[
            "getAccount",
            "createDeposit",
            "createWithdrawal",
            "freezeAccount",
            "unfreezeAccount",
            "closeAccount",
            "listEntries",
            "getBalance",
        ],
    },
    Operation::get("listAccounts", &[]),
    Operation::get("getAccount", &[Code::NotFound]),
    Operation {
        id: "freezeAccount",
        refuses: &[Code::NotFound, Code::AccountClosed],
        body: Body::None,
        then: &[],
    },
    Operation {
        id: "unfreezeAccount",
        refuses: &[Code::NotFound, Code::AccountClosed],
        body: Body::None,
        then: &[],
    },
    Operation {
        id: "closeAccount",
        refuses: &[Code::NotFound, Code::AccountNotEmpty],
        body: Body::None,
        then: &[],
    },
];

/// Open an account
#[utoipa::path(
    post, path = "/accounts", operation_id = "openAccount", tag = "accounts", request_body = OpenAccountBody,
    responses((status = 201, description = "The account, opened now or by an earlier request under the same key", body = AccountJson)),
)]
pub(super) async fn open(post: Post) -> Result<HttpResponse, Problem> {
    let command = post.body::<OpenAccountBody>()?.into_command()?;
    answer(post.service.engine.execute(post.request(command)).await)
}

/// Freeze an account
///
/// From then on no money leaves it; it may still arrive.
#[utoipa::path(
    post, path = "/accounts/{id}/freeze", operation_id = "freezeAccount", tag = "accounts", params(("id" = Uuid, Path, description = "The account")),
    responses((status = 200, description = "The account", body = AccountJson)),
)]
pub(super) async fn freeze(post: Post) -> Result<HttpResponse, Problem> {
    set_status(post, Command::Freeze).await
}

/// Unfreeze an account
#[utoipa::path(
    post, path = "/accounts/{id}/unfreeze", operation_id = "unfreezeAccount", tag = "accounts", params(("id" = Uuid, Path, description = "The account")),
    responses((status = 200, description = "The account", body = AccountJson)),
)]
pub(super) async fn unfreeze(post: Post) -> Result<HttpResponse, Problem> {
    set_status(post, Command::Unfreeze).await
}

/// Close an account
///
/// Only at balance 0, and for good: nothing moves on it any more.
#[utoipa::path(
    post, path = "/accounts/{id}/close", operation_id = "closeAccount", tag = "accounts", params(("id" = Uuid, Path, description = "The account")),
    responses((status = 200, description = "The account", body = AccountJson)),
)]
pub(super) async fn close(post: Post) -> Result<HttpResponse, Problem> {
    set_status(post, Command::Close).await
}

async fn set_status(post: Post, command: fn(AccountId) -> Command) -> Result<HttpResponse, Problem> {
    let id = AccountId(post.id()?);
    let NoBody {} = post.body()?;
    answer(post.service.engine.execute(post.request(command(id))).await)
}

/// Read an account
#[utoipa::path(
    get, path = "/accounts/{id}", operation_id = "getAccount", tag = "accounts", params(("id" = Uuid, Path, description = "The account")),
    responses((status = 200, description = "The account with its balance", body = AccountJson)),
)]
pub(super) async fn show(get: Get) -> Result<HttpResponse, Problem> {
    get.query(&[])?;
    let (tenant, id) = (get.tenant, AccountId(get.id()?));
    let account = get
        .service
        .read(tenant, move |connection| accounts::find(connection, tenant, id))
        .await?;
    let account = account.ok_or_else(|| no_such_account(id))?;
    Ok(read_answer(&AccountJson::from(&account)))
}

pub(super) fn no_such_account(id: AccountId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no account {id}"))
}

/// List accounts
///
/// Newest first.
#[utoipa::path(
    get, path = "/accounts", operation_id = "listAccounts", tag = "accounts",
    responses((status = 200, description = "A page of accounts", body = AccountPage)),
)]
pub(super) async fn list(get: Get) -> Result<HttpResponse, Problem> {
    let page = get.page::<Position>(&get.query(&["limit", "cursor"])?)?;
    let (tenant, after, limit) = (get.tenant, page.after, page.fetch());
    let found = get
        .service
        .read(tenant, move |connection| {
            accounts::list(connection, tenant, after, limit)
        })
        .await?;
    let place = |account: &Account| Position {
        created_at: account.created_at,
        id: account.id.0,
    };
    let (accounts, next_cursor) = page.cut(found, place);
    Ok(read_answer(&Page {
        data: accounts.iter().map(AccountJson::from).collect(),
        next_cursor,
    }))
}
