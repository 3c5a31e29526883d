//! The table `idempotency_keys`: claim, save, find; and the clean-up.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use diesel::connection::SimpleConnection;
use diesel::sql_types::{Array, BigInt, Binary, Bool, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid};
use diesel::{PgConnection, QueryResult, RunQueryDsl, prelude::*};
use uuid::Uuid;

use super::batch_query::batch_query;
use super::rows::{self, unreadable};
use super::schema::idempotency_keys as table;
use crate::domain::TenantId;
use crate::idempotency::request_hash::path;
use crate::idempotency::{
    IdempotencyKey, Record, Request, RequestHash, Resource, ResourceKind, Retention, StoredResponse,
};

/// A key and whose it is.
pub type KeyId = (TenantId, IdempotencyKey);

batch_query! {
    /// The claim. It waits for a transaction that has inserted the same key and not ended yet: if that one commits, the
    /// key is lost, if it rolls back, the key is ours. Sorted, so that two batches wait for each other in one direction only.
    Claim -> (SqlUuid, Text, Timestamptz) {
        "INSERT INTO idempotency_keys \
             (tenant_id, key, request_hash, request_path, claimed_by, created_at, expires_at, forget_at) \
         SELECT r.tenant_id, r.key, r.request_hash, r.request_path, r.claimed_by, now(), now() + w.response, now() + w.response + w.tombstone \
         FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [keys: Vec<String> as Array<Text>]
        ", " [request_hashes: Vec<Vec<u8>> as Array<Binary>]
        ", " [request_paths: Vec<String> as Array<Text>]
        ", " [claimed_by: Vec<Uuid> as Array<SqlUuid>]
        ") AS r (tenant_id, key, request_hash, request_path, claimed_by), \
         (SELECT " [response_seconds: i64 as BigInt]
        " * interval '1 second', " [tombstone_seconds: i64 as BigInt]
        " * interval '1 second') AS w (response, tombstone) \
         ORDER BY r.tenant_id, r.key COLLATE \"C\" \
         ON CONFLICT DO NOTHING \
         RETURNING tenant_id, key, created_at"
    }
}

/// The keys that a batch is the first to use.
#[derive(Debug, Default)]
pub struct Claimed {
    keys: HashSet<(Uuid, String)>,
    /// The database's time, if any key was claimed.
    pub at: Option<DateTime<Utc>>,
}

impl Claimed {
    /// Takes the claim of a request's key out; `false` if the key was lost, or taken out before.
    pub fn take(&mut self, request: &Request) -> bool {
        self.keys.remove(&(request.tenant.0, request.key.as_str().to_owned()))
    }
}

/// Claims the keys of `requests`. Of several equal keys the first request's is claimed.
///
/// # Errors
/// Diesel's.
pub fn claim<'a>(
    connection: &mut PgConnection,
    requests: impl Iterator<Item = &'a Request>,
    retention: Retention,
) -> QueryResult<Claimed> {
    let mut query = Claim {
        tenant_ids: Vec::new(),
        keys: Vec::new(),
        request_hashes: Vec::new(),
        request_paths: Vec::new(),
        claimed_by: Vec::new(),
        response_seconds: seconds(retention.response),
        tombstone_seconds: seconds(retention.tombstone),
    };
    let mut seen = HashSet::new();
    for request in requests.filter(|request| seen.insert((request.tenant, &request.key))) {
        query.tenant_ids.push(request.tenant.0);
        query.keys.push(request.key.as_str().to_owned());
        query.request_hashes.push(request.hash.0.to_vec());
        query.request_paths.push(path(&request.command));
        query.claimed_by.push(request.new_id);
    }
    let rows: Vec<(Uuid, String, DateTime<Utc>)> = query.load(connection)?;
    let at = rows.iter().map(|row| row.2).max();
    Ok(Claimed {
        keys: rows.into_iter().map(|(tenant, key, _)| (tenant, key)).collect(),
        at,
    })
}

