//! Proves that a cursor leads to the place it was made for, in its own list, and that nothing else passes for one.

use proptest::prelude::*;

use super::*;

fn list(tenant: u128, path: &str) -> List {
    List {
        tenant: TenantId(Uuid::from_u128(tenant)),
        path: path.to_owned(),
    }
}

fn positions() -> impl Strategy<Value = Position> {
    (INSTANTS, any::<u128>()).prop_map(|(micros, id)| Position {
        created_at: DateTime::from_timestamp_micros(micros).unwrap(),
        id: Uuid::from_u128(id),
    })
}

/// Anything at all, hexadecimal digits, and bytes that somebody has put the right checksum under.
fn cursors() -> impl Strategy<Value = String> {
    let forged = |place: Vec<u8>| {
        let checksum = list(1, "/payments").checksum(&place);
        hex::encode([place, checksum].concat())
    };
    prop_oneof![
        any::<String>(),
        "[0-9a-fA-F]{0,80}",
        prop::collection::vec(any::<u8>(), 0..40).prop_map(forged),
        prop::collection::vec(any::<u8>(), 24).prop_map(forged),
    ]
}

proptest! {
    /// Without it a page begins elsewhere than the one before has ended: rows are lost or doubled.
    #[test]
    fn a_cursor_leads_back_to_its_place(position in positions(), number in any::<i64>()) {
        let list = list(1, "/payments");
        let read = list.place::<Position>(&list.cursor(&position));
        prop_assert_eq!(read.map(|read| (read.created_at, read.id)), Some((position.created_at, position.id)));
        prop_assert_eq!(list.place::<i64>(&list.cursor(&number)), Some(number));
    }

    /// X13. Without it a cursor of A's shows B a page from the middle of nowhere.
    #[test]
    fn a_cursor_is_good_for_its_own_list_only(position in positions(), number in any::<i64>()) {
        let own = list(1, "/payments");
        for other in [list(2, "/payments"), list(1, "/accounts"), list(1, "/payments/")] {
            prop_assert!(other.place::<Position>(&own.cursor(&position)).is_none());
            prop_assert!(other.place::<i64>(&own.cursor(&number)).is_none());
        }
        prop_assert!(own.place::<i64>(&own.cursor(&position)).is_none());
        prop_assert!(own.place::<Position>(&own.cursor(&number)).is_none());
    }

    /// Without it a list whose id is written in capitals has a first page only.
    #[test]
    fn a_cursor_does_not_mind_the_case_of_the_id_in_the_address(number in any::<i64>(), id in any::<u128>(), tenant in any::<u128>()) {
        let of = |id: String| list(tenant, &format!("/accounts/{id}/entries"));
        let id = Uuid::from_u128(id).to_string();
        let cursor = of(id.to_uppercase()).cursor(&number);
        prop_assert_eq!(of(id).place::<i64>(&cursor), Some(number));
    }

    /// Without it some text takes a worker down, or two different cursors mean one place.
    #[test]
    fn any_text_is_refused_or_the_cursor_of_the_place_it_is_read_as(text in cursors()) {
        let list = list(1, "/payments");
        if let Some(position) = list.place::<Position>(&text) {
            prop_assert_eq!(list.cursor(&position), text.to_lowercase());
        }
        if let Some(number) = list.place::<i64>(&text) {
            prop_assert_eq!(list.cursor(&number), text.to_lowercase());
        }
    }

    /// Without it a page is larger than promised, or endless.
    #[test]
    fn a_limit_is_1_to_100_or_refused(text in prop_oneof![any::<String>(), "[-+]?[0-9]{1,4}", "[0-9]{18,22}"]) {
        let encoded = percent_encoding::utf8_percent_encode(&text, percent_encoding::NON_ALPHANUMERIC);
        let query = Query::parse(&format!("limit={encoded}"), &["limit", "cursor"]);
        let page = query.and_then(|query| PageQuery::<i64>::read(&query, list(1, "/payments")));
        let meant = text.parse().ok().filter(|limit| (1..=100).contains(limit));
        prop_assert_eq!(page.ok().map(|page| page.limit), meant);
    }
}
