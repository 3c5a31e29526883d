//! A throw-away Redis.

use std::net::SocketAddr;
use std::path::Path;

use nix::sys::signal::Signal;
use tokio::process::Command;

use super::server::{Server, in_path, run, until};
use crate::Outcome;

/// A throw-away Redis.
pub struct RedisServer {
    server: Server,
}

impl RedisServer {
    /// Starts one in `folder`.
    pub async fn start(folder: &Path) -> Outcome<Self> {
        // One binary goes by several names, and takes its role from the name it is called by. Debian's redis-tools has
        // it as redis-check-rdb, so the package redis-server, which would start a service, need not be installed.
        let program = in_path("redis-server").or_else(|| in_path("redis-check-rdb"));
        let program = program.ok_or("there is no redis-server (Debian: redis-tools has it too)")?;
        let mut redis = Self {
            server: Server::new(folder, &program)?,
        };
        redis.restart().await?;
        Ok(redis)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// `kill -9`.
    pub async fn kill(&mut self) -> Outcome {
        self.server.signal_all(Signal::SIGKILL)?;
        self.server.until_gone().await
    }

    /// It keeps its connections, and says nothing any more.
    pub fn freeze(&self) -> Outcome {
        self.server.signal_all(Signal::SIGSTOP)
    }

    /// It goes on.
    pub fn thaw(&self) -> Outcome {
        self.server.signal_all(Signal::SIGCONT)
    }

    /// Starts it, empty, if need be after a kill, and waits until it answers.
    pub async fn restart(&mut self) -> Outcome {
        if self.server.main.is_some() {
            self.kill().await?;
        }
        let port = self.server.address.port().to_string();
        let mut command = Command::new(&self.server.program);
        command
            .arg0("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port]);
        command.args(["--save", "", "--appendonly", "no"]);
        self.server.start(command)?;
        until("Redis answers", async || {
            self.server.check_alive()?;
            Ok(self.cli(&["ping"]).await.is_ok())
        })
        .await
    }

    /// `redis-cli ARGUMENT…`: what it prints.
    pub async fn cli(&self, arguments: &[&str]) -> Outcome<String> {
        let port = self.server.address.port().to_string();
        let mut command = Command::new("redis-cli");
        command.args(["-e", "-h", "127.0.0.1", "-p", &port]).args(arguments);
        run("redis-cli", &mut command).await
    }
}
