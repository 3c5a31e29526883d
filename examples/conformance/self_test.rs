//! Can the cases fail? A small service that does most things right is run with one flaw after the other, and each flaw must
//! make just those cases fail that are about it.

use std::collections::BTreeSet;

use crate::all_cases;
use crate::caller::{Caller, Service};
use crate::card::Miss;
use crate::naive::{self, API_KEYS, Flaw};

type Ids = BTreeSet<&'static str>;

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
    let (passes, lacking) = outcomes(Flaw::None).await?;
    println!("A small service without a flaw passes {}.", list(&passes));
    println!("It knows only a part of the contract, and fails {}.", list(&lacking));
    let mut never_failed = passes.clone();
    let mut good = true;
    for ((flaw, must_fail), run) in MUST_FAIL.into_iter().zip(runs) {
        let (_, failed) = run.await.map_err(|error| error.to_string())??;
        let fails: Ids = failed.intersection(&passes).copied().collect();
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
    }
    if !never_failed.is_empty() {
        println!("✗ No flaw fails {}", list(&never_failed));
    }
    Ok(good && never_failed.is_empty())
}

/// The cases that a service with this flaw passes, and those that it fails.
async fn outcomes(flaw: Flaw) -> Result<(Ids, Ids), String> {
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
    let (mut passed, mut failed) = (Ids::new(), Ids::new());
    for case in all_cases() {
        match case.run(&service).await.outcome {
            Ok(()) => passed.insert(case.id),
            Err(Miss::Wrong(_)) => failed.insert(case.id),
            Err(Miss::Skipped(_)) => false,
        };
    }
    Ok((passed, failed))
}

fn list(ids: &Ids) -> String {
    ids.iter().copied().collect::<Vec<_>>().join(", ")
}
