//! What it means for a request that its key is already known.

use std::time::Duration;

use uuid::Uuid;

use super::{Request, RequestHash, Resource, StoredResponse};

/// How long a key is remembered.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// From the first request on the response is replayed for this long.
    pub response: Duration,
    /// After that the key answers 410 for this long; then it is free again.
    pub tombstone: Duration,
}

/// What is remembered of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Within its window: the response is there.
    Live {
        /// Of the first request.
        hash: RequestHash,
        /// The `new_id` of the request that claimed the key; `None` if nobody knows.
        claimed_by: Option<Uuid>,
        /// What it was answered.
        response: StoredResponse,
    },
    /// Past its window, whether or not the clean-up has erased the body.
    Expired {
        /// What came of it.
        resource: Option<Resource>,
    },
    /// Past its tombstone, only not deleted yet: as good as unknown.
    Forgotten,
}

/// What to do with a request whose key is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The same request again: the same answer again.
    Replay(StoredResponse),
    /// This very request, of which an earlier attempt was committed without anybody hearing of it: its first answer.
    Own(StoredResponse),
    /// Another request under the same key.
    Reused,
    /// Too late to tell a retry from a new request: nothing is executed.
    Expired(Option<Resource>),
    /// The key means nothing any more: run the request.
    Free,
}

/// Compares a request with what is remembered of its key.
#[must_use]
pub fn judge(record: Record, request: &Request) -> Verdict {
    match record {
        Record::Live { hash, .. } if hash != request.hash => Verdict::Reused,
        Record::Live {
            claimed_by, response, ..
        } if claimed_by == Some(request.new_id) => Verdict::Own(response),
        Record::Live { response, .. } => Verdict::Replay(response),
        Record::Expired { resource } => Verdict::Expired(resource),
        Record::Forgotten => Verdict::Free,
    }
}

#[cfg(test)]
#[path = "judge_test.rs"]
mod tests;
