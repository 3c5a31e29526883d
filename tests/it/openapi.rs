//! The OpenAPI document says what the service does, no less and no more; Swagger UI shows it.

use std::collections::{BTreeMap, BTreeSet};

use payonce::api::Code;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::client::{merge, payment};
use crate::support::{App, Client, assert_books_balance, new_key};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

fn document() -> Value {
    serde_json::from_str(&payonce::http::openapi::json().expect("the document")).expect("JSON")
}

/// An operation of the document.
struct Operation {
    path: String,
    method: String,
    says: Value,
}

fn operations(document: &Value) -> Vec<Operation> {
    let paths = document["paths"].as_object().expect("paths");
    let of_path = |(path, item): (&String, &Value)| {
        let methods = item.as_object().expect("operations").clone();
        let path = path.clone();
        methods.into_iter().map(move |(method, says)| Operation {
            path: path.clone(),
            method,
            says,
        })
    };
    paths.iter().flat_map(of_path).collect()
}

/// Follows a `$ref` into the document.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let Some(reference) = schema["$ref"].as_str() else {
        return schema;
    };
    let pointer = reference.strip_prefix('#').expect("a local reference");
    document
        .pointer(pointer)
        .unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

/// The parameters of an operation that stand in such a place.
fn parameters<'a>(operation: &'a Operation, place: &str) -> Vec<&'a Value> {
    let all = operation.says["parameters"].as_array().into_iter().flatten();
    all.filter(|parameter| parameter["in"] == place).collect()
}

