//! What a payment is, and every rule about money. Pure: no SQL, no HTTP, no clock, no I/O.
//!
//! Read [`command`] (what can be asked), [`refusal`] (every "no"), then [`decide`] (the rules) and [`books`] (what they act on).

pub mod account;
pub mod books;
pub mod command;
pub mod decide;
pub mod id;
pub mod names;
pub mod payment;
pub mod refusal;
pub mod text;
pub mod transfer;

pub use account::{Account, AccountKind, AccountStatus};
pub use books::{Books, NotHeld};
pub use command::{Command, Movement, Needs, OpenAccount, Parties, Pay, RefundPayment};
pub use decide::{Context, Effect, decide};
pub use id::{AccountId, PaymentId, RefundId, TenantId};
pub use names::UnknownName;
pub(crate) use names::names;
pub use payment::{Payment, PaymentStatus, Refund};
pub use refusal::{Party, Refusal};
pub use text::{Description, Metadata, Name, Reference, TextError, beginning, excerpt};
pub use transfer::{Entry, Transfer, TransferKind};
