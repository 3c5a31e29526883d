//! Proves for every kind of body that its meaning and its hash are one: however a client spells it, and whichever two are compared.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use serde_json::Value;

use super::*;
use crate::idempotency::RequestHash;

/// The bodies there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Open,
    Deposit,
    Withdrawal,
    Payment,
    Refund,
}

const KINDS: [Kind; 5] = [Kind::Open, Kind::Deposit, Kind::Withdrawal, Kind::Payment, Kind::Refund];

fn command(kind: Kind, body: &[u8]) -> Result<Command, Problem> {
    let account = AccountId(Uuid::from_u128(1));
    let movement = || read::<MovementBody>(body)?.into_movement(account);
    match kind {
        Kind::Open => read::<OpenAccountBody>(body)?.into_command(),
        Kind::Deposit => movement().map(Command::Deposit),
        Kind::Withdrawal => movement().map(Command::Withdraw),
        Kind::Payment => read::<PayBody>(body)?.into_command(),
        Kind::Refund => read::<RefundBody>(body)?.into_command(PaymentId(Uuid::from_u128(2))),
    }
}

/// A member of a body, before it is spelled.
#[derive(Debug, Clone)]
enum Member {
    Text(String),
    /// In all its spellings.
    Amount(&'static [&'static str]),
    Id(&'static str),
    Metadata(Vec<(String, String)>),
    Null,
}

const AMOUNTS: &[&[&str]] = &[
    &["12.5", "12.50"],
    &["1.25"],
    &["5", "5.0", "5.00"],
    &["50", "50.0", "50.00"],
];

type Members = Vec<(&'static str, Member)>;

/// Few values, so that two random bodies often mean the same.
fn members(kind: Kind) -> impl Strategy<Value = Members> {
    let text = || "[ab\"é=:1]{1,3}".prop_map(Member::Text);
    let id = |id| Just(Member::Id(id)).boxed();
    let amount = || select(AMOUNTS).prop_map(Member::Amount).boxed();
    let currency = || {
        select(vec!["USD", "EUR"])
            .prop_map(|code| Member::Text(code.to_owned()))
            .boxed()
    };
    let metadata = subsequence(vec![("a", "b"), ("b", "a"), ("ab", ""), ("é", "\"")], 0..=3).prop_map(|members| {
        let members = members
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        Member::Metadata(members.collect())
    });
    let optional = |member: BoxedStrategy<Member>| prop_oneof![2 => member, 1 => Just(Member::Null)].boxed();
    let text = || optional(text().boxed());
    let metadata = optional(metadata.boxed());
    let (alice, bob) = (
        "0199a5f0-aaaa-7000-8000-00000000000a",
        "0199a5f0-bbbb-7000-8000-00000000000b",
    );
    let members = match kind {
        Kind::Open => vec![
            ("currency", currency()),
            ("name", "[ab]{1,2}".prop_map(Member::Text).boxed()),
            ("reference", text()),
            ("metadata", metadata),
        ],
        Kind::Deposit | Kind::Withdrawal => {
            vec![("amount", amount()), ("currency", currency()), ("description", text())]
        }
        Kind::Payment => vec![
            ("payer_account_id", id(alice)),
            ("payee_account_id", id(bob)),
            ("amount", amount()),
            ("currency", currency()),
            ("description", text()),
            ("reference", text()),
            ("metadata", metadata),
        ],
        Kind::Refund => vec![
            ("amount", optional(amount())),
            ("reason", text()),
            ("expected_refunded_amount", optional(amount())),
        ],
    };
    let named = members
        .into_iter()
        .map(|(name, member)| member.prop_map(move |member| (name, member)));
    named.collect::<Vec<_>>()
}

/// How a client happens to write: each of its choices is the next of these numbers.
#[derive(Debug, Clone)]
struct Hand(std::iter::Cycle<std::vec::IntoIter<u8>>);

fn hands() -> impl Strategy<Value = Hand> {
    prop::collection::vec(any::<u8>(), 1..40).prop_map(|choices| Hand(choices.into_iter().cycle()))
}

impl Hand {
    fn choose<'a>(&mut self, options: &[&'a str]) -> &'a str {
        let choice = usize::from(self.0.next().unwrap());
        options[choice % options.len()]
    }

    fn space(&mut self) -> &'static str {
        self.choose(&["", "", " ", "\n\t"])
    }

    fn text(&mut self, text: &str) -> String {
        let spelled = text.chars().map(|character| match self.choose(&["plain", "escaped"]) {
            "plain" if character != '"' => character.to_string(),
            _ => format!("\\u{:04X}", u32::from(character)),
        });
        format!("\"{}\"", spelled.collect::<String>())
    }

    fn member(&mut self, member: &Member) -> String {
        match member {
            Member::Text(text) => self.text(text),
            Member::Amount(spellings) => {
                let amount = self.choose(spellings);
                self.text(amount)
            }
            Member::Id(id) => {
                let id = if self.choose(&["lower", "upper"]) == "upper" {
                    id.to_uppercase()
                } else {
                    (*id).to_owned()
                };
                self.text(&id)
            }
            Member::Metadata(members) => {
                let members: Vec<_> = members
                    .iter()
                    .map(|(key, value)| (key.as_str(), self.text(value)))
                    .collect();
                self.object(members)
            }
            Member::Null => "null".to_owned(),
        }
    }

    fn object(&mut self, mut members: Vec<(&str, String)>) -> String {
        if self.choose(&["as it is", "backwards"]) == "backwards" {
            members.reverse();
        }
        let mut spelled = Vec::new();
        for (name, value) in members {
            let (name, before, after) = (self.text(name), self.space(), self.space());
            spelled.push(format!("{before}{name}{after}:{before}{value}{after}"));
        }
        format!("{}{{{}}}{}", self.space(), spelled.join(","), self.space())
    }

    fn body(&mut self, members: &Members) -> String {
        let mut spelled = Vec::new();
        for (name, member) in members {
            if matches!(member, Member::Null) && self.choose(&["null", "absent"]) == "absent" {
                continue;
            }
            spelled.push((*name, self.member(member)));
        }
        self.object(spelled)
    }
}

