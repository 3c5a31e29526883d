//! A request to change something, ready for the engine.

use uuid::Uuid;

use super::{IdempotencyKey, RequestHash};
use crate::domain::{Command, TenantId};

/// A command under its key. The ids are made here, once: however often it is run again, it makes the same resource.
#[derive(Debug, Clone)]
pub struct Request {
    /// Names this HTTP request in logs and in the `instance` of a problem.
    pub id: Uuid,
    /// Whose request. Keys are the tenant's, not the API key's: a rotated API key must not pay twice.
    pub tenant: TenantId,
    /// The caller's name for the operation.
    pub key: IdempotencyKey,
    /// What the request means.
    pub hash: RequestHash,
    /// What to do.
    pub command: Command,
    /// The id of whatever the command creates. Also tells this request from others under its key, however often it is run.
    pub new_id: Uuid,
}

impl Request {
    /// Puts a command under a key.
    #[must_use]
    pub fn new(id: Uuid, tenant: TenantId, key: IdempotencyKey, command: Command) -> Self {
        let hash = RequestHash::of(&command);
        Self {
            id,
            tenant,
            key,
            hash,
            command,
            new_id: Uuid::now_v7(),
        }
    }
}
