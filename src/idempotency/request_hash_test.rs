//! Proves that two requests hash alike if and only if they mean the same, and that a release can't change a hash unnoticed.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::domain::{Name, PaymentId};
use crate::money::Currency;

const ACCOUNT: AccountId = AccountId(Uuid::from_u128(0x0a));
const OTHER: AccountId = AccountId(Uuid::from_u128(0x0b));
const PAYMENT: PaymentId = PaymentId(Uuid::from_u128(0x0c));

fn currency(code: &str) -> Currency {
    code.parse().unwrap()
}

fn amount(text: &str, code: &str) -> Amount {
    Amount::parse(text, currency(code)).unwrap()
}

fn sum(text: &str) -> Option<Sum> {
    Sum::parse(text).map(Some).unwrap()
}

fn reference(text: &str) -> Option<Reference> {
    Reference::new(text.to_owned()).map(Some).unwrap()
}

fn description(text: &str) -> Option<Description> {
    Description::new(text.to_owned()).map(Some).unwrap()
}

fn metadata(members: &[(&str, &str)]) -> Option<Metadata> {
    let members = members
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Metadata::new(members.collect()).map(Some).unwrap()
}

/// `thing`, but for one change.
fn but<T>(mut thing: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut thing);
    thing
}

fn open() -> OpenAccount {
    OpenAccount {
        currency: currency("USD"),
        name: Name::new("Alice".to_owned()).unwrap(),
        reference: None,
        metadata: None,
    }
}

fn movement() -> Movement {
    Movement {
        account: ACCOUNT,
        amount: amount("100", "USD"),
        description: None,
    }
}

fn pay() -> Pay {
    Pay::new(ACCOUNT, OTHER, amount("12.50", "USD")).unwrap()
}

fn full_pay() -> Pay {
    but(pay(), |it| {
        it.description = description("two coffees");
        it.reference = reference("order 4711");
        it.metadata = metadata(&[("table", "7"), ("waiter", "Bob")]);
    })
}

fn refund() -> RefundPayment {
    RefundPayment {
        payment: PAYMENT,
        amount: None,
        reason: None,
        expected_refunded: None,
    }
}

fn full_refund() -> RefundPayment {
    but(refund(), |it| {
        it.amount = sum("5.00");
        it.reason = description("one was cold");
        it.expected_refunded = sum("0.00");
    })
}

fn hash(command: &Command) -> String {
    RequestHash::of(command).to_string()
}

/// One of each command, without and with all that is optional.
fn one_of_each() -> Vec<(Command, &'static str)> {
    let full_open = but(open(), |it| {
        it.reference = reference("customer 17");
        it.metadata = metadata(&[("tier", "gold")]);
    });
    let full_movement = but(movement(), |it| it.description = description("cash"));
    vec![
        (
            Command::OpenAccount(open()),
            "59904cc4776a176643fcbbff642a24111febffce32142eaefeed3277e2256738",
        ),
        (
            Command::OpenAccount(full_open),
            "8c871cab6bbea793683e6474ab296b2f8ac3471796d490fe578901379e84282b",
        ),
        (
            Command::Deposit(movement()),
            "ba313b410b156e5219e1092d6a62e0d0eec57f28c8a8e990592e49b122ee858e",
        ),
        (
            Command::Deposit(full_movement.clone()),
            "77e857e991443db10e63e1425e182ed4c9c5501e7e264467257de8a357197404",
        ),
        (
            Command::Withdraw(movement()),
            "905ab50ca00c9251cbd42d1e5560f91e2fa535bc35624c09ecc2f7cc07f52c17",
        ),
        (
            Command::Withdraw(full_movement),
            "0d9733f08127f5dab64f072da428a32058155f50aafc10081a29585f59d5e153",
        ),
        (
            Command::Freeze(ACCOUNT),
            "0c35265cf0e3163dad9514080850fa3d1583105d05a2c9c7e28dac9070c40e81",
        ),
        (
            Command::Unfreeze(ACCOUNT),
            "e677bc3d92a20c09384d0815c970509512a968bc8250f480f18d0943653169a3",
        ),
        (
            Command::Close(ACCOUNT),
            "680db23a63cfedec87c61b16bf39856097c2bb851e610cb18cb44ff9637f4650",
        ),
        (
            Command::Pay(pay()),
            "06fa760a16cbd84a0b12641172901e60cacccd52b81b467260226ccaf469afbb",
        ),
        (
            Command::Pay(full_pay()),
            "8a18044ab93629a59833efee8a7f9597505604718dd6be2767391fc378a3c2eb",
        ),
        (
            Command::Refund(refund()),
            "25fb0414a233db24dbaefb960255eac30f15eefda70942c4269610ff8e088f40",
        ),
        (
            Command::Refund(full_refund()),
            "35e994424685ae73b8c98542ebe814f4d99c44b3199e37f6192db9cb89a71974",
        ),
    ]
}

