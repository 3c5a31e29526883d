//! Proves that money is read exactly or not at all: no text is rounded, guessed at, or let past the largest amount.

use proptest::prelude::*;

use super::*;

fn currency(code: &str) -> Currency {
    code.parse().unwrap()
}

fn amount(text: &str, code: &str) -> Result<String, MoneyError> {
    Amount::parse(text, currency(code)).map(|amount| amount.value().to_string())
}

fn usd(text: &str) -> Result<String, MoneyError> {
    amount(text, "USD")
}

/// What a plain decimal text is worth in ten-thousandths, read digit by digit: a second opinion that knows no `Decimal`.
fn ten_thousandths(text: &str) -> i128 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{fraction:0<4}").parse().unwrap()
}

/// Without it the largest amount that documents promise and the one that the column holds drift apart.
#[test]
fn the_largest_amount_is_what_the_documents_say() {
    assert_eq!(MAX.to_string(), "999999999999999.9999");
}

/// A8. Without it the largest amount is refused, or one that `NUMERIC(19,4)` can't hold becomes a database error, a 500.
#[test]
fn the_largest_amount_is_accepted_and_the_next_is_refused() {
    for (text, code) in [
        ("999999999999999.9999", "CLF"),
        ("999999999999999.999", "KWD"),
        ("999999999999999.99", "USD"),
        ("999999999999999", "JPY"),
    ] {
        assert_eq!(amount(text, code), Ok(text.to_owned()), "{code}");
    }
    for (text, code) in [
        ("1000000000000000", "CLF"),
        ("1000000000000000.00", "USD"),
        ("1000000000000000", "JPY"),
        ("99999999999999999999999999999999", "JPY"),
    ] {
        assert_eq!(amount(text, code), Err(MoneyError::TooLarge), "{text} {code}");
    }
    let beyond = MAX + Decimal::new(1, 4);
    assert_eq!(Amount::new(beyond, currency("CLF")), Err(MoneyError::TooLarge));
}

/// A1, A3. Without it 500 yen are booked as 5, or a fils is lost: the number of decimals is the currency's, not always two.
#[test]
fn each_currency_has_its_own_decimals() {
    assert_eq!(amount("500", "JPY"), Ok("500".to_owned()));
    assert_eq!(amount("12.50", "USD"), Ok("12.50".to_owned()));
    assert_eq!(amount("1.234", "KWD"), Ok("1.234".to_owned()));
    assert_eq!(amount("1.2345", "CLF"), Ok("1.2345".to_owned()));
    for (code, decimals) in [("JPY", 0), ("USD", 2), ("KWD", 3), ("CLF", 4)] {
        assert_eq!(currency(code).decimals(), decimals, "{code}");
    }
}

/// A1, A3. Without it somebody pays another sum than the one that was sent.
#[test]
fn a_decimal_too_many_is_refused_never_rounded() {
    for (text, code) in [
        ("500.5", "JPY"),
        ("12.505", "USD"),
        ("1.005", "USD"),
        ("0.001", "USD"),
        ("1.2345", "KWD"),
        ("1.23456", "CLF"),
        ("1.23456", "USD"),
    ] {
        assert_eq!(
            amount(text, code),
            Err(MoneyError::TooPrecise(currency(code))),
            "{text} {code}"
        );
    }
    assert_eq!(Sum::parse("1.23456"), Err(MoneyError::TooPreciseForAny));
}

/// Without it a caller who works with the wrong number of decimals goes unnoticed until a digit matters.
#[test]
fn zeros_beyond_the_currencys_decimals_are_refused_too() {
    assert_eq!(usd("12.500"), Err(MoneyError::TooPrecise(currency("USD"))));
    assert_eq!(amount("500.0", "JPY"), Err(MoneyError::TooPrecise(currency("JPY"))));
    assert_eq!(
        Sum::parse("12.500").unwrap().in_currency(currency("USD")),
        Err(MoneyError::TooPrecise(currency("USD")))
    );
}

/// Without it a retry that writes the amount a little shorter counts as another request, or prints in another form.
#[test]
fn missing_zeros_make_no_difference() {
    let [short, long, whole] = ["12.5", "12.50", "12"].map(|text| Amount::parse(text, currency("USD")).unwrap());
    assert_eq!(short, long);
    assert_eq!(short.value().to_string(), "12.50");
    assert_eq!(whole.value().to_string(), "12.00");
    assert_eq!(amount("7", "CLF"), Ok("7.0000".to_owned()));
}

