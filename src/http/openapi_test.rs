//! Proves that what is kept by operation is kept for every operation.

use std::collections::BTreeSet;

use super::*;

/// Without it a new operation is documented as one that never refuses anything.
#[test]
fn the_refusals_of_each_operation_are_listed_once() {
    let document = openapi();
    let items = document.paths.paths.values();
    let operations = items.flat_map(|item| [&item.get, &item.post]).flatten();
    let documented: Vec<&str> = operations.map(|it| it.operation_id.as_deref().unwrap()).collect();
    let listed: Vec<&str> = openapi_problems::OWN.iter().map(|(id, _)| *id).collect();
    assert_eq!(
        listed.iter().collect::<BTreeSet<_>>(),
        documented.iter().collect::<BTreeSet<_>>()
    );
    assert_eq!(listed.len(), documented.len(), "one is listed twice");
}
