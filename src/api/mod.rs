//! What a caller sends and sees, as JSON. Pure: it knows no HTTP framework and no SQL.
//!
//! - [`strict_json`], [`body`], `check`: from bytes to a valid `Command`, or a problem that names each wrong field
//! - [`resource`]: each thing's JSON
//! - [`problem`]: the one table of error codes
//! - [`render`]: an effect or a refusal as the response that will be stored

pub mod body;
mod check;
pub mod problem;
pub mod render;
pub mod resource;
pub mod strict_json;

pub use problem::{Code, FieldError, Problem};
pub use render::render;