/// Takes what a claim needs beside its key: the table's lock, that anybody may have for any reason. There is no other, for the
/// table has no foreign key.
///
/// # Errors
/// Diesel's.
pub fn lock_for_claims(connection: &mut PgConnection) -> QueryResult<()> {
    connection.batch_execute("LOCK TABLE idempotency_keys IN ROW EXCLUSIVE MODE")
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

batch_query! {
    /// Completes claims with what is answered.
    Save -> () {
        "UPDATE idempotency_keys k \
         SET response_code = r.code, response_body = r.body, resource_kind = r.kind, resource_id = r.id \
         FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [keys: Vec<String> as Array<Text>]
        ", " [codes: Vec<i16> as Array<SmallInt>]
        ", " [bodies: Vec<Vec<u8>> as Array<Binary>]
        ", " [resource_kinds: Vec<Option<&'static str>> as Array<Nullable<Text>>]
        ", " [resource_ids: Vec<Option<Uuid>> as Array<Nullable<SqlUuid>>]
        ") AS r (tenant_id, key, code, body, kind, id) \
         WHERE k.tenant_id = r.tenant_id AND k.key = r.key"
    }
}

/// Saves the responses of claimed keys.
///
/// # Errors
/// Diesel's, or if not each response found its claim.
pub fn save_responses<'a>(
    connection: &mut PgConnection,
    answers: impl Iterator<Item = (&'a Request, &'a StoredResponse)>,
) -> QueryResult<()> {
    let mut query = Save {
        tenant_ids: Vec::new(),
        keys: Vec::new(),
        codes: Vec::new(),
        bodies: Vec::new(),
        resource_kinds: Vec::new(),
        resource_ids: Vec::new(),
    };
    for (request, response) in answers {
        query.tenant_ids.push(request.tenant.0);
        query.keys.push(request.key.as_str().to_owned());
        query.codes.push(i16::try_from(response.status).map_err(unreadable)?);
        query.bodies.push(response.body.to_vec());
        query
            .resource_kinds
            .push(response.resource.map(|resource| resource.kind.as_str()));
        query.resource_ids.push(response.resource.map(|resource| resource.id));
    }
    let expected = query.keys.len();
    let saved = query.execute(connection)?;
    if saved == expected {
        Ok(())
    } else {
        Err(unreadable(format!("{saved} of {expected} responses saved")))
    }
}

batch_query! {
    /// What is remembered of keys. `now()` is the transaction's beginning: what the clean-up has erased since is expired, too.
    Find -> (SqlUuid, Text, Binary, Nullable<SqlUuid>, Nullable<SmallInt>, Nullable<Binary>, Nullable<Text>, Nullable<SqlUuid>, Bool, Bool) {
        "SELECT k.tenant_id, k.key, k.request_hash, k.claimed_by, k.response_code, k.response_body, k.resource_kind, k.resource_id, \
                k.expires_at <= now() OR k.erased_at IS NOT NULL, k.forget_at <= now() \
         FROM idempotency_keys k \
         WHERE (k.tenant_id, k.key) IN (SELECT * FROM unnest(" [tenant_ids: Vec<Uuid> as Array<SqlUuid>]
        ", " [keys: Vec<String> as Array<Text>]
        "))"
    }
}

#[derive(Queryable)]
struct FoundRow {
    tenant_id: Uuid,
    key: String,
    request_hash: Vec<u8>,
    claimed_by: Option<Uuid>,
    response_code: Option<i16>,
    response_body: Option<Vec<u8>>,
    resource_kind: Option<String>,
    resource_id: Option<Uuid>,
    expired: bool,
    forgotten: bool,
}

/// What is remembered of the keys of `requests`. What counts as expired does not depend on the clean-up.
///
/// # Errors
/// Diesel's.
pub fn find<'a>(
    connection: &mut PgConnection,
    requests: impl Iterator<Item = &'a Request>,
) -> QueryResult<HashMap<(Uuid, String), Record>> {
    let (tenant_ids, keys) = requests
        .map(|request| (request.tenant.0, request.key.as_str().to_owned()))
        .unzip();
    let found: Vec<FoundRow> = Find { tenant_ids, keys }.load(connection)?;
    found.into_iter().map(FoundRow::into_record).collect()
}

impl FoundRow {
    fn into_record(self) -> QueryResult<((Uuid, String), Record)> {
        let resource = resource(self.resource_kind.as_deref(), self.resource_id)?;
        let record = if self.forgotten {
            Record::Forgotten
        } else if self.expired {
            Record::Expired { resource }
        } else {
            let (Some(code), Some(body)) = (self.response_code, self.response_body) else {
                return Err(unreadable(format!("idempotency key {:?} has no response", self.key)));
            };
            let status = u16::try_from(code).map_err(unreadable)?;
            let response = StoredResponse {
                status,
                body: Bytes::from(body),
                resource,
            };
            Record::Live {
                hash: hash(&self.request_hash)?,
                claimed_by: self.claimed_by,
                response,
            }
        };
        Ok(((self.tenant_id, self.key), record))
    }
}

fn hash(bytes: &[u8]) -> QueryResult<RequestHash> {
    bytes.try_into().map(RequestHash).map_err(unreadable)
}

fn resource(kind: Option<&str>, id: Option<Uuid>) -> QueryResult<Option<Resource>> {
    match (kind, id) {
        (Some(kind), Some(id)) => Ok(Some(Resource {
            kind: rows::named(kind, ResourceKind::parse)?,
            id,
        })),
        _ => Ok(None),
    }
}

