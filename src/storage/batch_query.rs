//! Statements with a fixed text, whose binds are arrays with one element for each command of a batch.
//!
//! Diesel keeps a statement prepared only if its text can be known from its type. Its query builder can't say `unnest` over
//! several arrays, and `sql_query` is prepared anew each time; so [`batch_query!`](crate::storage::batch_query) makes a type of its own for each statement.

/// Declares a statement: its name, the SQL types of its result, and its text with the binds in place.
///
/// ```text
/// batch_query! {
///     /// What it does.
///     Name -> (Text, Bool) {
///         "SELECT … FROM unnest(" [ids: Vec<Uuid> as Array<sql_types::Uuid>] ") …"
///     }
/// }
/// ```
macro_rules! batch_query {
    ($(#[$meta:meta])* $name:ident -> $result:ty {
        $($sql:literal $([$bind:ident: $rust:ty as $sql_type:ty])?)*
    }) => {
        $(#[$meta])*
        struct $name {
            $($($bind: $rust,)?)*
        }

        impl diesel::query_builder::QueryId for $name {
            type QueryId = Self;
            const HAS_STATIC_QUERY_ID: bool = true;
        }

        impl diesel::query_builder::Query for $name {
            type SqlType = $result;
        }

        impl diesel::query_builder::QueryFragment<diesel::pg::Pg> for $name {
            fn walk_ast<'b>(
                &'b self,
                mut out: diesel::query_builder::AstPass<'_, 'b, diesel::pg::Pg>,
            ) -> diesel::QueryResult<()> {
                $(
                    out.push_sql($sql);
                    $(out.push_bind_param::<$sql_type, $rust>(&self.$bind)?;)?
                )*
                Ok(())
            }
        }

        impl diesel::RunQueryDsl<diesel::PgConnection> for $name {}
    };
}

pub(super) use batch_query;