/// The golden test: these hashes stand in databases, beside the answers that retries are waiting for. If one of them changes,
/// each retry that spans the deploy is told `idempotency_key_reused`, and a caller who then takes a new key pays twice.
/// So never correct a pin: a new optional field must leave them all as they are, and where the encoding
/// really has to change, the old one must still be tried for as long as `IDEMPOTENCY_TTL` allows.
#[test]
fn a_release_does_not_change_the_hash_of_a_request_that_could_be_sent_before() {
    for (command, pinned) in one_of_each() {
        assert_eq!(hash(&command), pinned, "{command:?}");
    }
}

/// Without it an absent optional leaves a trace in the hash, and the day a field is added all requests without it change.
#[test]
fn just_what_was_sent_is_hashed() {
    let mut bytes = b"version=18:payonce-request-v1method=4:POSTpath=9:/paymentspayer_account_id=16:".to_vec();
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a]);
    bytes.extend(b"payee_account_id=16:");
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0b]);
    bytes.extend(b"amount=4:12.5currency=3:USD");
    assert_eq!(hash(&Command::Pay(pay())), hex::encode(Sha256::digest(bytes)));

    let bytes = "version=18:payonce-request-v1method=4:POST\
                 path=54:/payments/00000000-0000-0000-0000-00000000000c/refunds";
    assert_eq!(hash(&Command::Refund(refund())), hex::encode(Sha256::digest(bytes)));
}

/// Without it a retry through another serializer (`"12.5"` for `"12.50"`, members in another order) is another request.
#[test]
fn spelling_does_not_matter() {
    let short = Command::Pay(but(pay(), |it| it.amount = amount("12.5", "USD")));
    assert_eq!(hash(&short), hash(&Command::Pay(pay())));

    let short = but(full_refund(), |it| {
        it.amount = sum("5");
        it.expected_refunded = sum("0");
    });
    assert_eq!(hash(&Command::Refund(short)), hash(&Command::Refund(full_refund())));

    let mut backwards = BTreeMap::new();
    for (key, value) in [("waiter", "Bob"), ("table", "7")] {
        backwards.insert(key.to_owned(), value.to_owned());
    }
    let backwards = but(full_pay(), |it| it.metadata = Some(Metadata::new(backwards).unwrap()));
    assert_eq!(hash(&Command::Pay(backwards)), hash(&Command::Pay(full_pay())));
}

fn all_differ(commands: &[Command]) {
    let hashes: HashSet<_> = commands.iter().map(hash).collect();
    assert_eq!(hashes.len(), commands.len(), "two of these hash alike: {commands:#?}");
}

/// I4. Without it a retry with another payee, amount or text is answered with the first one's success.
#[test]
fn each_field_of_a_payment_changes_the_hash() {
    let third = AccountId(Uuid::from_u128(0x0d));
    let parties = |payer, payee| {
        but(Pay::new(payer, payee, full_pay().amount).unwrap(), |it| {
            it.description = full_pay().description;
            it.reference = full_pay().reference;
            it.metadata = full_pay().metadata;
        })
    };
    let meta = |members: &[(&str, &str)]| but(full_pay(), |it| it.metadata = metadata(members));
    let pays = [
        full_pay(),
        parties(third, OTHER),
        parties(ACCOUNT, third),
        parties(OTHER, ACCOUNT),
        but(full_pay(), |it| it.amount = amount("12.51", "USD")),
        but(full_pay(), |it| it.amount = amount("125", "USD")),
        but(full_pay(), |it| it.amount = amount("12.50", "EUR")),
        but(full_pay(), |it| it.description = None),
        but(full_pay(), |it| it.description = description("")),
        but(full_pay(), |it| it.description = description("two coffees ")),
        but(full_pay(), |it| it.reference = None),
        but(full_pay(), |it| it.reference = reference("Order 4711")),
        but(full_pay(), |it| it.metadata = None),
        meta(&[]),
        meta(&[("table", "7")]),
        meta(&[("table", "7"), ("waiter", "bob")]),
        meta(&[("table", "7"), ("waitress", "Bob")]),
        meta(&[("table", "Bob"), ("waiter", "7")]),
        meta(&[("table", "7"), ("tip", ""), ("waiter", "Bob")]),
    ];
    all_differ(&pays.map(Command::Pay));
}

