//! Can the cases fail? A small service that does most things right is run with one flaw after the other, and each flaw must
//! make just those cases fail that are about it.

use std::collections::{BTreeMap, BTreeSet};

use crate::all_cases;
use crate::caller::{Caller, Service};
use crate::card::{Checked, Miss};
use crate::naive::{self, API_KEYS, Flaw};

type Ids = BTreeSet<&'static str>;
type Outcomes = BTreeMap<&'static str, Checked>;

/// Which cases each flaw must fail, of those that the service passes without it.
const MUST_FAIL: [(Flaw, &str); 13] = [
    (Flaw::IgnoresTheKey, "I1 I2 I4 I7 I9 I14 I21 I29"),
    (Flaw::StoresOnlyTheFact, "I1 I2 I4 I7 I9 I14 I21 I29"),
    (Flaw::ComparesNothing, "I2 I4 I9"),
    (Flaw::ForgetsRefusals, "I14"),
    (Flaw::SharesKeys, "I24"),
    (Flaw::ChecksThenActs, "R1 I1 I7 I9 I21 C1 C6 C12 C14"),
    (Flaw::GuessesAmounts, "A1 A3 A6"),
    (Flaw::CountsInSmallNumbers, "A9"),
    (Flaw::KeepsInvalid, "R2"),
    (Flaw::SuspectsEquals, "R1 R2 R5 R10 R11 I2 I4 I7 I9 I14 I16 C1 C6 C14"),
    (Flaw::RefundsAnything, "R1 R5 R16"),
    (Flaw::PaysItself, "C15"),
    (Flaw::TrustsEverybody, "I26"),
];

/// Which more it may fail: was who hung up still being served when it asked again?
const MAY_FAIL: (Flaw, &str) = (Flaw::ChecksThenActs, "I29");

/// Did every flaw fail its cases, and no others?
pub async fn run() -> Result<bool, String> {
    let runs = MUST_FAIL.map(|(flaw, _)| tokio::spawn(outcomes(flaw)));
    let without = outcomes(Flaw::None).await?;
    let passes: Ids = ids(&without, Result::is_ok);
    let lacking: Ids = ids(&without, |outcome| matches!(outcome, Err(Miss::Wrong(_))));
    println!("A small service without a flaw passes {}.", list(&passes));
    println!("It knows only a part of the contract, and fails {}.", list(&lacking));
    let mut never_failed = passes.clone();
    let mut good = true;
    for ((flaw, must_fail), run) in MUST_FAIL.into_iter().zip(runs) {
        let outcomes = run.await.map_err(|error| error.to_string())??;
        let fails = ids(&outcomes, |outcome| matches!(outcome, Err(Miss::Wrong(_))));
        let fails: Ids = fails.intersection(&passes).copied().collect();
        let must_fail: Ids = must_fail.split(' ').collect();
        let mut may_fail = must_fail.clone();
        may_fail.extend((flaw == MAY_FAIL.0).then_some(MAY_FAIL.1));
        never_failed.retain(|id| !fails.contains(id));
        let as_it_must = must_fail.is_subset(&fails) && fails.is_subset(&may_fail);
        good &= as_it_must;
        println!("{} {flaw:?} fails {}", if as_it_must { "✓" } else { "✗" }, list(&fails));
        if !as_it_must {
            println!("  and must fail {}", list(&must_fail));
        }
        for id in fails.difference(&may_fail) {
            println!("  {id}: {:?}", outcomes.get(id));
        }
    }
    if !never_failed.is_empty() {
        println!("✗ No flaw fails {}", list(&never_failed));
    }
    Ok(good && never_failed.is_empty())
}

/// What comes of each case with a service that has this flaw.
async fn outcomes(flaw: Flaw) -> Result<Outcomes, String> {
    let address = naive::start(flaw).map_err(|error| error.to_string())?;
    let [alice, bob] = API_KEYS;
    let api = Caller::new(&format!("http://{address}"), alice)?;
    let service = Service {
        second_instance: None,
        rotated: None,
        other_tenant: Some(api.with_api_key(bob)),
        read_only: None,
        revoked: None,
        api,
    };
    let mut outcomes = Outcomes::new();
    for case in all_cases() {
        outcomes.insert(case.id, case.run(&service).await.outcome);
    }
    Ok(outcomes)
}

fn ids(outcomes: &Outcomes, so: impl Fn(&Checked) -> bool) -> Ids {
    let those = outcomes.iter().filter(|(_, outcome)| so(outcome));
    those.map(|(id, _)| *id).collect()
}

fn list(ids: &Ids) -> String {
    ids.iter().copied().collect::<Vec<_>>().join(", ")
}
