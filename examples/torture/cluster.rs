//! Throw-away servers that may be killed, frozen and failed over: PostgreSQL, alone or with a standby, and Redis.
//!
//! They listen on the loopback only, and end with this program, whichever way it ends: a guard waits for a pipe to be
//! closed, which the kernel does even after `kill -9`, then kills what belongs to the server and removes its folder.
//! The log stays beside the folder.

mod redis;
mod server;

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::unistd::{Pid, User, geteuid};
use tokio::process::Command;
use uuid::Uuid;

pub use self::redis::RedisServer;
use self::server::{LIMIT, Server, in_path, run, send, until};
use crate::Outcome;

/// When a primary that has a standby acknowledges a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commits {
    /// When the standby has it on its disk, too. (`remote_apply` would wait until it can be read there as well; nobody reads
    /// there, and a promotion applies all that is on the disk first.)
    WaitForStandby,
    /// When it has it on its own disk: what it acknowledged last may be lost with it.
    DoNotWait,
}

/// A throw-away PostgreSQL.
pub struct Cluster {
    server: Server,
    programs: PathBuf,
    password: String,
    /// Whom it runs as, if that is not the caller: PostgreSQL refuses to run as root.
    user: Option<User>,
}

impl Cluster {
    /// Makes one in `folder` and starts it.
    pub async fn start(folder: &Path) -> Outcome<Self> {
        let mut cluster = Self::new(folder, Uuid::new_v4().simple().to_string())?;
        let password_file = cluster.server.folder.with_extension("password");
        fs::write(&password_file, &cluster.password)?;
        cluster.give(&password_file)?;
        let pwfile = format!("--pwfile={}", password_file.display());
        let made = cluster
            .tool(
                "initdb",
                &[
                    &pwfile,
                    "--auth=scram-sha-256",
                    "--username=postgres",
                    "--encoding=UTF8",
                    "--locale=C.UTF-8",
                    "--no-sync", // of what initdb writes; the server itself does
                    "--pgdata=.",
                ],
            )
            .await;
        fs::remove_file(password_file)?;
        made?;
        cluster.restart().await?;
        Ok(cluster)
    }

    /// Makes one in `folder` that follows `primary`, and starts it.
    pub async fn standby_of(primary: &Self, folder: &Path, commits: Commits) -> Outcome<Self> {
        let mut standby = Self::new(folder, primary.password.clone())?;
        standby.follow(primary, commits).await?;
        Ok(standby)
    }