/// JSON of the members that bodies have, and of some that they have not, with values of every type.
fn almost_bodies() -> impl Strategy<Value = Vec<u8>> {
    let names = [
        "currency",
        "name",
        "reference",
        "metadata",
        "amount",
        "description",
        "payer_account_id",
        "payee_account_id",
        "reason",
        "expected_refunded_amount",
        "Amount",
        "",
    ];
    let values = prop_oneof![
        select(vec![
            "null",
            "true",
            "-0",
            "1e400",
            "1E-400",
            "99999999999999999999999999999999",
            "0.1",
            "[]",
            "{}",
            "[{\"a\":[]}]"
        ])
        .prop_map(str::to_owned),
        "-?[0-9]{1,40}(\\.[0-9]{1,40})?([eE]-?[0-9]{1,3})?",
        any::<String>().prop_map(|text| Value::from(text).to_string()),
        "[-0-9.eE+]{0,30}".prop_map(|text| Value::from(text).to_string()),
        prop::collection::btree_map(any::<String>(), any::<String>(), 0..3)
            .prop_map(|members| json!(members).to_string()),
    ];
    let member = (select(names.to_vec()), values).prop_map(|(name, value)| format!("\"{name}\":{value}"));
    prop_oneof![
        1 => any::<Vec<u8>>(),
        4 => prop::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(",")).into_bytes()),
    ]
}

fn kinds() -> impl Strategy<Value = Kind> {
    select(&KINDS[..])
}

proptest! {
    /// Without it a retry through another JSON library is taken for another request: the caller takes a new key, and pays twice.
    #[test]
    fn two_spellings_of_a_body_have_one_hash(
        (kind, members) in kinds().prop_flat_map(|kind| (Just(kind), members(kind))),
        mut one in hands(),
        mut other in hands(),
    ) {
        let (one, other) = (one.body(&members), other.body(&members));
        let hash = |body: &str| command(kind, body.as_bytes()).map(|command| RequestHash::of(&command));
        let first = hash(&one);
        prop_assert!(first.is_ok(), "{} is refused: {:?}", one, first);
        prop_assert_eq!(first.ok(), hash(&other).ok(), "{} and {}", one, other);
    }

    /// Without it there are two requests of different meaning that replay each other, or a retry that is not recognized.
    #[test]
    fn equal_meaning_is_equal_hash(
        (kind, one, other) in kinds().prop_flat_map(|kind| (Just(kind), members(kind), members(kind))),
        changed in any::<prop::sample::Index>(),
        mut hand in hands(),
    ) {
        // One member apart: two random bodies are seldom the same.
        let changed = changed.index(one.len());
        let mut near = one.clone();
        near[changed] = other[changed].clone();
        let one = command(kind, hand.body(&one).as_bytes()).unwrap();
        let near = command(kind, hand.body(&near).as_bytes()).unwrap();
        prop_assert_eq!(RequestHash::of(&one) == RequestHash::of(&near), one == near, "{:?} and {:?}", one, near);
    }

    /// Without it some body takes a worker down, or is a 500.
    #[test]
    fn any_bytes_are_a_command_or_a_refusal_of_the_caller(kind in kinds(), bytes in almost_bodies()) {
        if let Err(problem) = command(kind, &bytes) {
            prop_assert!(matches!(problem.status(), 400 | 422), "{}", problem.status());
        }
    }
}
