//! Whose turn it is to read: a tenant has fewer reads under way than there are connections, so whatever it asks for, and how often, others get
//! theirs. What is above that waits for a moment, and is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::domain::TenantId;

/// How long a read waits for those of its tenant that came before.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tenants that are known before those without a read under way are forgotten.
const TENANTS: usize = 1024;

/// The turns of all tenants.
pub(super) struct Turns {
    at_once: usize,
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

/// It is the tenant's turn until this is dropped.
pub(super) type Turn = OwnedSemaphorePermit;

impl Turns {
    /// So many reads of one tenant at once.
    pub fn new(at_once: usize) -> Self {
        Self {
            at_once,
            tenants: Mutex::default(),
        }
    }

    /// Waits for the tenant's turn, in the order of arrival; `None` if it does not come soon.
    pub async fn wait_for(&self, tenant: TenantId) -> Option<Turn> {
        let turn = self.of(tenant).acquire_owned();
        timeout(PATIENCE, turn).await.ok()?.ok()
    }

    fn of(&self, tenant: TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= TENANTS && !tenants.contains_key(&tenant) {
            tenants.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        let turns = tenants
            .entry(tenant)
            .or_insert_with(|| Arc::new(Semaphore::new(self.at_once)));
        Arc::clone(turns)
    }
}