impl Operation {
    fn shown(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// The document under `openapi/` is the one that the program prints and serves. Without this a client is generated from last
/// year's contract.
#[tokio::test]
async fn the_committed_document_is_the_one_that_is_served() {
    let committed = std::fs::read_to_string("openapi/openapi.json").expect("openapi/openapi.json");
    let app = App::start().await;
    let (status, printed, stderr) = app.cli(&["openapi"]);
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(printed, committed, "run `make openapi`");
    let served: Value = app.read("/openapi.json").await;
    assert_eq!(served, serde_json::from_str::<Value>(&committed).expect("JSON"));
    assert_eq!(served["openapi"].as_str().map(|version| &version[..4]), Some("3.1."));
}

/// Every route of the program is in the document with its methods, and the reverse. Without this a route is added that
/// nobody hears of.
#[test]
fn the_document_has_exactly_the_routes_of_the_program() {
    let source = std::fs::read_to_string("src/http/mod.rs").expect("src/http/mod.rs");
    let routes = source.split("pub fn routes").nth(1).expect("routes()");
    let mut served: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for route in routes.split(".service(at(").skip(1) {
        let path = route.split('"').nth(1).expect("a path").replace(":.*}", "}");
        let methods = ["GET", "POST"]
            .into_iter()
            .filter(|name| route.contains(&format!("(\"{name}\"")));
        served.insert(path, methods.map(str::to_lowercase).collect());
    }
    for about_itself in ["/openapi.json", "/swagger-ui/{file}", "/swagger-ui", "/"] {
        served.remove(about_itself).expect("an address");
    }
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for operation in operations(&document()) {
        documented.entry(operation.path).or_default().insert(operation.method);
    }
    assert!(served.len() > 15, "{served:?}");
    assert_eq!(documented, served);
}

/// Each documented method is served, and each other one is 405 with `Allow`. Without this the document promises what is not there.
#[tokio::test]
async fn exactly_the_documented_methods_are_served() {
    let app = App::start().await;
    let mut documented: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for operation in operations(&document()) {
        documented.entry(operation.path).or_default().push(operation.method);
    }
    documented.insert("/openapi.json".to_owned(), vec!["get".to_owned()]);
    for (template, methods) in documented {
        let path = template
            .replace("{id}", &Uuid::now_v7().to_string())
            .replace("{key}", "some-key")
            .replace("{code}", "not_found");
        for method in METHODS {
            let name = method.to_uppercase();
            let request = app.request(Method::from_bytes(name.as_bytes()).expect("a method"), &path);
            let reply = app.send(request).await;
            if methods.iter().any(|known| known == method) {
                assert_ne!(reply.status, 405, "{name} {path}");
                assert!(!reply.shown().contains("nothing at this address"), "{name} {path}");
            } else {
                reply.problem(405, "method_not_allowed");
                // HEAD goes without saying where there is a GET.
                let allowed = methods.join(", ").to_uppercase().replace("GET", "GET, HEAD");
                assert_eq!(reply.header("Allow"), Some(allowed.as_str()), "{name} {path}");
            }
        }
    }
}

/// Every problem code is a value of the schema, and described at an operation that can answer with it, under its status.
/// Without this a client author learns of a code in production.
#[test]
fn every_problem_code_is_documented() {
    let document = document();
    let listed = &document["components"]["schemas"]["ProblemCode"]["enum"];
    let table: Vec<_> = Code::ALL.iter().map(|code| json!(code.row().code)).collect();
    assert_eq!(listed, &json!(table));
    let operations = operations(&document);
    for code in Code::ALL {
        let (row, advice) = (code.row(), code.advice());
        let described = operations.iter().any(|operation| {
            let response = &operation.says["responses"][row.status.to_string()];
            let description = response["description"].as_str().unwrap_or_default();
            description.contains(&format!("`{}`", row.code)) && description.contains(&advice)
        });
        // No documented operation can be answered with 405: that is for those that are not there.
        assert_eq!(described, row.status != 405, "{}", row.code);
    }
}

/// Each operation documents every refusal that it can be brought to. Without this a client author handles 402 where there is none, and
/// not where there is.
#[tokio::test]
async fn every_refusal_is_documented_at_its_operation() {
    let app = App::start().await;
    let document = document();
    let (rich, payee, paid) = things(&app).await;
    let (frozen, closed, euros) = (
        app.open_with("5.00").await,
        app.open_with("1.00").await,
        app.open("EUR").await,
    );
    let to_frozen = app.pay(&rich, &frozen, "1.00").await.created();
    let from_closed = app.pay(&closed, &payee, "1.00").await.created();
    let to_poor = app.pay(&rich, &app.open("USD").await, "1.00").await;
    app.withdraw(&to_poor.text("payee_account_id"), "1.00").await.created();
    app.set(&frozen, "freeze").await.ok();
    app.set(&closed, "close").await.ok();
    let nobody = Uuid::now_v7().to_string();
    let money = |amount: &str, currency: &str| json!({"amount": amount, "currency": currency});
    let (deposits, withdrawals, refunds) = (
        "/accounts/{id}/deposits",
        "/accounts/{id}/withdrawals",
        "/payments/{id}/refunds",
    );
    for (path, id, body) in [
        ("/accounts", &rich, json!({})),
        ("/accounts/{id}/close", &rich, json!({})),
        ("/accounts/{id}/close", &nobody, json!({})),
        ("/accounts/{id}/freeze", &closed, json!({})),
        ("/accounts/{id}/freeze", &nobody, json!({})),
        ("/accounts/{id}/unfreeze", &closed, json!({})),
        ("/accounts/{id}/unfreeze", &nobody, json!({})),
        (deposits, &nobody, money("1.00", "USD")),
        (deposits, &closed, money("1.00", "USD")),
        (deposits, &rich, money("1.00", "EUR")),
        (deposits, &rich, money("0.00", "USD")),
        (deposits, &rich, money("999999999999999.99", "USD")),
        (withdrawals, &nobody, money("1.00", "USD")),
        (withdrawals, &closed, money("1.00", "USD")),
        (withdrawals, &frozen, money("1.00", "USD")),
        (withdrawals, &rich, money("1.00", "EUR")),
        (withdrawals, &rich, money("0.00", "USD")),
        (withdrawals, &rich, money("99999.00", "USD")),
        ("/payments", &rich, json!({})),
        ("/payments", &rich, payment(&rich, &rich, "1.00")),
        ("/payments", &rich, payment(&rich, &nobody, "1.00")),
        ("/payments", &rich, payment(&rich, &closed, "1.00")),
        ("/payments", &rich, payment(&frozen, &rich, "1.00")),
        ("/payments", &rich, payment(&rich, &euros, "1.00")),
        ("/payments", &rich, payment(&rich, &payee, "99999.00")),
        (refunds, &nobody, json!({})),
        (refunds, &paid, json!({"amount": "0"})),
        (refunds, &paid, json!({"amount": "0.001"})),
        (refunds, &paid, json!({"amount": "100.01"})),
        (refunds, &paid, json!({"expected_refunded_amount": "1.00"})),
        (refunds, &to_frozen, json!({})),
        (refunds, &from_closed, json!({})),
        (refunds, &to_poor.text("id"), json!({})),
    ] {
        let reply = app.post(&path.replace("{id}", id), &new_key(), &body).await;
        let code = reply.text("code");
        let responses = &document["paths"][path]["post"]["responses"];
        let content = &responses[reply.status.to_string()]["content"]["application/problem+json"];
        let example = &content["examples"][&code]["value"];
        assert_eq!(
            example["code"],
            json!(code),
            "{path} does not document {}",
            reply.shown()
        );
        assert_eq!(example["title"], reply.json()["title"]);
    }
    assert_books_balance(&app.database);
}

/// Every error is documented as the problem that it is. Without this a generated client can't read it.
#[test]
fn every_documented_error_is_a_problem() {
    for operation in operations(&document()) {
        let responses = operation.says["responses"].as_object().expect("responses");
        for (status, response) in responses.iter().filter(|(status, _)| !status.starts_with('2')) {
            let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
            assert_eq!(schema, "#/components/schemas/Problem", "{} {status}", operation.shown());
            for header in ["Link", "X-Request-Id"] {
                assert!(
                    response["headers"][header].is_object(),
                    "{} {status}: {header}",
                    operation.shown()
                );
            }
        }
        let successes = responses.keys().filter(|status| status.starts_with('2')).count();
        assert_eq!(successes, 1, "{}", operation.shown());
    }
}

/// Every `POST`, and nothing else, documents the Idempotency-Key header, as required, and the marker of a replay. Without
/// this a generated client leaves it out.
#[test]
fn every_post_documents_its_required_key() {
    for operation in operations(&document()) {
        let headers = parameters(&operation, "header");
        let success = operation.says["responses"].as_object().expect("responses");
        let (status, success) = success
            .iter()
            .find(|(status, _)| status.starts_with('2'))
            .expect("a success");
        if operation.method == "post" {
            assert_eq!(headers.len(), 1, "{}", operation.shown());
            let header = headers[0];
            assert_eq!(
                (&header["name"], &header["required"]),
                (&json!("Idempotency-Key"), &json!(true))
            );
            for header in ["Idempotency-Key", "Idempotent-Replayed"] {
                assert!(
                    success["headers"][header].is_object(),
                    "{}: {header}",
                    operation.shown()
                );
            }
            assert_eq!(
                success["headers"]["Location"].is_object(),
                status == "201",
                "{}",
                operation.shown()
            );
        } else {
            assert!(headers.is_empty(), "{}", operation.shown());
        }
    }
}

/// Every operation has a name of its own that reads as a method of a generated client, a summary and a tag, and every parameter and
/// tag a description. Without this generators make `list`, `list_1` and `list_2`.
#[test]
fn every_operation_has_a_name_of_its_own() {
    let document = document();
    let mut names = BTreeSet::new();
    for operation in operations(&document) {
        let name = operation.says["operationId"].as_str().expect("operationId").to_owned();
        assert!(
            name.chars().all(char::is_alphabetic) && name.starts_with(char::is_lowercase),
            "{name}"
        );
        assert!(names.insert(name.clone()), "{name} is there twice");
        assert!(operation.says["summary"].is_string(), "{name}");
        assert_eq!(operation.says["tags"].as_array().map(Vec::len), Some(1), "{name}");
        for parameter in operation.says["parameters"].as_array().into_iter().flatten() {
            assert!(parameter["description"].is_string(), "{name}: {parameter}");
        }
        let in_path = parameters(&operation, "path");
        assert_eq!(in_path.len(), operation.path.matches('{').count(), "{name}");
    }
    assert!(
        names.contains("createPayment") && names.contains("listPayments"),
        "{names:?}"
    );
}

/// What was made can be followed to each operation that takes its id. Without this a fuzzer, or a reader, has to guess.
#[test]
fn what_was_made_is_linked_to_what_can_be_done_with_it() {
    let document = document();
    let operations = operations(&document);
    let mut linked = BTreeSet::new();
    for operation in &operations {
        let links = operation.says["responses"]["201"]["links"].as_object();
        for (name, link) in links.into_iter().flatten() {
            let target = operations.iter().find(|target| target.says["operationId"] == **name);
            let target = target.unwrap_or_else(|| panic!("there is no operation {name}"));
            assert!(target.path.contains("{id}"), "{name}");
            assert_eq!(link["operationId"], **name);
            assert_eq!(link["parameters"], json!({"id": "$response.body#/id"}));
            linked.insert(target.shown());
        }
    }
    let with_id = operations.iter().filter(|operation| operation.path.contains("{id}"));
    assert_eq!(linked, with_id.map(Operation::shown).collect());
}

/// U+0000 is refused in every text, and the document says so. Without this, data that fit the schema are answered 400.
#[test]
fn every_text_that_goes_in_is_documented_without_the_null_character() {
    let document = document();
    let without_nul = |schema: &Value| schema["pattern"] == "^[^\\u0000]*$";
    let mut texts = 0;
    for operation in operations(&document) {
        let body = &operation.says["requestBody"]["content"]["application/json"]["schema"];
        let members = resolve(&document, body)["properties"].as_object();
        for (name, schema) in members.into_iter().flatten() {
            match name.as_str() {
                "name" | "reference" | "description" | "reason" => assert!(without_nul(schema), "{name}"),
                "metadata" => {
                    assert!(without_nul(&schema["propertyNames"]) && without_nul(&schema["additionalProperties"]));
                    assert_eq!(schema["maxProperties"], 50);
                }
                _ => continue,
            }
            texts += 1;
        }
        for parameter in parameters(&operation, "query") {
            if parameter["name"] == "reference" || parameter["name"] == "idempotency_key" {
                assert!(without_nul(&parameter["schema"]), "{parameter}");
            }
        }
    }
    assert_eq!(texts, 9, "3 to open an account, 3 to pay, 1 for each other");
}

/// `POST /payments/{id}/refunds` without a body refunds all that remains, and no other `POST` with a body goes without. Without
/// this a generated client has to send an empty object, or believes that it may leave out the amount of a payment.
#[test]
fn only_a_refund_goes_without_its_body() {
    for operation in operations(&document()) {
        if let Some(body) = operation.says.get("requestBody") {
            let is_refund = operation.says["operationId"] == "createRefund";
            assert_eq!(body["required"] == true, !is_refund, "{}", operation.shown());
        }
    }
}

/// Every list, and nothing else, takes `limit` and `cursor`.
#[test]
fn every_list_documents_its_pages() {
    let document = document();
    let mut lists = 0;
    for operation in operations(&document) {
        let answer = &operation.says["responses"]["200"]["content"]["application/json"]["schema"];
        let schema = resolve(&document, answer);
        let is_list = schema["properties"]["next_cursor"].is_object();
        let query = parameters(&operation, "query");
        let names: Vec<_> = query
            .iter()
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        for name in ["limit", "cursor"] {
            assert_eq!(names.contains(&name), is_list, "{}: {names:?}", operation.shown());
        }
        if is_list {
            lists += 1;
            assert!(schema["properties"]["data"]["items"]["$ref"].is_string(), "{schema}");
        }
    }
    assert_eq!(lists, 4);
}

/// Things that the documented examples can be tried on.
async fn things(client: &Client) -> (String, String, String) {
    let (payer, payee) = (client.open_with("1000.00").await, client.open("USD").await);
    let paid = client.pay(&payer, &payee, "100.00").await.created();
    (payer, payee, paid)
}

/// Each documented example works as it stands; only ids are replaced by real ones. Without this the first thing that a reader of Swagger UI
/// sees is an error.
#[tokio::test]
async fn the_documented_examples_work() {
    let app = App::start().await;
    let document = document();
    let mut tried = 0;
    for operation in operations(&document)
        .iter()
        .filter(|operation| operation.method == "post")
    {
        let (payer, payee, paid) = things(&app).await;
        let id = match operation.path.as_str() {
            path if path.starts_with("/payments") => paid,
            path if path.ends_with("/close") => app.open("USD").await,
            _ => payer.clone(),
        };
        let mut body = json!({});
        if operation.says["requestBody"].is_object() {
            let content = &operation.says["requestBody"]["content"]["application/json"];
            let schema = resolve(&document, &content["schema"]);
            body = schema["example"].clone();
            assert!(body.is_object(), "{} has no example", operation.shown());
            for (member, real) in [("payer_account_id", payer), ("payee_account_id", payee)] {
                if let Some(example) = body[member].as_str() {
                    assert!(Uuid::parse_str(example).is_ok(), "{example}");
                    merge(&mut body, json!({(member): real}));
                }
            }
        }
        let path = operation.path.replace("{id}", &id);
        let reply = app.post(&path, &new_key(), &body).await;
        let status = reply.status.to_string();
        let schema = &operation.says["responses"][&status]["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{}: {}", operation.shown(), reply.shown());
        assert_documented(&document, schema, &reply.json());
        tried += 1;
    }
    assert_eq!(tried, 8);
    assert_books_balance(&app.database);
}

/// A value has exactly the members that its schema lists, all of them required, at every depth.
#[track_caller]
fn assert_documented(document: &Value, schema: &Value, value: &Value) {
    let schema = resolve(document, schema);
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        for value in values {
            assert_documented(document, items, value);
        }
    }
    let (Some(properties), Some(members)) = (schema["properties"].as_object(), value.as_object()) else {
        return;
    };
    let documented: BTreeSet<_> = properties.keys().map(String::as_str).collect();
    let real: BTreeSet<_> = members.keys().map(String::as_str).collect();
    assert_eq!(real, documented, "{schema}");
    let required = schema["required"].as_array().expect("required");
    let required: BTreeSet<_> = required.iter().filter_map(Value::as_str).collect();
    assert_eq!(required, documented, "an optional value is null, never left out");
    for (name, value) in members {
        assert_documented(document, &properties[name], value);
    }
}

/// Everything that is read has exactly the documented members. Without this a generated client drops what it does not know, or fails on
/// what is missing.
#[tokio::test]
async fn what_is_read_is_as_documented() {
    let app = App::start().await;
    let document = document();
    let (payer, _, paid) = things(&app).await;
    let refund = app.refund(&paid, Some("1.00")).await.created();
    let deposit = app.deposit(&payer, "1.00").await.created();
    let withdrawal = app.withdraw(&payer, "1.00").await.created();
    let key = "a-key";
    app.post("/accounts", key, &json!({"currency": "USD", "name": "Alice"}))
        .await
        .created();
    let mut tried = 0;
    for operation in operations(&document)
        .iter()
        .filter(|operation| operation.method == "get")
    {
        let schema = &operation.says["responses"]["200"]["content"]["application/json"]["schema"];
        if !schema.is_object() {
            continue;
        }
        let id = match operation.path.as_str() {
            path if path.starts_with("/payments") => &paid,
            path if path.starts_with("/refunds") => &refund,
            path if path.starts_with("/deposits") => &deposit,
            path if path.starts_with("/withdrawals") => &withdrawal,
            _ => &payer,
        };
        let mut path = operation.path.replace("{id}", id).replace("{key}", key);
        for parameter in parameters(operation, "query") {
            if let Some(example) = parameter["example"].as_str() {
                let name = parameter["name"].as_str().expect("a name");
                path = format!("{path}?{name}={example}");
            }
        }
        assert_documented(&document, schema, &app.read(&path).await);
        tried += 1;
    }
    assert_eq!(tried, 13);
    let response = &document["components"]["schemas"]["RecordedResponse"];
    let record = app.read(&format!("/idempotency-keys/{key}")).await;
    assert_documented(&document, response, &record["response"]);
    assert_books_balance(&app.database);
}

/// Only probes, metrics and the problems' pages can be called without a key, and the document says so. Without this Swagger UI
/// sends none where one is needed.
#[test]
fn the_document_says_where_a_key_is_needed() {
    let document = document();
    assert_eq!(document["security"], json!([{"api_key": []}]));
    let scheme = &document["components"]["securitySchemes"]["api_key"];
    assert_eq!((&scheme["type"], &scheme["scheme"]), (&json!("http"), &json!("bearer")));
    for operation in operations(&document) {
        let open = operation.says["tags"][0] == "operations";
        assert_eq!(operation.says["security"].is_array(), open, "{}", operation.shown());
        let answers = operation.says["responses"].as_object().expect("responses");
        assert_eq!(answers.contains_key("401"), !open, "{}", operation.shown());
    }
}

/// Swagger UI comes whole from the program: its page, its scripts and styles, and the address of the document. Without this it is
/// blank behind a firewall.
#[tokio::test]
async fn swagger_ui_needs_no_network() {
    let app = App::start().await;
    let get = async |path: &str| app.send(app.http.get(format!("{}{path}", app.base))).await;
    let index = get("/swagger-ui/").await;
    assert_eq!(index.status, 200);
    assert!(
        index
            .header("Content-Type")
            .is_some_and(|value| value.starts_with("text/html"))
    );
    let html = String::from_utf8(index.body).expect("UTF-8");
    let mut addresses = Vec::new();
    for attribute in ["src=\"", "href=\""] {
        let values = html.split(attribute).skip(1).filter_map(|rest| rest.split('"').next());
        addresses.extend(values.map(str::to_owned));
    }
    assert!(addresses.len() >= 4, "{html}");
    for address in addresses {
        let file = address.strip_prefix("./").unwrap_or(&address);
        assert!(!file.contains("://"), "{address}");
        let reply = get(&format!("/swagger-ui/{file}")).await;
        assert_eq!(reply.status, 200, "{address}");
        assert!(!reply.body.is_empty(), "{address}");
    }
    let initializer = get("/swagger-ui/swagger-initializer.js").await;
    assert!(initializer.shown().contains("/openapi.json"), "{}", initializer.shown());
    assert_eq!(get("/swagger-ui").await.status, 200, "it redirects");
    get("/swagger-ui/nonsense.js").await.problem(404, "not_found");
    let posted = app.post("/swagger-ui/", &new_key(), &json!({})).await;
    posted.problem(405, "method_not_allowed");
}
