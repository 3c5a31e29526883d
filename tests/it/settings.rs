//! The table of settings in the README is what the program reads: names, defaults and ranges.

use std::collections::BTreeMap;

use crate::cli::payonce;

/// Where nobody is: with its settings in order, the program ends there.
const NOWHERE: [(&str, &str); 2] = [
    ("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none"),
    ("LISTEN", "127.0.0.1:0"),
];

/// A row of the README's table.
struct Row {
    default: Option<String>,
    /// `0`, if it stands before the range.
    zero: bool,
    /// As in the README: `10ms–10s`.
    range: Option<(String, Option<String>)>,
}

/// A flag of `payonce serve --help`.
struct Flag {
    default: Option<String>,
    says: String,
}

/// What stands in backticks.
fn code(cell: &str) -> Option<String> {
    cell.split('`').nth(1).map(str::to_owned)
}

/// The table, by the names of the settings. Several settings may share a row, with ` · ` between them.
fn table() -> BTreeMap<String, Row> {
    let readme = std::fs::read_to_string("README.md").expect("README.md");
    let (_, table) = readme.split_once("| setting | default |").expect("a table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut found = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for (name, default) in cells[1].split(" · ").zip(cells[2].split(" · ")) {
            let (zero, range) = match cells[3].strip_prefix("0, ") {
                Some(range) => (true, range),
                None => (false, cells[3]),
            };
            let range = match (range.split_once('–'), range.strip_prefix("≥ ")) {
                (Some((least, most)), _) => Some((least.to_owned(), Some(most.to_owned()))),
                (_, Some(least)) => Some((least.to_owned(), None)),
                _ if range.is_empty() => None,
                _ => panic!("{name}: neither `least–most` nor `≥ least`: {range}"),
            };
            let name = code(name).unwrap_or_else(|| panic!("no name: {row}"));
            let default = code(default);
            assert!(found.insert(name, Row { default, zero, range }).is_none(), "{row}");
        }
    }
    found
}

/// What `payonce serve --help` lists, by the names in the environment.
fn flags() -> BTreeMap<String, Flag> {
    let (_, help, _) = payonce(&["serve", "--help"], &[]);
    let (_, options) = help.split_once("\nOptions:\n").expect("options");
    let in_brackets = |text: &str, what: &str| {
        let (_, rest) = text.split_once(&format!("[{what}: "))?;
        rest.split(']').next().map(str::to_owned)
    };
    let flag = |says: &str| {
        let name = in_brackets(says, "env")?.trim_end_matches('=').to_owned();
        let takes_no_value = !says.lines().next().is_some_and(|line| line.contains('<'));
        let default = in_brackets(says, "default").or(takes_no_value.then(|| "false".to_owned()));
        Some((
            name,
            Flag {
                default,
                says: says.to_owned(),
            },
        ))
    };
    options.split("\n      --").filter_map(flag).collect()
}

/// A value and what is beyond it: `below` or above by the smallest step that can be written.
fn beyond(value: &str, below: bool) -> String {
    let digits = value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().unwrap_or_else(|_| panic!("{value} is no number"));
    let (factor, unit) = match &value[digits.len()..] {
        "" => (1, ""),
        "ms" => (1, "ms"),
        "s" => (1_000, "ms"),
        "m" => (60_000, "ms"),
        "h" => (3_600_000, "ms"),
        "d" => (86_400_000, "ms"),
        other => panic!("{value}: what is {other}?"),
    };
    let number = number * factor;
    format!("{}{unit}", if below { number - 1 } else { number + 1 })
}

/// Without this an operator sets what nobody reads, or does not know of what can be set.
#[test]
fn the_readme_lists_just_the_settings_there_are_with_their_defaults() {
    let (table, flags) = (table(), flags());
    let listed: Vec<&str> = table.keys().map(String::as_str).collect();
    let mut there_are: Vec<&str> = flags.keys().map(String::as_str).collect();
    // It has no flag: the library of the log has it from the environment.
    there_are.push("RUST_LOG");
    there_are.sort_unstable();
    assert_eq!(listed, there_are);
    for (name, flag) in &flags {
        assert_eq!(table[name].default, flag.default, "{name}");
    }
}

/// Without this an operator who keeps to the README gets no start, and `--help` tells another story.
#[test]
fn the_readme_says_for_each_setting_which_values_are_allowed() {
    let flags = flags();
    let mut checked = 0;
    for (name, row) in table() {
        let Some((least, most)) = row.range else {
            assert!(!row.zero, "{name}");
            continue;
        };
        let flag = name.to_lowercase().replace('_', "-");
        let allowed = |value: &str| {
            let (status, _, said) = payonce(&["serve", &format!("--{flag}={value}")], &NOWHERE);
            assert!([1, 2].contains(&status), "--{flag}={value}: {said}");
            status == 1
        };
        assert!(allowed(&least), "{name}: {least}");
        assert!(!allowed(&beyond(&least, true)), "{name}: less than {least}");
        if least != "1" {
            assert_eq!(allowed("0"), row.zero, "{name}: 0");
        }
        if let Some(most) = most {
            assert!(allowed(&most), "{name}: {most}");
            assert!(!allowed(&beyond(&most, false)), "{name}: more than {most}");
            let says = &flags[&name].says;
            assert!(
                says.contains(&format!("{least} to {most}")),
                "{name}: {least} to {most}: {says}"
            );
        }
        checked += 1;
    }
    assert!(checked >= 18, "{checked}");
}
