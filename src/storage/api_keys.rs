//! The tables `tenants` and `api_keys`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Timestamptz};
use uuid::Uuid;

use super::schema::{api_keys, tenants};
use crate::domain::{TenantId, names};

/// What an API key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Every GET.
    Read,
    /// Every POST.
    Write,
}

names! { Scope { Read: "read", Write: "write" } }

/// A key that may be used now.
#[derive(Debug, Clone)]
pub struct ValidKey {
    /// Whose it is.
    pub tenant: TenantId,
    /// `read`, `write`.
    pub scopes: Vec<String>,
    /// For how much longer; `None` is for ever.
    pub valid_for: Option<Duration>,
}

/// The key with this SHA-256, if it is neither revoked nor expired.
///
/// # Errors
/// Diesel's.
pub fn find_valid(connection: &mut PgConnection, key_hash: &[u8]) -> QueryResult<Option<ValidKey>> {
    let milliseconds_left =
        diesel::dsl::sql::<Nullable<BigInt>>("ceil(extract(epoch FROM expires_at - now()) * 1000)::bigint");
    let row: Option<(Uuid, Vec<String>, Option<i64>)> = api_keys::table
        .filter(api_keys::key_hash.eq(key_hash))
        .filter(api_keys::revoked_at.is_null())
        .filter(
            api_keys::expires_at
                .is_null()
                .or(api_keys::expires_at.gt(diesel::dsl::now.into_sql::<Timestamptz>().nullable())),
        )
        .select((api_keys::tenant_id, api_keys::scopes, milliseconds_left))
        .first(connection)
        .optional()?;
    Ok(row.map(|(tenant, scopes, left)| ValidKey {
        tenant: TenantId(tenant),
        scopes,
        valid_for: left.map(|left| Duration::from_millis(u64::try_from(left).unwrap_or(0))),
    }))
}

/// Adds a key, and the tenant if there is none of this name. `valid_for` in seconds; `None` is for ever. `false`: nothing was
/// added, because the tenant has another key with this visible beginning.
///
/// # Errors
/// Diesel's.
pub fn create(
    connection: &mut PgConnection,
    tenant: &str,
    prefix: &str,
    key_hash: &[u8],
    scopes: &[Scope],
    valid_for: Option<i64>,
) -> QueryResult<bool> {
    let names: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
    diesel::insert_into(tenants::table)
        .values((tenants::tenant_id.eq(Uuid::now_v7()), tenants::name.eq(tenant)))
        .on_conflict(tenants::name)
        .do_nothing()
        .execute(connection)?;
    let tenant_id: Uuid = tenants::table
        .filter(tenants::name.eq(tenant))
        .select(tenants::tenant_id)
        .first(connection)?;
    let expires_at = diesel::dsl::sql::<Nullable<Timestamptz>>("now() + ")
        .bind::<Nullable<BigInt>, _>(valid_for)
        .sql(" * interval '1 second'");
    let added = diesel::insert_into(api_keys::table)
        .values((
            api_keys::tenant_id.eq(tenant_id),
            api_keys::prefix.eq(prefix),
            api_keys::key_hash.eq(key_hash),
            api_keys::scopes.eq(names),
            api_keys::expires_at.eq(expires_at),
        ))
        .on_conflict((api_keys::tenant_id, api_keys::prefix))
        .do_nothing()
        .execute(connection)?;
    Ok(added == 1)
}

/// A key as a list shows it.
#[derive(Debug, Clone, Queryable)]
pub struct ListedKey {
    tenant_id: Uuid,
    /// Name of the tenant.
    pub tenant: String,
    /// The visible beginning.
    pub prefix: String,
    /// What it permits.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it ends.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// Which keys to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// All of them.
    All,
    /// Those with this visible beginning: one of a tenant at most, but several tenants may have one.
    Prefix(&'a str),
    /// The one with this SHA-256.
    Hash([u8; 32]),
}

/// Keys, whether they are still valid or not, by tenant and age.
///
/// # Errors
/// Diesel's.
pub fn list(connection: &mut PgConnection, wanted: Wanted) -> QueryResult<Vec<ListedKey>> {
    let all = api_keys::table
        .inner_join(tenants::table.on(tenants::tenant_id.eq(api_keys::tenant_id)))
        .order((tenants::name, api_keys::created_at))
        .select((
            api_keys::tenant_id,
            tenants::name,
            api_keys::prefix,
            api_keys::scopes,
            api_keys::created_at,
            api_keys::expires_at,
            api_keys::revoked_at,
        ));
    match wanted {
        Wanted::All => all.load(connection),
        Wanted::Prefix(prefix) => all.filter(api_keys::prefix.eq(prefix)).load(connection),
        Wanted::Hash(hash) => all.filter(api_keys::key_hash.eq(hash.as_slice())).load(connection),
    }
}

/// Revokes this one key; `false` if somebody has done so already.
///
/// # Errors
/// Diesel's.
pub fn revoke(connection: &mut PgConnection, key: &ListedKey) -> QueryResult<bool> {
    let revoked = diesel::update(api_keys::table.find((key.tenant_id, &key.prefix)))
        .filter(api_keys::revoked_at.is_null())
        .set(api_keys::revoked_at.eq(diesel::dsl::now.into_sql::<Timestamptz>().nullable()))
        .execute(connection)?;
    Ok(revoked == 1)
}

/// What was heard of API keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// One or more have changed.
    Changed,
    /// Somebody tried whether he is heard: see [`announce`].
    Announced(Uuid),
}

/// Asks to hear of changes to keys on this connection; a second time it is a mere round trip. Whatever was committed before,
/// [`heard`] has afterwards: PostgreSQL sends notifications before it ends the answer to a statement. A server that can't send
/// any, a standby, refuses.
///
/// # Errors
/// Diesel's.
pub fn listen(connection: &mut PgConnection) -> QueryResult<()> {
    // Prepared first, it would be two round trips, and a pooler might take each to another server.
    connection.batch_execute("LISTEN payonce_api_keys")
}

/// What has arrived on this connection since the last call. It asks nothing of PostgreSQL.
///
/// # Errors
/// If the connection is gone.
pub fn heard(connection: &mut PgConnection) -> QueryResult<Vec<News>> {
    let notifications = connection.notifications_iter();
    let news = notifications.map(|notification| {
        let payload = notification?.payload;
        Ok(Uuid::parse_str(&payload).map_or(News::Changed, News::Announced))
    });
    news.collect()
}

/// Has everybody who listens hear this token, by the same way as a change.
///
/// # Errors
/// Diesel's.
pub fn announce(connection: &mut PgConnection, token: Uuid) -> QueryResult<()> {
    connection.batch_execute(&format!("NOTIFY payonce_api_keys, '{token}'"))
}