/// A6. Without it two systems read one text differently: a float, a grouping comma, a sign, another script's digits; or a caller
/// is not told which rule it is that he broke.
#[test]
fn only_plain_ascii_digits_with_one_point_are_money() {
    use NotationError::{Character, LeadingZero, NoDigits, NoFraction, NoWhole, Points};
    for (text, wrong) in [
        ("", NoDigits),
        (" ", Character(' ')),
        (".", NoDigits),
        ("1.", NoFraction),
        (".5", NoWhole),
        ("1..5", Points),
        ("1.2.3", Points),
        ("..", Points),
        ("1e3", Character('e')),
        ("1E3", Character('E')),
        ("1e-1", Character('e')),
        ("NaN", Character('N')),
        ("nan", Character('n')),
        ("inf", Character('i')),
        ("Infinity", Character('I')),
        ("+1.00", Character('+')),
        (" 1.00", Character(' ')),
        ("1.00 ", Character(' ')),
        ("1\u{a0}00", Character('\u{a0}')),
        ("1,000.00", Character(',')),
        ("1,5", Character(',')),
        ("1'000", Character('\'')),
        ("1_000", Character('_')),
        ("0x10", Character('x')),
        ("$1.00", Character('$')),
        ("USD 1.00", Character('U')),
        ("٣", Character('٣')),
        ("１.00", Character('１')),
        ("1.٣", Character('٣')),
        ("01.00", LeadingZero),
        ("00", LeadingZero),
        ("-01", LeadingZero),
        ("--1", Character('-')),
        ("-", NoDigits),
        ("−1.00", Character('−')),
        ("1.-5", Character('-')),
        ("1.+5", Character('+')),
        ("true", Character('t')),
        ("null", Character('n')),
        ("1.00\n", Character('\n')),
        ("1.00\0", Character('\0')),
    ] {
        assert_eq!(usd(text), Err(wrong.into()), "{text:?}");
        assert_eq!(Sum::parse(text), Err(wrong.into()), "{text:?}");
    }
}

/// R2. Without it a negative charge is a payment in the other direction that the payer never agreed to.
#[test]
fn an_amount_is_greater_than_zero() {
    for text in ["0", "0.00", "-0", "-0.00", "-1", "-1.00", "-12.5"] {
        assert_eq!(usd(text), Err(MoneyError::NotPositive), "{text}");
        assert_eq!(Sum::parse_positive(text), Err(MoneyError::NotPositive), "{text}");
    }
    for value in [Decimal::ZERO, Decimal::new(-1, 2), Decimal::MIN] {
        assert_eq!(
            Amount::new(value, currency("USD")),
            Err(MoneyError::NotPositive),
            "{value}"
        );
    }
}

/// Without it "refund only if nothing was refunded yet" can't be said, or a message asks for the impossible.
#[test]
fn a_sum_may_be_zero_but_has_no_sign() {
    assert_eq!(Sum::parse("0.00").unwrap().value(), Decimal::ZERO);
    for text in ["-0", "-0.00", "-1.00"] {
        assert_eq!(Sum::parse(text), Err(MoneyError::Negative), "{text}");
    }
    assert_eq!(
        Sum::parse("0").unwrap().in_currency(currency("USD")),
        Err(MoneyError::NotPositive)
    );
}

/// Without it one request with a body full of minus signs overflows the stack, and the whole process dies of it.
#[test]
fn a_long_row_of_signs_is_refused_like_a_short_one() {
    let signs = "-".repeat(64 * 1024);
    assert_eq!(usd(&signs), Err(NotationError::Character('-').into()));
    assert_eq!(Sum::parse(&signs), Err(NotationError::Character('-').into()));
}

/// A9. Without it a large sum in a small currency does not fit.
#[test]
fn billions_are_ordinary() {
    assert_eq!(amount("5000000000", "IDR"), Ok("5000000000.00".to_owned()));
}

/// A4. Without it an account is opened in something that nobody can pay, or that prints differently than it was sent.
#[test]
fn a_currency_is_three_capitals_that_money_can_be_held_in() {
    for code in [
        "usd",
        "Usd",
        "US",
        "USDD",
        "",
        "XXX",
        "XTS",
        "XAU",
        "XDR",
        " USD",
        "USD ",
        "ＵＳＤ",
        "US\0",
        "840",
        "ZZZ",
        "$",
    ] {
        assert_eq!(code.parse::<Currency>(), Err(MoneyError::Currency), "{code:?}");
    }
    for code in ["USD", "JPY", "KWD", "CLF"] {
        assert_eq!(currency(code).to_string(), code);
    }
}

