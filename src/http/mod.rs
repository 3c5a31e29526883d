//! The HTTP service: extract, call, send. No rules and no SQL; reads go to `storage`, writes to the `engine`.
//!
//! [`routes`] has every route on one screen. Every answer passes through [`envelope::envelope`], which gives it its headers.

mod accounts;
mod anybody;
mod auth;
mod entries;
mod envelope;
mod extract;
mod headers;
mod health;
mod idempotency_keys;
mod movements;
pub mod openapi;
mod openapi_problems;
mod operation;
mod page;
mod payments;
mod query;
mod refunds;
mod remembered_keys;
mod revocations;
pub mod server;
mod service;
mod socket;
mod turns;

use actix_web::web::{self, Redirect, ServiceConfig, post};
use actix_web::{Resource, Route, guard};

pub use auth::{Authenticator, hash_api_key};
pub use envelope::envelope;
pub use revocations::HEARSAY;
pub use service::{HttpSettings, Service};

use crate::api::body::BODY_MAX;
use crate::api::{Code, Problem};

/// Every route of the service.
pub fn routes(config: &mut ServiceConfig) {
    config
        .app_data(web::PayloadConfig::new(BODY_MAX))
        .service(at(
            "/accounts",
            [("GET", get().to(accounts::list)), ("POST", post().to(accounts::open))],
        ))
        .service(at("/accounts/{id}", [("GET", get().to(accounts::show))]))
        .service(at("/accounts/{id}/freeze", [("POST", post().to(accounts::freeze))]))
        .service(at("/accounts/{id}/unfreeze", [("POST", post().to(accounts::unfreeze))]))
        .service(at("/accounts/{id}/close", [("POST", post().to(accounts::close))]))
        .service(at("/accounts/{id}/deposits", [("POST", post().to(movements::deposit))]))
        .service(at(
            "/accounts/{id}/withdrawals",
            [("POST", post().to(movements::withdraw))],
        ))
        .service(at("/deposits/{id}", [("GET", get().to(movements::show_deposit))]))
        .service(at("/withdrawals/{id}", [("GET", get().to(movements::show_withdrawal))]))
        .service(at("/accounts/{id}/entries", [("GET", get().to(entries::list))]))
        .service(at("/accounts/{id}/balance", [("GET", get().to(entries::balance))]))
        .service(at(
            "/payments",
            [("GET", get().to(payments::list)), ("POST", post().to(payments::create))],
        ))
        .service(at("/payments/{id}", [("GET", get().to(payments::show))]))
        .service(at(
            "/payments/{id}/refunds",
            [("GET", get().to(refunds::list)), ("POST", post().to(refunds::create))],
        ))
        .service(at("/refunds/{id}", [("GET", get().to(refunds::show))]))
        .service(at(
            "/idempotency-keys/{key:.*}",
            [("GET", get().to(idempotency_keys::show))],
        ))
        .service(at("/health/live", [("GET", get().to(health::live))]))
        .service(at("/health/ready", [("GET", get().to(health::ready))]))
        .service(at("/metrics", [("GET", get().to(health::metrics))]))
        .service(at("/problems/{code}", [("GET", get().to(health::problem))]))
        .service(at("/openapi.json", [("GET", get().to(openapi::document))]))
        .service(at("/swagger-ui/{file:.*}", [("GET", get().to(openapi::swagger_ui))]))
        .service(at("/swagger-ui", [("GET", get().to(to_swagger_ui))]))
        .service(at("/", [("GET", get().to(to_swagger_ui))]))
        .default_service(web::to(async || -> Result<&str, Problem> {
            Err(Problem::new(
                Code::NotFound,
                "there is nothing at this address; /swagger-ui/ shows what there is",
            ))
        }));
}

/// `HEAD` is answered as `GET`, without the body: the HTTP library leaves it out.
fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// A browser that was pointed at the service sees what there is.
async fn to_swagger_ui() -> Redirect {
    Redirect::to("/swagger-ui/")
}

/// A path with its methods; any other method is answered with 405 and the list of those.
fn at<const N: usize>(path: &str, methods: [(&'static str, Route); N]) -> Resource {
    let with_head = |name: &'static str| if name == "GET" { "GET, HEAD" } else { name };
    let allowed = methods.each_ref().map(|(name, _)| with_head(name)).join(", ");
    let resource = methods
        .into_iter()
        .fold(web::resource(path), |resource, (_, route)| resource.route(route));
    resource.default_service(web::to(move || {
        let allowed = allowed.clone();
        async move {
            Err::<&str, _>(Problem::new(Code::MethodNotAllowed, format!("allowed here: {allowed}")).with_allow(allowed))
        }
    }))
}
