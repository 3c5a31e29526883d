//! Lists in pages. A cursor is the place of the last thing shown, not a count: nothing is lost or doubled while rows are added.

use chrono::DateTime;
use uuid::Uuid;

use super::query::Query;
use crate::api::Problem;
use crate::storage::Position;

/// Things on a page if the caller does not say.
const DEFAULT_LIMIT: usize = 20;
/// Most things on a page.
const LARGEST_LIMIT: usize = 100;

const BAD_CURSOR: &str = "must be the next_cursor of an earlier page of this list";

/// Which page is wanted. `P` is how the list tells its places apart.
pub(super) struct PageQuery<P> {
    limit: usize,
    /// After which thing it begins.
    pub after: Option<P>,
}

/// The place of a thing in its list, as an opaque text and back.
pub(super) trait Cursor: Sized {
    fn encode(&self) -> String;
    fn decode(text: &str) -> Option<Self>;
}

impl Cursor for Position {
    fn encode(&self) -> String {
        let mut bytes = self.created_at.timestamp_micros().to_be_bytes().to_vec();
        bytes.extend_from_slice(self.id.as_bytes());
        hex::encode(bytes)
    }

    fn decode(text: &str) -> Option<Self> {
        let bytes: [u8; 24] = hex::decode(text).ok()?.try_into().ok()?;
        let (at, id) = bytes.split_first_chunk::<8>()?;
        let created_at = DateTime::from_timestamp_micros(i64::from_be_bytes(*at))?;
        Some(Self {
            created_at,
            id: Uuid::from_slice(id).ok()?,
        })
    }
}

/// The number of an entry in its account's statement.
impl Cursor for i64 {
    fn encode(&self) -> String {
        hex::encode(self.to_be_bytes())
    }

    fn decode(text: &str) -> Option<Self> {
        let bytes: [u8; 8] = hex::decode(text).ok()?.try_into().ok()?;
        Some(Self::from_be_bytes(bytes))
    }
}

impl<P: Cursor> PageQuery<P> {
    /// Reads `limit` and `cursor`.
    pub fn read(query: &Query) -> Result<Self, Problem> {
        let limit = query.value("limit", |text| {
            let number = text.parse().ok().filter(|limit| (1..=LARGEST_LIMIT).contains(limit));
            number.ok_or("must be a whole number from 1 to 100")
        })?;
        let after = query.value("cursor", |text| P::decode(text).ok_or(BAD_CURSOR))?;
        Ok(Self {
            limit: limit.unwrap_or(DEFAULT_LIMIT),
            after,
        })
    }

    /// How many rows to fetch: one more than is shown tells whether there is another page.
    pub fn fetch(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX).saturating_add(1)
    }

    /// The rows to show of those fetched, and the cursor of the next page.
    pub fn cut<R>(&self, mut rows: Vec<R>, place: impl Fn(&R) -> P) -> (Vec<R>, Option<String>) {
        let more = rows.len() > self.limit;
        rows.truncate(self.limit);
        let next_cursor = rows.last().filter(|_| more).map(|last| place(last).encode());
        (rows, next_cursor)
    }
}