/// All currencies that an account could ever be opened in, by their decimals.
const EVER_OPENED: [(u32, &str); 4] = [
    (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
    (
        2,
        "AED AFN ALL AMD XCG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY COP \
         COU CRC CUC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HRK HTG HUF IDR ILS INR IRR \
         JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK \
         NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SLL SOS SRD SSP STN SVC SYP SZL THB TJS TMT \
         TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD YER ZAR ZMW ZWG ZWL",
    ),
    (3, "BHD IQD JOD KWD LYD OMR TND"),
    (4, "CLF UYW"),
];

/// Without it an update of the list of currencies, or a rule for new accounts in the wrong place, makes accounts unreadable that
/// were opened before: a currency is withdrawn now and then, and money is still in it.
#[test]
fn a_currency_that_ever_opened_an_account_stays_readable() {
    for (decimals, codes) in EVER_OPENED {
        for code in codes.split(' ') {
            assert_eq!(code.parse().map(Currency::decimals), Ok(decimals), "{code}");
        }
    }
}

/// Without it somebody is paid in kuna, which no bank takes any more, or in an index; or Venezuela has no account, because a
/// library thinks that `VES` has been replaced.
#[test]
fn only_a_currency_in_circulation_opens_an_account() {
    for (code, successor) in [
        ("HRK", "EUR"),
        ("BGN", "EUR"),
        ("SLL", "SLE"),
        ("ZWL", "ZWG"),
        ("CUC", "CUP"),
    ] {
        assert_eq!(
            Currency::for_new_account(code),
            Err(MoneyError::Withdrawn(currency(code), successor))
        );
    }
    for code in ["BOV", "CHE", "CHW", "CLF", "COU", "MXV", "USN", "UYI", "UYW", "XAD"] {
        assert_eq!(
            Currency::for_new_account(code),
            Err(MoneyError::UnitOfAccount(currency(code)))
        );
    }
    for code in ["XXX", "XAU", "usd", "DEM", ""] {
        assert_eq!(Currency::for_new_account(code), Err(MoneyError::Currency), "{code}");
    }
    for code in [
        "USD", "EUR", "SLE", "ZWG", "CUP", "CLP", "UYU", "VED", "VES", "XCG", "XOF",
    ] {
        assert_eq!(Currency::for_new_account(code), Ok(currency(code)));
    }
}

/// Without it the message that refuses an amount shows one that is refused as well.
#[test]
fn the_example_in_a_message_is_itself_accepted() {
    for code in ["USD", "JPY", "KWD", "CLF"] {
        let example = currency(code).example();
        assert_eq!(amount(example, code), Ok(example.to_owned()));
    }
}

fn currencies() -> impl Strategy<Value = Currency> {
    prop::sample::select(vec!["USD", "JPY", "KWD", "CLF"]).prop_map(currency)
}

/// Anything at all, and texts that are nearly money.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[-+0-9.,eE _٣]{0,24}",
        "-?[0-9]{1,17}(\\.[0-9]{0,6})?",
        "(0|[1-9][0-9]{0,14})(\\.[0-9]{1,4})?",
    ]
}

proptest! {
    /// Without it there is a text whose money is not what a person reads in it.
    #[test]
    fn any_text_is_refused_or_worth_exactly_what_it_says(text in texts(), currency in currencies()) {
        if let Ok(amount) = Amount::parse(&text, currency) {
            let printed = amount.value().to_string();
            prop_assert_eq!(ten_thousandths(&printed), ten_thousandths(&text));
            prop_assert_eq!(amount.value().scale(), currency.decimals());
            prop_assert_eq!(Amount::parse(&printed, currency), Ok(amount));
            prop_assert!(amount.value() > Decimal::ZERO && amount.value() <= MAX);
        }
        if let Ok(sum) = Sum::parse(&text) {
            prop_assert_eq!(ten_thousandths(&sum.value().to_string()), ten_thousandths(&text));
            prop_assert!(!sum.value().is_sign_negative() && sum.value() <= MAX);
        }
    }

    /// Without it the pattern in the OpenAPI document lets clients send what the service refuses.
    #[test]
    fn whatever_the_published_pattern_allows_is_read(text in "(0|[1-9][0-9]{0,14})(\\.[0-9]{1,4})?") {
        prop_assert!(Sum::parse(&text).is_ok());
    }

    /// Without it a valid amount is refused for its size or its digits.
    #[test]
    fn every_amount_of_a_currency_can_be_written(minor in 1..=999_999_999_999_999_i64, currency in currencies()) {
        let value = Decimal::new(minor, currency.decimals());
        let amount = Amount::parse(&value.to_string(), currency);
        prop_assert_eq!(amount, Amount::new(value, currency));
        prop_assert_eq!(amount.map(Amount::value), Ok(value));
    }

    /// Without it a balance from the database is shown as another one.
    #[test]
    fn to_write_a_value_with_all_decimals_never_changes_it(
        digits in -9_999_999_999_999_999_999_i128..=9_999_999_999_999_999_999,
        scale in 0..=4_u32,
        currency in currencies(),
    ) {
        let value = Decimal::from_i128_with_scale(digits, scale);
        let exact = currency.exact(value);
        prop_assert_eq!(exact, value);
        prop_assert!(exact.scale() >= currency.decimals());
    }
}
