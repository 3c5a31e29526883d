//! Listens: connections with their limits, and the routes behind them.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::time::Duration;

use actix_http::HttpService;
use actix_server::{Server, ServerBuilder};
use actix_service::{IntoServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::App;
use actix_web::dev::AppConfig;
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::web::Data;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::socket::{HEAD_TIMEOUT, KEEP_ALIVE, Socket};
use super::{Service, envelope, routes};

/// Connections that wait to be accepted, while as many as may be are open.
const BACKLOG: i32 = 1024;

/// Connections of clients, unless a setting says otherwise.
const MOST_CONNECTIONS: usize = 4096;

/// Fewer make no service.
const FEWEST_CONNECTIONS: usize = 16;

/// Open files that are neither a client's nor PostgreSQL's: the log, the pollers, Redis, what a library opens for a moment.
const OTHER_FILES: usize = 64;

/// How long a connection that is being closed may take over it.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How the server behaves.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Where to listen: `host:port`.
    pub listen: String,
    /// Threads that talk HTTP.
    pub workers: usize,
    /// Most connections of clients; one more waits to be accepted. `None`: [`MOST_CONNECTIONS`], or fewer if the limit of open
    /// files is low.
    pub max_connections: Option<usize>,
    /// Connections to PostgreSQL, which must find room beside them.
    pub database_connections: usize,
    /// How long a stop waits for requests that are under way.
    pub shutdown_timeout: Duration,
}

/// Starts to listen; `stop` ends it. Where it listens, and the server to wait for.
///
/// # Errors
/// A sentence that names the setting.
pub fn start(
    settings: &ServerSettings,
    service: &Data<Service>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(Vec<SocketAddr>, Server), String> {
    let connections = make_room(settings.max_connections, settings.database_connections + OTHER_FILES)?;
    let failed = |error: io::Error| format!("LISTEN: can't listen on {}: {error}", settings.listen);
    let listeners = listen(&settings.listen).map_err(failed)?;
    let mut addresses = Vec::new();
    let mut builder = ServerBuilder::new()
        .workers(settings.workers)
        .max_concurrent_connections(connections.div_ceil(settings.workers))
        .shutdown_timeout(settings.shutdown_timeout.as_secs())
        .shutdown_signal(stop);
    let stopping = builder.graceful_shutdown_signal();
    for listener in listeners {
        addresses.push(listener.local_addr().map_err(failed)?);
        let (service, stopping) = (Data::clone(service), stopping.clone());
        let connections = move || {
            let (service, stopping) = (Data::clone(&service), stopping.clone());
            let app = App::new().app_data(service).wrap(from_fn(envelope)).configure(routes);
            let http = HttpService::build()
                .graceful_shutdown_signal(move || {
                    let stopping = stopping.clone();
                    async move { stopping.notified().await }
                })
                .keep_alive(KEEP_ALIVE)
                .client_request_timeout(HEAD_TIMEOUT)
                .client_disconnect_timeout(DISCONNECT_TIMEOUT)
                .on_connect_ext(|socket: &Socket<TcpStream>, shared| {
                    shared.insert(socket.activity.clone());
                })
                .h1(map_config(app.into_factory(), |()| AppConfig::default()));
            fn_service(async |stream: TcpStream| {
                let peer = stream.peer_addr().ok();
                Ok((Socket::new(stream), peer))
            })
            .and_then(http)
        };
        builder = builder.listen("http", listener, connections).map_err(failed)?;
    }
    Ok((addresses, builder.run()))
}

/// On each address that the name stands for.
fn listen(addresses: &str) -> io::Result<Vec<TcpListener>> {
    let bind = |address: SocketAddr| {
        let socket = match address {
            SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
            SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
        }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG.unsigned_abs())?.into_std()
    };
    let (listeners, failed): (Vec<_>, Vec<_>) = addresses.to_socket_addrs()?.map(bind).partition(Result::is_ok);
    // A machine without IPv6 has no `::1`, though `localhost` may stand for it.
    match failed.into_iter().next() {
        Some(error) if listeners.is_empty() => error.map(|_| Vec::new()),
        _ => listeners.into_iter().collect(),
    }
}

/// How many connections there may be beside so many other files. Raises the limit of open files as far as that needs and the
/// system allows. Without a limit below it, whoever opens connections takes from the service what it needs to reach its database.
fn make_room(wanted: Option<usize>, others: usize) -> Result<usize, String> {
    let files = wanted.unwrap_or(MOST_CONNECTIONS) + others;
    let limit = raise_file_limit(files);
    let room = limit.saturating_sub(others);
    match wanted {
        Some(wanted) if wanted > room => Err(format!(
            "MAX_CONNECTIONS: {wanted} connections need {files} open files, and the limit of this process is {limit}: set \
             {room} or fewer, or raise the limit (ulimit -n, LimitNOFILE=)"
        )),
        None if room < FEWEST_CONNECTIONS => Err(format!(
            "the limit of {limit} open files leaves no room for connections: raise it (ulimit -n, LimitNOFILE=)"
        )),
        Some(wanted) => Ok(wanted),
        None => {
            if room < MOST_CONNECTIONS {
                tracing::warn!(
                    limit,
                    connections = room,
                    "the limit of open files allows few connections"
                );
            }
            Ok(room.min(MOST_CONNECTIONS))
        }
    }
}

/// Raises the limit of open files to `files`, or as near as the system allows; the limit then.
fn raise_file_limit(files: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit at all.
    let number = |limit: Option<u64>| limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let raised = files.min(number(maximum));
    if raised <= number(current) {
        return number(current);
    }
    let new = Rlimit {
        current: u64::try_from(raised).ok(),
        maximum,
    };
    match setrlimit(Resource::Nofile, new) {
        Ok(()) => raised,
        Err(_) => number(current),
    }
}
