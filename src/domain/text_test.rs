//! Proves the lengths of texts at their limits, counted in characters.

use super::*;

fn text(length: usize) -> String {
    "é".repeat(length)
}

fn metadata(members: usize, key: usize, value: usize) -> Result<Metadata, TextError> {
    let member = |number| (format!("{number:é>key$}"), text(value));
    Metadata::new((0..members).map(member).collect())
}

/// Without it a text is cut, or the database's own limit turns into a 500; counted in bytes, an é would be two.
#[test]
fn a_text_has_as_many_characters_as_its_limit_allows() {
    let wrong = |min, max, length| TextError::Length { min, max, length };
    assert_eq!(Name::new(text(255)).unwrap().as_str(), text(255));
    assert_eq!(Name::new(text(0)), Err(wrong(1, 255, 0)));
    assert_eq!(Name::new(text(256)), Err(wrong(1, 255, 256)));
    assert_eq!(Reference::new(text(255)).unwrap().as_str(), text(255));
    assert_eq!(Reference::new(text(0)), Err(wrong(1, 255, 0)));
    assert_eq!(Reference::new(text(256)), Err(wrong(1, 255, 256)));
    assert_eq!(Description::new(text(500)).unwrap().as_str(), text(500));
    assert_eq!(Description::new(text(0)).unwrap().as_str(), "");
    assert_eq!(Description::new(text(501)), Err(wrong(0, 500, 501)));
}

/// Without it somebody keeps his data in somebody else's payment table.
#[test]
fn metadata_is_small() {
    assert_eq!(metadata(50, 40, 500).unwrap().members().len(), 50);
    assert_eq!(metadata(0, 40, 0).unwrap().members().len(), 0);
    assert_eq!(metadata(51, 40, 1), Err(TextError::Members(51)));
    assert!(matches!(metadata(1, 41, 1), Err(TextError::Key { .. })));
    assert!(matches!(metadata(1, 40, 501), Err(TextError::Value { .. })));
    let nameless = Metadata::new([(String::new(), String::new())].into());
    assert!(matches!(nameless, Err(TextError::Key { .. })));
}

/// Without it a caller with fifty members has to guess which one is meant.
#[test]
fn what_is_wrong_with_metadata_names_the_member() {
    let long = Metadata::new([("fine".to_owned(), text(1)), ("note".to_owned(), text(501))].into());
    let message = long.unwrap_err().to_string();
    assert_eq!(message, "value of \"note\": must have 0 to 500 characters, has 501");
}
