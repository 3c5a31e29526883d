//! What comes in, checked in one order: API key, scope, rate, query string, idempotency key, coding, body, media type.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, UPGRADE};
use actix_web::web::{Bytes, Data};
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use tokio::time::timeout;
use uuid::Uuid;

use super::Service;
use super::headers::{RequestId, idempotency_key, once};
use super::page::{Cursor, List, PageQuery};
use super::query::Query;
use crate::api::body::{self, BODY_MAX, Body};
use crate::api::{Code, Problem};
use crate::domain::{Command, TenantId};
use crate::idempotency::{IdempotencyKey, KeyError, Request};
use crate::storage::api_keys::Scope;

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A `GET` of a tenant that may read.
pub(super) struct Get {
    pub tenant: TenantId,
    pub service: Data<Service>,
    path: actix_web::dev::Path<actix_web::dev::Url>,
    query: String,
}

/// A `POST` of a tenant that may write, under a key.
pub(super) struct Post {
    pub service: Data<Service>,
    tenant: TenantId,
    request_id: Uuid,
    key: IdempotencyKey,
    path: actix_web::dev::Path<actix_web::dev::Url>,
    bytes: Bytes,
}

impl Get {
    /// The id in the path.
    pub fn id(&self) -> Result<Uuid, Problem> {
        id_in(&self.path)
    }

    /// The idempotency key in the path.
    pub fn key(&self) -> Result<IdempotencyKey, Problem> {
        let encoded = self.path.get("key").unwrap_or_default();
        let key = percent_encoding::percent_decode_str(encoded).collect();
        IdempotencyKey::bare(key).map_err(|error| Problem::new(Code::IdempotencyKeyInvalid, error.to_string()))
    }

    /// The query string; a parameter that is not in `known` is refused.
    pub fn query(&self, known: &[&'static str]) -> Result<Query, Problem> {
        Query::parse(&self.query, known)
    }

    /// The page that `limit` and `cursor` ask for of the list at this address.
    pub fn page<P: Cursor>(&self, query: &Query) -> Result<PageQuery<P>, Problem> {
        let list = List {
            tenant: self.tenant,
            path: self.path.as_str().to_owned(),
        };
        PageQuery::read(query, list)
    }
}

impl Post {
    /// The id in the path.
    pub fn id(&self) -> Result<Uuid, Problem> {
        id_in(&self.path)
    }

    /// The body, still to be turned into a command.
    pub fn body<B: Body>(&self) -> Result<B, Problem> {
        body::read(&self.bytes)
    }

    /// The command under this request's key.
    pub fn request(&self, command: Command) -> Request {
        Request::new(self.request_id, self.tenant, self.key.clone(), command)
    }
}

fn id_in(path: &actix_web::dev::Path<actix_web::dev::Url>) -> Result<Uuid, Problem> {
    body::read_uuid(path.get("id").unwrap_or_default())
        .map_err(|error| Problem::new(Code::MalformedRequest, format!("the id in the path {error}")))
}

async fn admit(request: &HttpRequest, scope: Scope) -> Result<(Data<Service>, TenantId), Problem> {
    let service = request
        .app_data::<Data<Service>>()
        .cloned()
        .ok_or_else(|| Problem::new(Code::InternalError, "the service is not set up"))?;
    let authorization = once(request.headers(), &AUTHORIZATION)?.and_then(|value| value.to_str().ok());
    let tenant = service.authenticator.authenticate(authorization, scope).await?;
    service.admit(tenant)?;
    Ok((service, tenant))
}

impl FromRequest for Get {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let (service, tenant) = admit(&request, Scope::Read).await?;
            let query = request.query_string().to_owned();
            Ok(Self {
                tenant,
                service,
                path: request.match_info().clone(),
                query,
            })
        })
    }
}

impl FromRequest for Post {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let request = request.clone();
        let bytes = Bytes::from_request(&request, payload);
        Box::pin(async move {
            let (service, tenant) = admit(&request, Scope::Write).await?;
            Query::parse(request.query_string(), &[])?;
            let key = idempotency_key(request.headers()).map_err(|error| {
                let code = match error {
                    KeyError::Missing => Code::IdempotencyKeyMissing,
                    _ => Code::IdempotencyKeyInvalid,
                };
                Problem::new(code, error.to_string())
            })?;
            refuse_coding(&request)?;
            refuse_websocket(&request)?;
            let bytes = read_body(bytes).await?;
            check_media_type(&request, &bytes)?;
            let request_id = request
                .extensions()
                .get::<RequestId>()
                .map_or_else(Uuid::now_v7, |id| id.0);
            Ok(Self {
                service,
                tenant,
                request_id,
                key,
                path: request.match_info().clone(),
                bytes,
            })
        })
    }
}

/// A body under a coding that is not undone would be read as what it is not.
fn refuse_coding(request: &HttpRequest) -> Result<(), Problem> {
    for value in request.headers().get_all(CONTENT_ENCODING) {
        let codings = value.to_str().unwrap_or("?");
        if codings
            .split(',')
            .any(|coding| !coding.trim().eq_ignore_ascii_case("identity"))
        {
            return Err(Problem::new(
                Code::UnsupportedMediaType,
                format!("send the body as it is, without `Content-Encoding: {codings}`"),
            )
            .with_accept_encoding("identity"));
        }
    }
    Ok(())
}

/// The HTTP library takes all that follows such an offer for a stream without an end, whatever `Content-Length` says.
fn refuse_websocket(request: &HttpRequest) -> Result<(), Problem> {
    let offers = request.headers().get_all(UPGRADE);
    let mut offers = offers.filter_map(|value| value.to_str().ok());
    if offers.any(|offer| offer.trim().eq_ignore_ascii_case("websocket")) {
        return Err(Problem::new(
            Code::MalformedRequest,
            "there is no WebSocket here: send the request without `Upgrade: websocket`",
        ));
    }
    Ok(())
}

async fn read_body(bytes: impl Future<Output = Result<Bytes, actix_web::Error>>) -> Result<Bytes, Problem> {
    let Ok(read) = timeout(BODY_TIMEOUT, bytes).await else {
        let seconds = BODY_TIMEOUT.as_secs();
        return Err(Problem::new(
            Code::RequestTimeout,
            format!("the whole body did not arrive within {seconds} seconds"),
        ));
    };
    read.map_err(|error| match error.as_error() {
        Some(PayloadError::Overflow) => {
            Problem::new(Code::BodyTooLarge, format!("the body has more than {BODY_MAX} bytes"))
        }
        Some(PayloadError::Incomplete(_)) => Problem::new(
            Code::RequestTimeout,
            "the connection ended before the whole body had arrived",
        ),
        _ => {
            tracing::debug!(%error, "a body could not be read");
            Problem::new(
                Code::MalformedRequest,
                "the body is not framed as HTTP wants it (`Content-Length`, or chunks)",
            )
        }
    })
}

fn check_media_type(request: &HttpRequest, bytes: &Bytes) -> Result<(), Problem> {
    let media_type = once(request.headers(), &CONTENT_TYPE)?
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if bytes.is_empty() || essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        Code::UnsupportedMediaType,
        format!("the body must come with `Content-Type: application/json`, not {media_type:?}"),
    ))
}
