//! Lists in pages. A cursor is the place of the last thing shown, not a count: nothing is lost or doubled while rows are added.

use std::ops::RangeInclusive;

use chrono::DateTime;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::query::Query;
use crate::api::Problem;
use crate::domain::TenantId;
use crate::storage::Position;

/// Things on a page if the caller does not say.
pub(super) const DEFAULT_LIMIT: usize = 20;
/// Most things on a page.
pub(super) const LARGEST_LIMIT: usize = 100;

/// The years 1970 to 9999, in microseconds. Beyond them PostgreSQL may not know an instant that somebody has made up.
const INSTANTS: RangeInclusive<i64> = 0..=253_402_300_799_999_999;

const BAD_CURSOR: &str = "must be the next_cursor of an earlier page of this list";

/// Bytes of the checksum in a cursor: enough to notice a cursor of another list.
const CHECKSUM: usize = 4;

/// Which page is wanted. `P` is how the list tells its places apart.
pub(super) struct PageQuery<P> {
    list: List,
    limit: usize,
    /// After which thing it begins.
    pub after: Option<P>,
}

/// A list of a tenant, at its address. Each cursor ends in a checksum over it, so that one of another list or tenant is
/// refused and does not show a page from the middle of nowhere. That is no secret: what a caller may see never
/// hangs on a cursor.
pub(super) struct List {
    pub tenant: TenantId,
    /// Percent-decoded. Its letters count in lower case: only an id can have others, and an id in capitals is the same id.
    pub path: String,
}

impl List {
    fn checksum(&self, place: &[u8]) -> Vec<u8> {
        let hash = Sha256::new()
            .chain_update(self.tenant.0)
            .chain_update(place)
            .chain_update(self.path.to_ascii_lowercase())
            .finalize();
        hash.iter().copied().take(CHECKSUM).collect()
    }

    fn cursor(&self, place: &impl Cursor) -> String {
        let mut bytes = place.to_bytes();
        bytes.extend(self.checksum(&bytes));
        hex::encode(bytes)
    }

    fn place<P: Cursor>(&self, cursor: &str) -> Option<P> {
        let bytes = hex::decode(cursor).ok()?;
        let (place, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM)?)?;
        P::from_bytes(place).filter(|_| checksum == self.checksum(place))
    }
}

/// The place of a thing in its list, as bytes and back.
pub(super) trait Cursor: Sized {
    fn to_bytes(&self) -> Vec<u8>;
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl Cursor for Position {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.created_at.timestamp_micros().to_be_bytes().to_vec();
        bytes.extend_from_slice(self.id.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (at, id) = bytes.split_first_chunk::<8>()?;
        let micros = Some(i64::from_be_bytes(*at)).filter(|micros| INSTANTS.contains(micros))?;
        let created_at = DateTime::from_timestamp_micros(micros)?;
        Some(Self {
            created_at,
            id: Uuid::from_slice(id).ok()?,
        })
    }
}

/// The number of an entry in its account's statement.
impl Cursor for i64 {
    fn to_bytes(&self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_be_bytes)
    }
}

impl<P: Cursor> PageQuery<P> {
    /// Reads `limit` and `cursor`.
    pub fn read(query: &Query, list: List) -> Result<Self, Problem> {
        let limit = query.value("limit", |text| {
            let number = text.parse().ok().filter(|limit| (1..=LARGEST_LIMIT).contains(limit));
            number.ok_or_else(|| format!("must be a whole number from 1 to {LARGEST_LIMIT}"))
        })?;
        let after = query.value("cursor", |text| list.place(text).ok_or(BAD_CURSOR))?;
        Ok(Self {
            list,
            limit: limit.unwrap_or(DEFAULT_LIMIT),
            after,
        })
    }

    /// How many rows to fetch: one more than is shown tells whether there is another page.
    pub fn fetch(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(i64::MAX).saturating_add(1)
    }

    /// The rows to show of those fetched, and the cursor of the next page.
    pub fn cut<R>(&self, rows: Vec<R>, place: impl Fn(&R) -> P) -> (Vec<R>, Option<String>) {
        self.cut_stretch(rows, place, None)
    }

    /// The same of a list that was only looked through to a certain place, if it was: then the next page goes on from there.
    pub fn cut_stretch<R>(
        &self,
        mut rows: Vec<R>,
        place: impl Fn(&R) -> P,
        looked_to: Option<P>,
    ) -> (Vec<R>, Option<String>) {
        let more = rows.len() > self.limit;
        rows.truncate(self.limit);
        let end = if more { rows.last().map(place) } else { looked_to };
        (rows, end.map(|end| self.list.cursor(&end)))
    }
}

#[cfg(test)]
#[path = "page_test.rs"]
mod tests;