/// Everything about a key, for incidents.
#[derive(Debug, Clone)]
pub struct KeyDetails {
    /// Of the first request.
    pub request_hash: RequestHash,
    /// What was posted to.
    pub request_path: String,
    /// HTTP status of the answer.
    pub status: u16,
    /// The answer's bytes, until they are erased.
    pub body: Option<Vec<u8>>,
    /// What came of it.
    pub resource: Option<Resource>,
    /// When the key was first used.
    pub created_at: DateTime<Utc>,
    /// Until when it is replayed.
    pub expires_at: DateTime<Utc>,
    /// Whether that has passed, and the answer may be erased.
    pub expired: bool,
}

/// Everything about a key; `None` if it is unknown, or forgotten.
///
/// # Errors
/// Diesel's.
pub fn details(
    connection: &mut PgConnection,
    tenant: TenantId,
    key: &IdempotencyKey,
) -> QueryResult<Option<KeyDetails>> {
    type Row = (
        Vec<u8>,
        String,
        Option<i16>,
        Option<Vec<u8>>,
        Option<String>,
        Option<Uuid>,
        DateTime<Utc>,
        DateTime<Utc>,
        bool,
    );
    let row: Option<Row> = table::table
        .find((tenant.0, key.as_str()))
        .filter(table::forget_at.gt(diesel::dsl::now))
        .select((
            table::request_hash,
            table::request_path,
            table::response_code,
            table::response_body,
            table::resource_kind,
            table::resource_id,
            table::created_at,
            table::expires_at,
            // What a clock that was ahead has let be erased does not come back with the clock.
            table::expires_at
                .le(diesel::dsl::now)
                .or(table::erased_at.is_not_null()),
        ))
        .first(connection)
        .optional()?;
    let Some((request_hash, request_path, code, body, kind, id, created_at, expires_at, expired)) = row else {
        return Ok(None);
    };
    let code = code.ok_or_else(|| unreadable(format!("idempotency key {key} has no response")))?;
    Ok(Some(KeyDetails {
        request_hash: hash(&request_hash)?,
        request_path,
        status: u16::try_from(code).map_err(unreadable)?,
        body: body.filter(|_| !expired),
        resource: resource(kind.as_deref(), id)?,
        created_at,
        expires_at,
        expired,
    }))
}

/// The payment that a key made, if it made one and is still remembered.
///
/// # Errors
/// Diesel's.
pub fn payment_made_by(
    connection: &mut PgConnection,
    tenant: TenantId,
    key: &IdempotencyKey,
) -> QueryResult<Option<Uuid>> {
    table::table
        .find((tenant.0, key.as_str()))
        .filter(table::forget_at.gt(diesel::dsl::now))
        .filter(table::resource_kind.eq(ResourceKind::Payment.as_str()))
        .select(table::resource_id)
        .first::<Option<Uuid>>(connection)
        .optional()
        .map(Option::flatten)
}

batch_query! {
    /// Erases the bodies of keys past their window; skips rows that another clean-up has.
    Erase -> () {
        "UPDATE idempotency_keys SET response_body = NULL, erased_at = now() \
         WHERE (tenant_id, key) IN ( \
             SELECT tenant_id, key FROM idempotency_keys WHERE erased_at IS NULL AND expires_at <= now() \
             ORDER BY expires_at LIMIT " [limit: i64 as BigInt]
        " FOR UPDATE SKIP LOCKED)"
    }
}

batch_query! {
    /// Deletes tombstones that have stood long enough.
    Forget -> () {
        "DELETE FROM idempotency_keys \
         WHERE (tenant_id, key) IN ( \
             SELECT tenant_id, key FROM idempotency_keys WHERE erased_at IS NOT NULL AND forget_at <= now() \
             ORDER BY forget_at LIMIT " [limit: i64 as BigInt]
        " FOR UPDATE SKIP LOCKED)"
    }
}

/// Erases at most `limit` bodies past their window; says how many.
///
/// # Errors
/// Diesel's.
pub fn erase(connection: &mut PgConnection, limit: i64) -> QueryResult<usize> {
    Erase { limit }.execute(connection)
}

/// Deletes at most `limit` tombstones past their time; says how many.
///
/// # Errors
/// Diesel's.
pub fn forget(connection: &mut PgConnection, limit: i64) -> QueryResult<usize> {
    Forget { limit }.execute(connection)
}

/// Deletes one key that is past its tombstone, because a new request wants it before the clean-up came by.
///
/// # Errors
/// Diesel's.
pub fn forget_key(connection: &mut PgConnection, tenant: TenantId, key: &IdempotencyKey) -> QueryResult<usize> {
    diesel::delete(
        table::table
            .find((tenant.0, key.as_str()))
            .filter(table::forget_at.le(diesel::dsl::now)),
    )
    .execute(connection)
}
