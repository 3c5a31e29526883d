//! The books are right, or the test fails: every test that moves money ends with this.

use payonce::commands::audit::broken_laws;

use super::TestDatabase;
use super::database::settings;

#[track_caller]
pub fn assert_books_balance(database: &TestDatabase) {
    assert_eq!(
        broken_laws(&settings(&database.url)).expect("an audit"),
        Vec::<String>::new()
    );
}
