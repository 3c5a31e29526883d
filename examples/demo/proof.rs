//! (g) The books are proved, by SQL that can be read and by `payonce audit`.

use crate::Outcome;
use crate::books::{PAYMENTS_PER_KEY, SUM_OF_BALANCES, Total, WRONG_BALANCES};
use crate::say::Say;
use crate::stage::Stage;

/// By all scenes together: (a) 2, (b) 1, (d) 8, (e) 1 and 1, (f) 1.
const PAYMENTS: i64 = 14;

pub async fn of_the_books(stage: &mut Stage, say: &mut Say) -> Outcome {
    say.scene("g", "The books");

    say.statement(SUM_OF_BALANCES);
    let totals = stage.books.sum_of_balances()?;
    let shown: Vec<_> = totals
        .iter()
        .map(|row| format!("{} {}", row.currency, row.total))
        .collect();
    say.back(&shown.join(", "));
    let nothing = Total {
        currency: "USD".to_owned(),
        total: "0.00".to_owned(),
    };
    say.check("debits = credits", &totals, &vec![nothing]);

    say.statement(WRONG_BALANCES);
    let row = stage.books.wrong_balances()?;
    say.back(&format!("{} accounts, {} wrong", row.accounts, row.wrong));
    say.check("balances = sums of entries", &(row.accounts > 0, row.wrong), &(true, 0));

    say.statement(PAYMENTS_PER_KEY);
    let row = stage.books.payments_per_key()?;
    say.back(&format!(
        "{} keys made {} payments, and there are {}",
        row.keys, row.made, row.payments
    ));
    let found = (row.keys, row.made, row.payments);
    say.check(
        "one payment per key, and none without",
        &found,
        &(PAYMENTS, PAYMENTS, PAYMENTS),
    );

    say.does("payonce audit");
    let (good, printed) = stage.payonce.run(&["audit"], &stage.database_url).await?;
    say.back(&printed);
    say.check("the audit finds nothing, and exits with 0", &good, &true);
    Ok(())
}
