//! Money: an ISO 4217 currency, and amounts that are exact in it.
//!
//! Amounts are decimals in major units (`"12.50"` USD, `"500"` JPY, `"1.234"` KWD). Nothing here ever rounds.
//!
//! | type | what it is |
//! |---|---|
//! | [`Currency`] | a currency that money can be held in |
//! | [`Amount`] | a positive sum in a currency, in exactly its decimals: what a payment moves |
//! | [`Sum`] | a decimal whose currency is not known yet: what a refund asks for |
//!
//! **A trap.** [`Currency::from_str`] and [`Amount::new`] read what callers send *and* the rows of the database, as the texts of
//! `domain` do. Whoever narrows one of them makes rows unreadable that were written before: a read of such an account is then a
//! 500, and so is every command that locks it. A rule for new things goes where they are made, as in
//! [`Currency::for_new_account`]. An update of `iso_currency` can narrow them as well: a test has the list of what must stay readable.

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;

/// Largest amount and largest balance, in major units: what `NUMERIC(19,4)` holds.
pub const MAX: Decimal = Decimal::from_parts(0x89E7_FFFF, 0x8AC7_2304, 0, false, 4);

/// What an external account can owe at most, in major units: what `NUMERIC(28,4)` holds, a billion times [`MAX`].
pub const EXTERNAL_MAX: Decimal = Decimal::from_parts(0x0FFF_FFFF, 0x3E25_0261, 0x204F_CE5E, false, 4);

/// No currency of ISO 4217 has more decimals (`CLF` and `UYW` have four).
const MOST_DECIMALS: u32 = 4;

/// Digits before the point of [`MAX`].
const MOST_WHOLE_DIGITS: usize = 15;

/// Superseded, says `iso_currency`, and in circulation all the same: amendment 170 of ISO 4217 added `VED` in 2021 and kept `VES` as
/// the code to use.
const CIRCULATES: iso_currency::Currency = iso_currency::Currency::VES;

/// An ISO 4217 currency with a minor unit. `XXX`, `XAU` and the like have none, so nothing can be paid in them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Currency {
    iso: iso_currency::Currency,
    decimals: u32,
}

impl Currency {
    /// Reads the code of a currency to open a new account in: one in circulation. Accounts that are there keep their currency when it
    /// is withdrawn, and [`Currency::from_str`] goes on reading it.
    ///
    /// # Errors
    /// A [`MoneyError`] that says why no account is opened in it.
    pub fn for_new_account(code: &str) -> Result<Self, MoneyError> {
        let currency: Self = code.parse()?;
        let successor = currency.iso.is_superseded().filter(|_| currency.iso != CIRCULATES);
        if let Some(successor) = successor {
            return Err(MoneyError::Withdrawn(currency, successor.code()));
        }
        if currency.iso.is_fund() || currency.iso.is_special() {
            return Err(MoneyError::UnitOfAccount(currency));
        }
        Ok(currency)
    }

    /// How many decimals an amount in this currency has: 2 for USD, 0 for JPY.
    #[must_use]
    pub fn decimals(self) -> u32 {
        self.decimals
    }

    /// The three capital letters.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.iso.code()
    }

    /// A decimal with exactly the currency's decimals: `12.5` is `12.50` in USD.
    ///
    /// Meant for values known to fit (they came from the database or from an [`Amount`]); it never cuts digits off.
    #[must_use]
    pub fn exact(self, value: Decimal) -> Decimal {
        let mut scaled = value.normalize();
        if scaled.scale() < self.decimals {
            scaled.rescale(self.decimals);
        }
        scaled
    }

    /// An amount as a person would write it in this currency, for messages: `"12.50"`, `"500"`.
    #[must_use]
    pub fn example(self) -> &'static str {
        match self.decimals {
            0 => "500",
            2 => "12.50",
            3 => "1.234",
            _ => "1.2345",
        }
    }
}

impl FromStr for Currency {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let known = |iso: iso_currency::Currency| {
            Some(Self {
                iso,
                decimals: u32::from(iso.exponent()?),
            })
        };
        iso_currency::Currency::from_code(text)
            .and_then(known)
            .ok_or(MoneyError::Currency)
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.code())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.code())
    }
}

/// Why a text is not money. `Display` is what a caller reads after the name of the field or the value that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not three capital letters of a currency in use.
    #[error("must be an ISO 4217 code in capitals that money can be held in, for example \"USD\", \"JPY\" or \"KWD\"")]
    Currency,
    /// Replaced by another, whose code this is.
    #[error("must be a currency in circulation: {0} has been replaced by {1}")]
    Withdrawn(Currency, &'static str),
    /// It has a code and a minor unit, but nobody has it in a purse: an index, a fund, money of the next day.
    #[error("must be a currency in circulation: {0} is a fund or a unit of account")]
    UnitOfAccount(Currency),
    /// Not plain digits with at most one point.
    #[error(transparent)]
    Notation(#[from] NotationError),
    /// Zero or below where only a positive amount makes sense.
    #[error("must be greater than zero")]
    NotPositive,
    /// Below zero.
    #[error("must not be negative")]
    Negative,
    /// More decimals than the currency has.
    #[error("has more decimals than {0} allows ({decimals}), and amounts are never rounded", decimals = .0.decimals())]
    TooPrecise(Currency),
    /// More decimals than any currency has.
    #[error("has more decimals than any currency has ({MOST_DECIMALS}), and amounts are never rounded")]
    TooPreciseForAny,
    /// Above [`MAX`].
    #[error("must not be greater than {MAX}")]
    TooLarge,
}

/// Which rule of the notation a text breaks: the digits 0 to 9, at most one point with digits on both sides, no leading zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotationError {
    /// Not a digit from 0 to 9, nor a point.
    #[error("has {0:?} in it, where only the digits 0 to 9 and a point may be")]
    Character(char),
    /// Nothing that says how much.
    #[error("has no digits")]
    NoDigits,
    /// Two points or more.
    #[error("has more than one point")]
    Points,
    /// `.5`
    #[error("has no digit before the point")]
    NoWhole,
    /// `5.`
    #[error("has no digit after the point")]
    NoFraction,
    /// `05`
    #[error("has a leading zero")]
    LeadingZero,
}