    /// Becomes a standby of `primary`, where it listens now. What it was before is gone; it must not run any more.
    pub async fn follow(&mut self, primary: &Self, commits: Commits) -> Outcome {
        self.server.empty_folder()?;
        self.password.clone_from(&primary.password);
        let name = format!("standby_{}", self.server.address.port());
        let connection = format!(
            "host=127.0.0.1 port={} user=postgres application_name={name}",
            primary.server.address.port()
        );
        let slot = format!("--slot={name}");
        self.tool(
            "pg_basebackup",
            &[
                "--dbname",
                &connection,
                &slot,
                "--create-slot",
                "--wal-method=stream",
                "--write-recovery-conf",
                "--checkpoint=fast",
                "--no-sync",
                "--pgdata=.",
            ],
        )
        .await?;
        self.restart().await?;
        let followed_as = match commits {
            Commits::WaitForStandby => {
                let wait_for = format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'");
                primary.sql(&wait_for).await?;
                primary.sql("SELECT pg_reload_conf()").await?;
                "sync"
            }
            Commits::DoNotWait => "async",
        };
        let followers = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '{followed_as}'"
        );
        until(
            "the standby follows",
            async || Ok(primary.sql(&followers).await? == "1"),
        )
        .await
    }

    fn new(folder: &Path, password: String) -> Outcome<Self> {
        let programs = programs()?;
        let user = if geteuid().is_root() {
            Some(User::from_name("postgres")?.ok_or("root can't run PostgreSQL, and there is no user postgres")?)
        } else {
            None
        };
        let cluster = Self {
            server: Server::new(folder, &programs.join("postgres"))?,
            programs,
            password,
            user,
        };
        cluster.give(&cluster.server.folder)?;
        Ok(cluster)
    }

    /// Lets the server's user have the file.
    fn give(&self, path: &Path) -> Outcome {
        fs::set_permissions(path, Permissions::from_mode(if path.is_dir() { 0o700 } else { 0o600 }))?;
        if let Some(user) = &self.user {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        Ok(())
    }

    /// Makes the standby a primary of its own, without a standby.
    pub async fn promote(&self) -> Outcome {
        let promoted = format!("SELECT pg_promote(true, {})", LIMIT.as_secs());
        if self.sql(&promoted).await? == "t" {
            Ok(())
        } else {
            Err("the promotion takes too long".into())
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// The superuser's URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres:{}@{}/{database}", self.password, self.address())
    }

    /// One URL for several clusters of which one is the primary, as a client wants it that follows a fail-over.
    pub fn url_of_primary(clusters: [&Self; 2], database: &str) -> String {
        let [one, other] = clusters;
        format!(
            "postgres://postgres:{}@{},{}/{database}?target_session_attrs=read-write",
            one.password,
            one.address(),
            other.address()
        )
    }

    /// What it has to say; the file stays when the cluster is removed.
    pub fn log(&self) -> &Path {
        &self.server.log
    }

    /// Creates a database, and tells its URL.
    pub async fn create_database(&self, name: &str) -> Outcome<String> {
        self.sql(&format!("CREATE DATABASE \"{name}\"")).await?;
        Ok(self.url(name))
    }

    /// Runs a statement in the database `postgres`, and gives what it prints.
    pub async fn sql(&self, statement: &str) -> Outcome<String> {
        self.sql_in("postgres", statement).await
    }

    /// Runs a statement in another database.
    pub async fn sql_in(&self, database: &str, statement: &str) -> Outcome<String> {
        let url = self.url(database);
        self.tool("psql", &["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", statement])
            .await
    }

    /// `pg_ctl stop -m immediate`: it ends at once, and recovers at the next start.
    pub async fn stop_immediate(&mut self) -> Outcome {
        send(self.server.main_process()?, Signal::SIGQUIT)?;
        self.server.until_gone().await
    }

    /// `kill -9` of the postmaster and all its children, as if the machine had lost its power.
    pub async fn kill_9(&mut self) -> Outcome {
        self.server.signal_all(Signal::SIGKILL)?;
        self.server.until_gone().await?;
        self.server.remove_segment().await;
        Ok(())
    }

    /// `kill -9` of one session of the database: PostgreSQL ends all others, and recovers. Was there a session?
    pub async fn kill_9_session(&mut self, database: &str) -> Outcome<bool> {
        let sessions = format!(
            "SELECT pid FROM pg_stat_activity WHERE datname = '{database}' AND pid <> pg_backend_pid()
             ORDER BY random() LIMIT 1"
        );
        let Ok(session) = self.sql(&sessions).await?.parse().map(Pid::from_raw) else {
            return Ok(false);
        };
        let main = self.server.main_process()?;
        let mut ended = self.server.processes()?;
        ended.retain(|pid| *pid != main);
        if !ended.contains(&session) {
            return Ok(false);
        }
        send(session, Signal::SIGKILL)?;
        until("PostgreSQL has ended all sessions", async || {
            Ok(!self.server.processes()?.iter().any(|pid| ended.contains(pid)))
        })
        .await?;
        self.until_ready().await?;
        Ok(true)
    }

    /// Nothing of it moves any more, and nothing is closed: a machine that hangs.
    pub fn freeze(&self) -> Outcome {
        self.server.signal_all(Signal::SIGSTOP)
    }

    /// It goes on.
    pub fn thaw(&self) -> Outcome {
        self.server.signal_all(Signal::SIGCONT)
    }

    /// Starts it, if need be after a stop, and waits until it answers.
    pub async fn restart(&mut self) -> Outcome {
        if self.server.main.is_some() {
            self.stop_immediate().await?;
        }
        let port = self.server.address.port();
        let mut command = self.command("postgres");
        command.args(["-D", "."]);
        for setting in [
            format!("port={port}"),
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=".to_owned(),
            "fsync=on".to_owned(),
            "synchronous_commit=on".to_owned(),
            "full_page_writes=on".to_owned(),
            "max_connections=200".to_owned(),
            // In the folder, and so removed with it.
            "dynamic_shared_memory_type=mmap".to_owned(),
            // Before a recovery all files are synced: at once, and not one by one, which takes seconds.
            "recovery_init_sync_method=syncfs".to_owned(),
            // How soon a standby looks again for a primary that was away.
            "wal_retrieve_retry_interval=200ms".to_owned(),
        ] {
            command.args(["-c", &setting]);
        }
        self.server.start(command)?;
        self.until_ready().await
    }

    /// Waits until it answers.
    pub async fn until_ready(&mut self) -> Outcome {
        let port = self.server.address.port().to_string();
        until("PostgreSQL answers", async || {
            self.server.check_alive()?;
            let arguments = ["-h", "127.0.0.1", "-p", &port];
            Ok(self.tool("pg_isready", &arguments).await.is_ok())
        })
        .await
    }

    /// One of PostgreSQL's programs, in the folder, as the server's user. The caller's PGHOST, PGOPTIONS and the like are
    /// not meant for this server, and its locale may never have been generated.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("LC_ALL", "C.UTF-8")
            .env("PGPASSWORD", &self.password)
            .env("PGCONNECT_TIMEOUT", "10")
            .current_dir(&self.server.folder);
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }

    /// Runs a program to its end, and gives what it prints.
    async fn tool(&self, program: &str, arguments: &[&str]) -> Outcome<String> {
        let mut command = self.command(program);
        run(program, command.args(arguments)).await
    }
}

/// The folder of PostgreSQL's programs: Debian's of the newest version, which is in nobody's `PATH`, or else `PATH`'s.
fn programs() -> Outcome<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter(|entry| entry.path().join("bin/initdb").is_file())
        .max_by_key(|entry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    let debian = newest.map(|entry| entry.path().join("bin"));
    let other = || Some(in_path("initdb")?.parent()?.to_owned());
    debian
        .or_else(other)
        .ok_or_else(|| "there is no initdb (Debian: postgresql)".into())
}
