//! `/accounts/{id}/entries` and `/accounts/{id}/balance`

use actix_web::HttpResponse;

use super::accounts::no_such_account;
use super::envelope::read_answer;
use super::extract::Get;
use super::operation::Operation;
use crate::api::resource::{BalanceJson, EntryJson, EntryPage, Page};
use crate::api::{Code, Problem};
use crate::domain::{AccountId, Entry};
use crate::storage::{accounts, entries};

/// What the document says about them.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation::get("listEntries", &[Code::NotFound]),
    Operation::get("getBalance", &[Code::NotFound]),
];

/// Read an account's statement
///
/// Each ledger entry with the balance after it, newest first. A statement grows at its end only: no entry ever appears behind one that was seen.
#[utoipa::path(
    get, path = "/accounts/{id}/entries", operation_id = "listEntries", tag = "accounts", params(("id" = Uuid, Path, description = "The account")),
    responses((status = 200, description = "A page of entries", body = EntryPage)),
)]
pub(super) async fn list(get: Get) -> Result<HttpResponse, Problem> {
    let page = get.page::<i64>(&get.query(&["limit", "cursor"])?)?;
    let (tenant, id) = (get.tenant, AccountId(get.id()?));
    let (after, limit) = (page.after, page.fetch());
    let found = move |connection: &mut _| {
        let Some(_) = accounts::find(connection, tenant, id)? else {
            return Ok(None);
        };
        entries::list(connection, tenant, id, after, limit).map(Some)
    };
    let entries = get
        .service
        .read(tenant, found)
        .await?
        .ok_or_else(|| no_such_account(id))?;
    let (entries, next_cursor) = page.cut(entries, |entry: &Entry| entry.entry_no);
    Ok(read_answer(&Page {
        data: entries.iter().map(EntryJson::from).collect(),
        next_cursor,
    }))
}

/// Read an account's balance at a time
///
/// The same instant always gives the same balance. Without `at`, and for an instant that has not come yet, it is the newest one, and the answer's `at` is the time of the
/// last entry (of the opening, if there is none). An instant after the last entry waits for payments that are being made at this moment, and is
/// answered 503 if one takes too long. What can't be promised: that nobody sets the database's clock back behind an instant that was asked about.
#[utoipa::path(
    get, path = "/accounts/{id}/balance", operation_id = "getBalance", tag = "accounts",
    params(
        ("id" = Uuid, Path, description = "The account"),
        ("at" = Option<String>, Query, format = DateTime, description = "RFC 3339 instant with an offset; without it: the newest balance", example = "2026-12-01T10:00:00Z"),
    ),
    responses((status = 200, description = "What the account held", body = BalanceJson)),
)]
pub(super) async fn balance(get: Get) -> Result<HttpResponse, Problem> {
    let at = get.query(&["at"])?.instant("at")?;
    let (tenant, id) = (get.tenant, AccountId(get.id()?));
    let found = move |connection: &mut _| {
        let Some(account) = accounts::find(connection, tenant, id)? else {
            return Ok(None);
        };
        let held = entries::held(connection, tenant, &account, at)?;
        Ok(Some(BalanceJson::new(id, held.balance, account.currency, held.at)))
    };
    let balance = get
        .service
        .read(tenant, found)
        .await?
        .ok_or_else(|| no_such_account(id))?;
    Ok(read_answer(&balance))
}
