//! The rules of the house, kept by a machine: layering that is only drawn decays.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Most lines of a file, and of a function.
const FILE_MAX: usize = 500;
const FUNCTION_MAX: usize = 70;

/// Who may import whom, from the bottom up. A module may use what stands before it, and of its own line only itself.
const LAYERS: [&[&str]; 9] = [
    &["money"],
    &["domain"],
    &["idempotency"],
    &["api", "storage", "redis_hint"],
    &["engine"],
    &["http"],
    &["config"],
    &["commands"],
    &["main"],
];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// May a file of `from` use `to`?
fn may_use(from: &str, to: &str) -> bool {
    from == to || layer(to) < layer(from)
}

/// What a file breaks, each with its place.
fn violations(path: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let module = module_path(path);
    let is_test = path.ends_with("_test.rs");
    if !source.starts_with("//!") {
        found.push(format!("{path}: does not begin with //!"));
    }
    let lines = source.lines().count();
    if lines > FILE_MAX {
        found.push(format!("{path}: {lines} lines"));
    }
    let file = syn::parse_file(source).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut visitor = Visitor {
        path,
        module,
        found: &mut found,
        is_test,
        own: None,
    };
    visitor.visit_file(&file);
    // A path in a macro is seen once for each of its parts.
    found.dedup();
    found
}

/// `src/storage/rows.rs` is `["storage", "rows"]`, `src/storage/mod.rs` is `["storage"]`, `src/lib.rs` is `[]`.
fn module_path(path: &str) -> Vec<String> {
    let path = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib")) {
        parts.pop();
    }
    // A file of tests is a child of the module beside it.
    if let Some(last) = parts.last_mut()
        && let Some(tested) = last.strip_suffix("_test")
    {
        *last = tested.to_owned();
        parts.push("tests".to_owned());
    }
    parts
}

/// The names of the enums of `src/domain`. Who adds a variant to one of them has to be told by the compiler where it matters.
fn domain_enums() -> &'static BTreeSet<String> {
    static ENUMS: OnceLock<BTreeSet<String>> = OnceLock::new();
    ENUMS.get_or_init(|| {
        let items = files(Path::new("src/domain"))
            .into_iter()
            .flat_map(|path| syn::parse_file(&std::fs::read_to_string(path).unwrap()).unwrap().items);
        let name = |item| match item {
            syn::Item::Enum(item) => Some(item.ident.to_string()),
            _ => None,
        };
        items.filter_map(name).collect()
    })
}

/// The enums of the domain of which a pattern names a variant.
#[derive(Default)]
struct Named<'a> {
    /// What `Self` is.
    own: Option<&'a str>,
    found: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        for part in &path.segments {
            let name = part.ident.to_string();
            let name = if name == "Self" {
                self.own.unwrap_or_default()
            } else {
                &name
            };
            if domain_enums().contains(name) {
                self.found.insert(name.to_owned());
            }
        }
        visit::visit_path(self, path);
    }
}

/// `_` and `name` take whatever comes.
fn takes_all(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Wild(_) => true,
        // A name in capitals is a constant.
        syn::Pat::Ident(name) => name.subpat.is_none() && name.ident.to_string().starts_with(char::is_lowercase),
        syn::Pat::Paren(inner) => takes_all(&inner.pat),
        syn::Pat::Tuple(parts) => parts.elems.iter().all(takes_all),
        syn::Pat::Or(cases) => cases.cases.iter().any(takes_all),
        _ => false,
    }
}

struct Visitor<'a> {
    path: &'a str,
    /// Where the code stands, modules inside of files included.
    module: Vec<String>,
    found: &'a mut Vec<String>,
    is_test: bool,
    /// The type whose `impl` this is.
    own: Option<String>,
}

