//! Proves what a known key means for a new request, in each state its record can be in.

use bytes::Bytes;
use uuid::Uuid;

use super::super::{IdempotencyKey, ResourceKind};
use super::*;
use crate::domain::{AccountId, Command, TenantId};

const FIRST: RequestHash = RequestHash([1; 32]);
const OTHER: RequestHash = RequestHash([2; 32]);

/// The request that claimed the key.
const CLAIMED_BY: Uuid = Uuid::from_u128(8);

fn request(hash: RequestHash, new_id: Uuid) -> Request {
    let (tenant, key) = (TenantId(Uuid::nil()), IdempotencyKey::parse(b"a-key").unwrap());
    let command = Command::Freeze(AccountId(Uuid::nil()));
    Request {
        hash,
        new_id,
        ..Request::new(Uuid::nil(), tenant, key, command)
    }
}

/// A later request.
fn repeat(hash: RequestHash) -> Request {
    request(hash, Uuid::from_u128(9))
}

fn resource() -> Resource {
    Resource {
        kind: ResourceKind::Payment,
        id: Uuid::from_u128(7),
    }
}

fn live(status: u16) -> (Record, StoredResponse) {
    let response = StoredResponse {
        status,
        body: Bytes::from_static(b"{\"exactly\" : \"these bytes\"}"),
        resource: (status == 201).then(resource),
    };
    let record = Record::Live {
        hash: FIRST,
        claimed_by: Some(CLAIMED_BY),
        response: response.clone(),
    };
    (record, response)
}

/// I14. Without it a retry is executed again, or a refusal is forgotten as soon as there is money.
#[test]
fn the_same_request_gets_the_stored_answer_whole_be_it_a_refusal() {
    for status in [201, 402, 409] {
        let (record, response) = live(status);
        assert_eq!(judge(record, &repeat(FIRST)), Verdict::Replay(response));
    }
}

/// Without it the first answer that a caller hears is marked as a replay, if the line died after the commit.
#[test]
fn a_request_recognises_its_own_work_whatever_came_of_it() {
    for status in [200, 201, 402, 409] {
        let (record, response) = live(status);
        assert_eq!(judge(record, &request(FIRST, CLAIMED_BY)), Verdict::Own(response));
    }
}

/// A row from before the claimant was noted is nobody's own.
#[test]
fn an_unknown_claimant_is_somebody_else() {
    let (_, response) = live(201);
    let record = Record::Live {
        hash: FIRST,
        claimed_by: None,
        response: response.clone(),
    };
    assert_eq!(judge(record, &request(FIRST, CLAIMED_BY)), Verdict::Replay(response));
}

/// I2. Without it a caller who reuses a key by mistake takes another request's answer for that of his own.
#[test]
fn another_request_never_sees_the_stored_answer() {
    assert_eq!(judge(live(201).0, &repeat(OTHER)), Verdict::Reused);
}

/// I28. Without it a late retry of a nightly batch is the classic second payment.
#[test]
fn past_its_window_a_key_executes_nothing_whatever_is_asked() {
    for resource in [Some(resource()), None] {
        for hash in [FIRST, OTHER] {
            assert_eq!(
                judge(Record::Expired { resource }, &repeat(hash)),
                Verdict::Expired(resource)
            );
        }
    }
}

/// Without it the meaning of a key depends on whether the clean-up has run.
#[test]
fn a_forgotten_key_is_free_before_it_is_deleted() {
    assert_eq!(judge(Record::Forgotten, &repeat(FIRST)), Verdict::Free);
}
