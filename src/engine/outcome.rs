//! How a request ends, as its caller sees it.

use crate::idempotency::{Resource, StoredResponse, Verdict};

/// What a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The response as it is stored.
    pub response: StoredResponse,
    /// Was it stored for an earlier request?
    pub replayed: bool,
}

/// Why a request got no stored answer. None of these is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The queue is full; nothing was executed.
    #[error("too much work is waiting")]
    Overloaded,
    /// An equal request is still running.
    #[error("the first request under this key is still running")]
    InUse,
    /// The key belongs to another request.
    #[error("the key was first used for another request")]
    Reused,
    /// The key's window has passed; nothing was executed.
    #[error("the key's window has passed")]
    Expired(Option<Resource>),
    /// The database could not be reached or kept rolling back; the outcome may even be unknown.
    #[error("{0}")]
    Unavailable(String),
    /// A bug: it was rolled back, and the log has the details.
    #[error("internal error")]
    Broken,
}

/// An answer or the reason why there is none.
pub type Outcome = Result<Answer, EngineError>;

/// What the verdict on a known key means for the caller; `None` if the request has to run.
pub(super) fn settle(verdict: Verdict) -> Option<Outcome> {
    match verdict {
        Verdict::Replay(response) => Some(Ok(Answer {
            response,
            replayed: true,
        })),
        Verdict::Own(response) => Some(Ok(Answer {
            response,
            replayed: false,
        })),
        Verdict::Reused => Some(Err(EngineError::Reused)),
        Verdict::Expired(resource) => Some(Err(EngineError::Expired(resource))),
        Verdict::Free => None,
    }
}
