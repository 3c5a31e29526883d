//! What a client knows: what he was told, and what must have come of it. Independent of the service's code; money is in cents.

use uuid::Uuid;

/// SHA-256 of a body: all answers under one key must have the same.
pub type Digest = [u8; 32];

/// A key and its answer.
pub struct Told {
    pub key: Uuid,
    pub status: u16,
    pub body: Digest,
    /// `None` for a refusal.
    pub effect: Option<Effect>,
}

/// What an answer says has happened.
#[derive(Clone, Copy)]
pub enum Effect {
    Opened { account: Uuid },
    StatusSet { account: Uuid },
    Moved(Movement),
}

impl Effect {
    /// The effect that is asked for, once the answer has told the id.
    pub fn with(mut self, told: Uuid) -> Self {
        match &mut self {
            Self::Opened { account } => *account = told,
            Self::StatusSet { .. } => {}
            Self::Moved(movement) => movement.id = told,
        }
        self
    }

    /// What the service must remember as made or changed.
    pub fn resource(self) -> Uuid {
        match self {
            Self::Opened { account } | Self::StatusSet { account } => account,
            Self::Moved(movement) => movement.id,
        }
    }
}

/// Money from one account to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Movement {
    pub id: Uuid,
    pub kind: Kind,
    /// `None`: the world outside.
    pub from: Option<Uuid>,
    pub to: Option<Uuid>,
    pub cents: i64,
    /// What a refund gives back of.
    pub payment: Option<Uuid>,
}

impl Movement {
    /// A payment that is asked for.
    pub fn payment(from: Uuid, to: Uuid, cents: i64) -> Self {
        Self {
            id: Uuid::nil(),
            kind: Kind::Payment,
            from: Some(from),
            to: Some(to),
            cents,
            payment: None,
        }
    }

    /// A refund that is asked for.
    pub fn refund(of: &Payment, cents: i64) -> Self {
        Self {
            kind: Kind::Refund,
            payment: Some(of.id),
            ..Self::payment(of.payee, of.payer, cents)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Deposit,
    Withdrawal,
    Payment,
    Refund,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Deposit => "deposit",
            Self::Withdrawal => "withdrawal",
            Self::Payment => "payment",
            Self::Refund => "refund",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Active,
    Frozen,
    Closed,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Frozen => "frozen",
            Self::Closed => "closed",
        }
    }
}

/// An account that one client has for himself, so that he knows what it must hold.
#[derive(Clone, Copy)]
pub struct Account {
    pub id: Uuid,
    pub cents: i64,
    pub status: Status,
}

/// A payment that only its maker refunds.
#[derive(Clone, Copy)]
pub struct Payment {
    pub id: Uuid,
    pub payer: Uuid,
    pub payee: Uuid,
    pub cents: i64,
    pub refunded: i64,
}

impl Payment {
    pub fn refundable(&self) -> i64 {
        self.cents - self.refunded
    }
}

/// Everything that one client was told.
#[derive(Default)]
pub struct History {
    pub told: Vec<Told>,
    /// His accounts, as they must be at the end. Of shared ones only the movements tell.
    pub own: Vec<Account>,
}

impl History {
    /// The accounts that were opened.
    pub fn accounts(&self) -> Vec<Uuid> {
        let opened = self.told.iter().filter_map(|told| match told.effect {
            Some(Effect::Opened { account }) => Some(account),
            _ => None,
        });
        opened.collect()
    }
}

/// Why money may not go from one account to another: the codes of all the reasons there are, any of which is a right answer.
/// `None` is an account that is shared, and so always active and rich, or the world outside.
pub fn refusals(from: Option<&Account>, to: Option<&Account>, cents: i64) -> Vec<&'static str> {
    let mut codes = Vec::new();
    let closed = |account: Option<&Account>| account.is_some_and(|account| account.status == Status::Closed);
    if closed(from) || closed(to) {
        codes.push("account_closed");
    }
    if from.is_some_and(|from| from.status == Status::Frozen) {
        codes.push("account_frozen");
    }
    if from.is_some_and(|from| from.cents < cents) {
        codes.push("insufficient_funds");
    }
    codes
}

/// `1234` cents are `"12.34"`.
pub fn money(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// `"12.34"` are `1234` cents; `None` if it is no such text.
pub fn cents(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.')?;
    let (part, beyond) = part.split_at_checked(2)?;
    let exact = beyond.bytes().all(|digit| digit == b'0');
    let sign = if whole.starts_with('-') { -1 } else { 1 };
    let cents = whole.parse::<i64>().ok()?.checked_mul(100)? + sign * part.parse::<i64>().ok()?;
    exact.then_some(cents)
}