/// I4, for the other commands.
#[test]
fn each_field_of_the_other_commands_changes_the_hash() {
    all_differ(&[
        Command::OpenAccount(open()),
        Command::OpenAccount(but(open(), |it| it.currency = currency("EUR"))),
        Command::OpenAccount(but(open(), |it| it.name = Name::new("alice".to_owned()).unwrap())),
        Command::OpenAccount(but(open(), |it| it.reference = reference("1"))),
        Command::OpenAccount(but(open(), |it| it.metadata = metadata(&[]))),
        Command::OpenAccount(but(open(), |it| it.metadata = metadata(&[("a", "b")]))),
    ]);
    let movements = [
        movement(),
        but(movement(), |it| it.account = OTHER),
        but(movement(), |it| it.amount = amount("100.01", "USD")),
        but(movement(), |it| it.amount = amount("100", "EUR")),
        but(movement(), |it| it.description = description("cash")),
    ];
    all_differ(&movements.clone().map(Command::Deposit));
    all_differ(&movements.map(Command::Withdraw));
    let refunds = [
        refund(),
        full_refund(),
        but(refund(), |it| it.payment = PaymentId(ACCOUNT.0)),
        but(refund(), |it| it.amount = sum("5")),
        but(refund(), |it| it.amount = sum("5.01")),
        but(refund(), |it| it.expected_refunded = sum("5")),
        but(refund(), |it| it.expected_refunded = sum("0")),
        but(refund(), |it| it.reason = description("")),
        but(refund(), |it| it.reason = description("5")),
    ];
    all_differ(&refunds.map(Command::Refund));
}

/// I2. Without it a withdrawal replays a deposit, or a freeze an unfreeze: their bodies are the same.
#[test]
fn the_same_body_on_another_route_is_another_request() {
    let routes: HashSet<_> = one_of_each().iter().map(|(command, _)| path(command)).collect();
    assert_eq!(routes.len(), 8, "eight commands, eight routes");
    let commands: Vec<_> = one_of_each().into_iter().map(|(command, _)| command).collect();
    all_differ(&commands);
    all_differ(&[Command::Freeze(ACCOUNT), Command::Freeze(OTHER)]);
}

/// Without it somebody writes a text that looks like the next field, and makes two requests with one hash.
#[test]
fn a_text_can_not_pose_as_a_field() {
    let pays = [
        but(pay(), |it| {
            it.description = description("a");
            it.reference = reference("b");
        }),
        but(pay(), |it| it.description = description("areference=1:b")),
        but(pay(), |it| it.description = description("ab")),
        but(pay(), |it| it.reference = reference("ab")),
        but(pay(), |it| it.metadata = metadata(&[("a", "bkey=1:cvalue=1:d")])),
        but(pay(), |it| it.metadata = metadata(&[("a", "b"), ("c", "d")])),
        but(pay(), |it| it.metadata = metadata(&[("ab", "")])),
        but(pay(), |it| it.metadata = metadata(&[("a", "b")])),
    ];
    all_differ(&pays.map(Command::Pay));
}

/// Few values, so that two random payments are often the same, or nearly.
fn pays() -> impl Strategy<Value = Pay> {
    let texts = || prop::option::of(prop::sample::select(vec!["a", "b", "ab", "a=1:b"]));
    let members = prop::collection::btree_map("[ab]{1,2}", "[ab]{0,1}", 0..3);
    let flip = any::<bool>();
    let amounts = prop::sample::select(vec![
        ("12.5", "USD"),
        ("12.50", "USD"),
        ("1.25", "USD"),
        ("12.5", "EUR"),
    ]);
    (flip, amounts, texts(), texts(), prop::option::of(members)).prop_map(
        |(flip, (text, code), free, number, members)| {
            let (payer, payee) = if flip { (ACCOUNT, OTHER) } else { (OTHER, ACCOUNT) };
            let mut pay = Pay::new(payer, payee, amount(text, code)).unwrap();
            pay.description = free.and_then(description);
            pay.reference = number.and_then(reference);
            pay.metadata = members.map(|members| Metadata::new(members).unwrap());
            pay
        },
    )
}

proptest! {
    /// Without it there are two payments of different meaning that replay each other, or a retry that is not recognized.
    #[test]
    fn equal_meaning_is_equal_hash(one in pays(), other in pays(), change in 0..8_u8) {
        // Mostly one field apart: two random payments are seldom the same.
        let mut near = one.clone();
        match change {
            0 => near.description = other.description.clone(),
            1 => near.reference = other.reference.clone(),
            2 => near.metadata = other.metadata.clone(),
            3 => near.amount = other.amount,
            _ => near = other,
        }
        let (near, one) = (Command::Pay(near), Command::Pay(one));
        prop_assert_eq!(hash(&one) == hash(&near), one == near);
    }
}