/// A decimal of zero or more, without a currency: `0 ≤ value ≤` [`MAX`], at most four decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sum(Decimal);

impl Sum {
    /// Reads `"12.50"`: ASCII digits, at most one point with digits on both sides, no leading zeros.
    ///
    /// # Errors
    /// A [`MoneyError`] that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, MoneyError> {
        match text.strip_prefix('-') {
            Some(rest) => Self::digits(rest).and(Err(MoneyError::Negative)),
            None => Self::digits(text),
        }
    }

    fn digits(text: &str) -> Result<Self, MoneyError> {
        let (whole, fraction) = split(text)?;
        if whole.len() > MOST_WHOLE_DIGITS {
            return Err(MoneyError::TooLarge);
        }
        if u32::try_from(fraction.len()).is_ok_and(|decimals| decimals > MOST_DECIMALS) {
            return Err(MoneyError::TooPreciseForAny);
        }
        Decimal::from_str_exact(text)
            .map(Self)
            .map_err(|_| NotationError::NoDigits.into())
    }

    /// The same, but zero is refused.
    ///
    /// # Errors
    /// A [`MoneyError`] that says what is wrong.
    pub fn parse_positive(text: &str) -> Result<Self, MoneyError> {
        match Self::parse(text) {
            Ok(sum) if sum.0.is_zero() => Err(MoneyError::NotPositive),
            Err(MoneyError::Negative) => Err(MoneyError::NotPositive),
            other => other,
        }
    }

    /// The bare number, in major units.
    #[must_use]
    pub fn value(self) -> Decimal {
        self.0
    }

    /// This sum as an amount of `currency`.
    ///
    /// # Errors
    /// [`MoneyError::TooPrecise`] if it was written with more decimals than the currency has,
    /// [`MoneyError::NotPositive`] if it is zero.
    pub fn in_currency(self, currency: Currency) -> Result<Amount, MoneyError> {
        if self.0.scale() > currency.decimals() {
            return Err(MoneyError::TooPrecise(currency));
        }
        Amount::new(self.0, currency)
    }
}

/// The digits before and after the point.
fn split(text: &str) -> Result<(&str, &str), NotationError> {
    let is_strange = |character: &char| !character.is_ascii_digit() && *character != '.';
    if let Some(character) = text.chars().find(is_strange) {
        return Err(NotationError::Character(character));
    }
    match text.split_once('.').unwrap_or((text, "")) {
        ("", "") => Err(NotationError::NoDigits),
        (_, fraction) if fraction.contains('.') => Err(NotationError::Points),
        ("", _) => Err(NotationError::NoWhole),
        (_, "") if text.ends_with('.') => Err(NotationError::NoFraction),
        (whole, _) if whole.len() > 1 && whole.starts_with('0') => Err(NotationError::LeadingZero),
        parts => Ok(parts),
    }
}

/// A positive amount in a currency, with exactly the currency's decimals; at most [`MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Amount {
    value: Decimal,
    currency: Currency,
}

impl Amount {
    /// Checks that `value` is an amount of `currency`.
    ///
    /// # Errors
    /// A [`MoneyError`] that says what is wrong.
    pub fn new(value: Decimal, currency: Currency) -> Result<Self, MoneyError> {
        if value <= Decimal::ZERO {
            return Err(MoneyError::NotPositive);
        }
        if value > MAX {
            return Err(MoneyError::TooLarge);
        }
        let value = currency.exact(value);
        if value.scale() > currency.decimals() {
            return Err(MoneyError::TooPrecise(currency));
        }
        Ok(Self { value, currency })
    }

    /// Reads `"12.50"` as an amount of `currency`; `"12.5"` means the same, `"12.505"` is refused in USD.
    ///
    /// # Errors
    /// A [`MoneyError`] that says what is wrong.
    pub fn parse(text: &str, currency: Currency) -> Result<Self, MoneyError> {
        let sum = Sum::parse_positive(text).map_err(|error| match error {
            MoneyError::TooPreciseForAny => MoneyError::TooPrecise(currency),
            other => other,
        })?;
        sum.in_currency(currency)
    }

    /// The bare number, in major units.
    #[must_use]
    pub fn value(self) -> Decimal {
        self.value
    }

    /// What it is an amount of.
    #[must_use]
    pub fn currency(self) -> Currency {
        self.currency
    }
}

#[cfg(test)]
#[path = "money_test.rs"]
mod tests;