impl Visitor<'_> {
    fn check_match(&mut self, arms: &[syn::Arm]) {
        let mut named = Named {
            own: self.own.as_deref(),
            ..Named::default()
        };
        for arm in arms {
            named.visit_pat(&arm.pat);
        }
        let (Some(name), Some(rest)) = (
            named.found.first().cloned(),
            arms.iter().find(|arm| takes_all(&arm.pat)),
        ) else {
            return;
        };
        if !self.is_test {
            self.report(
                rest.pat.span(),
                &format!("a match over {name} takes what it does not name"),
            );
        }
    }

    fn report(&mut self, span: Span, what: &str) {
        self.found.push(format!("{}:{}: {what}", self.path, span.start().line));
    }

    /// A path of identifiers, if it leads into this crate: the top module it leads to.
    fn check_path(&mut self, span: Span, path: &[String]) {
        let mut at = self.module.clone();
        let mut rest = path;
        match path.first().map(String::as_str) {
            // In main.rs the library is a crate like others, by its name.
            Some("crate" | "payonce") => {
                at.clear();
                rest = &path[1..];
            }
            Some("self") => rest = &path[1..],
            Some("super") => {}
            _ => return,
        }
        while rest.first().is_some_and(|part| part == "super") {
            at.pop();
            rest = &rest[1..];
        }
        at.extend(rest.iter().cloned());
        let (Some(from), Some(to)) = (self.module.first().cloned(), at.first()) else {
            return;
        };
        // A name of lib.rs itself, or something that is no module of ours.
        if layer(to).is_some() && !may_use(&from, to) {
            self.report(span, &format!("{from} uses {to}: imports only go down"));
        }
    }

    fn check_use(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.check_use(&with(&path.ident), &path.tree),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.check_use(prefix, tree)),
            syn::UseTree::Name(name) => self.check_path(name.ident.span(), &with(&name.ident)),
            syn::UseTree::Rename(rename) => self.check_path(rename.ident.span(), &with(&rename.ident)),
            syn::UseTree::Glob(glob) => self.check_path(glob.star_token.span(), prefix),
        }
    }

    fn check_length(&mut self, name: &syn::Ident, block: &syn::Block) {
        let lines = block.span().end().line - block.span().start().line + 1;
        if lines > FUNCTION_MAX {
            self.report(name.span(), &format!("{name} has {lines} lines"));
        }
    }

    fn check_text(&mut self, span: Span, text: &str) {
        const VERBS: [(&str, &str); 4] = [
            ("SELECT ", ""),
            ("INSERT ", "INTO "),
            ("UPDATE ", " SET "),
            ("DELETE ", "FROM "),
        ];
        let in_storage = self.module.first().is_some_and(|module| module == "storage");
        let sql = VERBS
            .iter()
            .any(|(verb, with)| text.contains(verb) && text.contains(with));
        if sql && !in_storage && !self.is_test {
            self.report(span, "SQL outside storage/");
        }
    }

    /// serde is how things look outside: only `api` knows, and the two lines of the health probe.
    fn check_derive(&mut self, span: Span, attribute: &str) {
        let serde = ["Serialize", "Deserialize"].iter().any(|name| attribute.contains(name));
        let home = self.module.first().is_some_and(|module| module == "api") || self.path == "src/http/health.rs";
        if attribute.contains("derive") && serde && !home && !self.is_test {
            self.report(span, "derives serde outside api/");
        }
    }

    /// Code in a macro is no syntax yet: its tokens are looked through for paths, texts and panics.
    fn check_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        use proc_macro2::TokenTree;
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut path: Vec<String> = Vec::new();
        for (number, token) in tokens.iter().enumerate() {
            let joined = number >= 2
                && [number - 2, number - 1]
                    .iter()
                    .all(|at| matches!(&tokens[*at], TokenTree::Punct(punct) if punct.as_char() == ':'));
            match token {
                TokenTree::Ident(ident) => {
                    if !joined {
                        path.clear();
                    }
                    path.push(ident.to_string());
                    if path.len() > 1 {
                        self.check_path(ident.span(), &path.clone());
                    }
                    let called = matches!(tokens.get(number + 1), Some(TokenTree::Group(_)));
                    let after_dot =
                        number > 0 && matches!(&tokens[number - 1], TokenTree::Punct(punct) if punct.as_char() == '.');
                    if called && after_dot {
                        self.check_method(ident);
                    }
                    let macro_call =
                        matches!(tokens.get(number + 1), Some(TokenTree::Punct(punct)) if punct.as_char() == '!');
                    if macro_call {
                        self.check_macro_name(ident);
                    }
                }
                TokenTree::Literal(literal) => self.check_text(literal.span(), &literal.to_string()),
                TokenTree::Group(group) => self.check_tokens(group.stream()),
                TokenTree::Punct(_) => {}
            }
        }
    }

    fn check_method(&mut self, name: &syn::Ident) {
        if !self.is_test && (name == "unwrap" || name == "expect") {
            self.report(name.span(), &format!("{name}() outside tests"));
        }
    }

    fn check_macro_name(&mut self, name: &syn::Ident) {
        if !self.is_test
            && ["todo", "unimplemented", "panic", "dbg", "unreachable"]
                .iter()
                .any(|it| name == it)
        {
            self.report(name.span(), &format!("{name}! outside tests"));
        }
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.check_use(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if parts.len() > 1 {
            self.check_path(path.span(), &parts);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|part| part.ident.to_string()),
            _ => None,
        };
        let outer = std::mem::replace(&mut self.own, name);
        visit::visit_item_impl(self, item);
        self.own = outer;
    }

    fn visit_expr_match(&mut self, item: &'ast syn::ExprMatch) {
        self.check_match(&item.arms);
        visit::visit_expr_match(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check_length(&item.sig.ident, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check_length(&item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.check_text(text.span(), &text.value());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        if let syn::Meta::List(list) = &attribute.meta {
            let text = format!("{} {}", list.path.segments.last().unwrap().ident, list.tokens);
            self.check_derive(attribute.span(), &text);
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.check_method(&call.method);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(last) = call.path.segments.last() {
            self.check_macro_name(&last.ident);
        }
        self.check_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// All files below a folder that end in `.rs`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Each file of the source with its text.
pub fn sources() -> BTreeMap<String, String> {
    let read = |path: PathBuf| {
        (
            path.to_str().unwrap().to_owned(),
            std::fs::read_to_string(&path).unwrap(),
        )
    };
    files(Path::new("src")).into_iter().map(read).collect()
}

/// An arrow in the wrong direction, a query in a handler, a function of two screens: each is small, and together
/// they are a house in which nobody finds anything.
#[test]
fn the_source_keeps_the_rules_of_the_house() {
    let sources = sources();
    assert!(sources.len() > 50, "{:?}", sources.keys());
    let found: Vec<String> = sources
        .iter()
        .flat_map(|(path, source)| violations(path, source))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A module that is in no layer is checked by nobody.
#[test]
fn every_module_has_a_layer_and_lib_rs_lists_them_from_the_bottom_up() {
    for path in sources().keys() {
        if let Some(module) = module_path(path).first() {
            assert!(layer(module).is_some(), "{path} is in no layer");
        }
    }
    let lib = std::fs::read_to_string("src/lib.rs").unwrap();
    let listed: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    let layers: Vec<Option<usize>> = listed.iter().map(|module| layer(module)).collect();
    assert!(layers.is_sorted() && layers.iter().all(Option::is_some), "{listed:?}");
    let table: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("//! | [`")?.split('`').next())
        .collect();
    assert_eq!(table, listed, "the table in lib.rs");
}

/// A migration that can't be taken back is found out about when it has to be.
#[test]
fn every_migration_has_an_up_that_says_why_and_a_down() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir("migrations").unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let up = std::fs::read_to_string(folder.join("up.sql")).unwrap();
        let down = std::fs::read_to_string(folder.join("down.sql")).unwrap();
        assert!(up.starts_with("-- "), "{folder:?} does not begin with the reason");
        assert!(down.contains("DROP ") || down.contains("ALTER "), "{folder:?}");
        names.push(folder.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    for name in &names {
        let parts: Vec<&str> = name.split(['-', '_']).collect();
        let numbers = parts
            .iter()
            .take(4)
            .map(|part| (part.len(), part.parse::<u32>().is_ok()));
        let expected = [(4, true), (2, true), (2, true), (6, true)];
        assert!(
            numbers.eq(expected) && parts.len() > 4,
            "{name} is not YYYY-MM-DD-NNNNNN_what"
        );
    }
    assert!(names.len() >= 5);
}

/// A rule whose check can't fire is no rule: each kind of violation is planted once, in each spelling.
#[test]
fn each_rule_fires_on_a_planted_violation() {
    let long = format!("//! Doc.\nfn f() {{\n{}}}\n", "    g();\n".repeat(70));
    let planted: Vec<(&str, String, &str)> = [
        ("src/money.rs", "use crate::domain::Account;", "money uses domain"),
        (
            "src/domain/decide.rs",
            "use crate::{money, storage::accounts};",
            "domain uses storage",
        ),
        ("src/domain/decide.rs", "use super::super::http;", "domain uses http"),
        ("src/domain/mod.rs", "use super::engine as e;", "domain uses engine"),
        ("src/idempotency/key.rs", "use crate::api::*;", "idempotency uses api"),
        (
            "src/api/body.rs",
            "fn f() { crate::storage::connect() }",
            "api uses storage",
        ),
        ("src/storage/rows.rs", "type T = crate::api::Code;", "storage uses api"),
        (
            "src/storage/rows.rs",
            "use crate::redis_hint::RedisHint;",
            "storage uses redis_hint",
        ),
        (
            "src/redis_hint.rs",
            "use super::storage::Database;",
            "redis_hint uses storage",
        ),
        (
            "src/engine/mod.rs",
            "use self::super::http::Service;",
            "engine uses http",
        ),
        ("src/engine/mod.rs", "use crate::config;", "engine uses config"),
        (
            "src/http/auth.rs",
            "fn f() { g!(crate::commands::serve::run()) }",
            "http uses commands",
        ),
        (
            "src/config.rs",
            "mod inner { use super::super::commands::Fatal; }",
            "config uses commands",
        ),
        (
            "src/domain/id.rs",
            "#[cfg(test)] mod tests { use crate::http::Service; }",
            "domain uses http",
        ),
        (
            "src/domain/decide_test.rs",
            "use super::super::super::http::Service;",
            "domain uses http",
        ),
        (
            "src/http/payments.rs",
            r#"const Q: &str = "SELECT 1 FROM payments";"#,
            "SQL outside storage",
        ),
        (
            "src/engine/mod.rs",
            r#"fn f() { g(format!("DELETE FROM {x}")) }"#,
            "SQL outside storage",
        ),
        (
            "src/commands/audit.rs",
            r#"fn f() { sql_query("UPDATE a SET b = 1") }"#,
            "SQL outside storage",
        ),
        (
            "src/commands/audit.rs",
            r#"fn f() { sql_query("INSERT INTO a VALUES (1)") }"#,
            "SQL outside storage",
        ),
        (
            "src/domain/account.rs",
            "#[derive(Debug, serde::Serialize)] struct A;",
            "derives serde",
        ),
        ("src/http/page.rs", "#[derive(Deserialize)] struct A;", "derives serde"),
        (
            "src/http/page.rs",
            "#[cfg_attr(x, derive(Deserialize))] struct A;",
            "derives serde",
        ),
        ("src/money.rs", "fn f() { g().unwrap() }", "unwrap() outside tests"),
        (
            "src/money.rs",
            r#"fn f() { g().expect("x") }"#,
            "expect() outside tests",
        ),
        (
            "src/money.rs",
            "fn f() { vec![g().unwrap()] }",
            "unwrap() outside tests",
        ),
        ("src/money.rs", "fn f() { todo!() }", "todo! outside tests"),
        (
            "src/engine/mod.rs",
            "fn f() { match c { Command::Pay(pay) => g(), _ => None } }",
            "a match over Command takes",
        ),
        (
            "src/api/render.rs",
            "fn f() { match r { Ok(domain::Effect::Opened(a)) => g(), other => h() } }",
            "a match over Effect takes",
        ),
        (
            "src/http/mod.rs",
            "fn f() { match (a, b) { (AccountStatus::Closed, true) => g(), (_, _) => h() } }",
            "a match over AccountStatus takes",
        ),
        (
            "src/domain/payment.rs",
            "impl PaymentStatus { fn f(self) { match self { Self::Refunded => g(), Self::Succeeded | _ => h() } } }",
            "a match over PaymentStatus takes",
        ),
        ("src/money.rs", "fn f() { g!(dbg!(1)) }", "dbg! outside tests"),
    ]
    .into_iter()
    .map(|(path, source, expected)| (path, format!("//! Doc.\n{source}\n"), expected))
    .chain([
        ("src/money.rs", "// No doc.\n".to_owned(), "does not begin with //!"),
        (
            "src/money.rs",
            format!("//! Doc.\n{}", "// line\n".repeat(500)),
            "501 lines",
        ),
        ("src/money.rs", long.clone(), "f has 72 lines"),
        (
            "src/money.rs",
            long.replace("fn f()", "impl A { fn f()") + "}",
            "f has 72 lines",
        ),
    ])
    .collect();
    for (path, source, expected) in planted {
        let found = violations(path, &source);
        assert_eq!(found.len(), 1, "{path}: {source}\n{found:#?}");
        assert!(found[0].contains(expected), "{path}: {source}\n{found:#?}");
    }
}

/// And what is allowed does not fire: a rule that cries wolf is switched off.
#[test]
fn no_rule_fires_on_what_is_allowed() {
    for (path, source) in [
        (
            "src/engine/mod.rs",
            "use crate::{api, domain::Command, redis_hint::RedisHint, storage};",
        ),
        (
            "src/engine/mod.rs",
            "mod worker; use self::worker::Queue; use super::money;",
        ),
        (
            "src/main.rs",
            "use payonce::commands::serve; use payonce::{http, storage};",
        ),
        (
            "src/storage/accounts.rs",
            r#"const Q: &str = "SELECT 1 FROM accounts";"#,
        ),
        ("src/api/resource.rs", "#[derive(Serialize)] struct A;"),
        ("src/http/health.rs", "#[derive(Serialize)] struct A;"),
        ("src/http/mod.rs", "fn f() { std::io::stdin(); actix_web::web::get(); }"),
        ("src/money.rs", "fn f() { g().unwrap_or_default().expected() }"),
        (
            "src/http/page.rs",
            r#"const TEXT: &str = "Select a page or update the limit";"#,
        ),
        (
            "src/domain/decide_test.rs",
            "use super::decide; use crate::money; fn f() { decide().unwrap() }",
        ),
        ("src/lib.rs", "pub mod money; pub mod domain;"),
        (
            "src/engine/mod.rs",
            "fn f() { match c { Command::Pay(_) => g(), Command::Refund(other) => h() } match n { 1 => g(), _ => h() } }",
        ),
        (
            "src/http/payments.rs",
            r#"fn f() { match name { "refunded" => Ok(PaymentStatus::Refunded), _ => Err(()) } }"#,
        ),
        (
            "src/api/problem.rs",
            "impl Code { fn f(self) { match self { Self::NotFound => g(), _ => h() } } }",
        ),
    ] {
        let found = violations(path, &format!("//! Doc.\n{source}\n"));
        assert_eq!(found, Vec::<String>::new(), "{path}: {source}");
    }
}
