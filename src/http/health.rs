//! Probes, metrics, and the documentation of the problem codes. None of them needs an API key.

use actix_web::web::{Data, Path};
use actix_web::{HttpResponse, Responder};
use serde::Serialize;
use utoipa::ToSchema;

use super::Service;
use super::envelope::read_answer;
use super::operation::Operation;
use crate::api::{Code, Problem};

/// What the document says about them.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation::get("checkLive", &[]),
    Operation::get("checkReady", &[Code::Unavailable]),
    Operation::get("getMetrics", &[]),
    Operation::get("getProblem", &[Code::NotFound]),
];

/// How the service is.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `live` or `ready`.
    #[schema(example = "ready")]
    status: &'static str,
}

/// Is the process alive?
#[utoipa::path(get, path = "/health/live", operation_id = "checkLive", tag = "operations", security(()),
    responses((status = 200, description = "It is", body = Health)))]
pub(super) async fn live() -> Result<HttpResponse, Problem> {
    Ok(read_answer(&Health { status: "live" }))
}

/// Can it serve?
///
/// Only if the database answers and keeps what it confirms, and the commands get on. Redis does not matter.
#[utoipa::path(get, path = "/health/ready", operation_id = "checkReady", tag = "operations", security(()),
    responses((status = 200, description = "It can", body = Health)))]
pub(super) async fn ready(service: Data<Service>) -> Result<HttpResponse, Problem> {
    service.ready().await?;
    // Reads and writes have connections of their own: that the one answers says nothing of the other.
    if let Some(wait) = service.engine.stalled() {
        let seconds = wait.as_secs();
        return Err(Problem::new(
            Code::Unavailable,
            format!("commands do not get on: the oldest has waited for {seconds} s"),
        ));
    }
    Ok(read_answer(&Health { status: "ready" }))
}

/// Prometheus metrics
#[utoipa::path(get, path = "/metrics", operation_id = "getMetrics", tag = "operations", security(()),
    responses((status = 200, description = "Prometheus text format", body = String, content_type = "text/plain")))]
pub(super) async fn metrics(service: Data<Service>) -> impl Responder {
    service.engine.measure();
    HttpResponse::Ok()
        .content_type("text/plain; version=0.0.4; charset=utf-8")
        .body(service.metrics.render())
}

/// What a problem code means
#[utoipa::path(get, path = "/problems/{code}", operation_id = "getProblem", tag = "operations", security(()),
    params(("code" = Code, Path, description = "The `code` member of a problem")),
    responses((status = 200, description = "What it means and what to do", body = String, content_type = "text/plain")))]
pub(super) async fn problem(code: Path<String>) -> Result<HttpResponse, Problem> {
    let known = Code::ALL.iter().find(|known| known.row().code == *code);
    let known = known.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no problem code {code:?}")))?;
    let (row, advice) = (known.row(), known.advice());
    let retry = if row.retryable {
        "may succeed later"
    } else {
        "gives the same answer again"
    };
    Ok(HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .body(format!(
            "{} ({})\n\n{}.\n{advice}\nThe same request under the same key {retry}.\n",
            row.code, row.status, row.title,
        )))
}
