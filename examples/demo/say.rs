//! What the demo prints, and the count of what it expected in vain.

use std::fmt::Debug;
use std::io::IsTerminal;

use crate::Outcome;

const BOLD: &str = "1";
const FAINT: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";

/// Tells the story, and keeps the score.
pub struct Say {
    colours: bool,
    held: u32,
    failed: u32,
}

impl Say {
    /// Colours are for people: a file or a CI log gets none.
    pub fn new() -> Self {
        Self {
            colours: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            held: 0,
            failed: 0,
        }
    }

    /// The headline of all.
    pub fn title(&self, text: &str) {
        println!("\n{}", self.painted(BOLD, text));
    }

    /// The headline of a scene.
    pub fn scene(&self, letter: &str, title: &str) {
        println!("\n{}", self.painted(BOLD, &format!("({letter}) {title}")));
    }

    /// What is done.
    pub fn does(&self, text: &str) {
        println!("  {} {text}", self.painted(FAINT, "·"));
    }

    /// What is done, in SQL.
    pub fn statement(&self, sql: &str) {
        self.does(&sql.replace('\n', "\n    "));
    }

    /// What came back.
    pub fn back(&self, text: &str) {
        println!("  {} {}", self.painted(FAINT, "→"), self.painted(FAINT, text));
    }

    /// What had to be: a check mark if it is.
    pub fn check<T: PartialEq + Debug>(&mut self, what: &str, found: &T, expected: &T) {
        if found == expected {
            self.held += 1;
            println!("  {} {what}", self.painted(GREEN, "✓"));
        } else {
            self.failed += 1;
            let mark = self.painted(RED, "✗");
            println!("  {mark} {what}\n      expected {expected:?}\n      found    {found:?}");
        }
    }

    /// The last lines; did it come to its end, and everything hold?
    pub fn sum_up(&self, played: &Outcome) -> bool {
        let cross = self.painted(RED, "✗");
        let all = self.held + self.failed;
        if let Err(surprise) = played {
            println!("\n{cross} The demo could not go on: {surprise}");
        } else if self.failed > 0 {
            println!("\n{cross} {} of {all} expectations failed.", self.failed);
        } else {
            let mark = self.painted(GREEN, "✓");
            println!("\n{mark} All {all} expectations held: with a key, nobody was charged twice.");
        }
        played.is_ok() && self.failed == 0
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.colours {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
