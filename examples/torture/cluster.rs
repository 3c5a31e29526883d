//! Throw-away servers that may be killed, frozen and failed over: PostgreSQL, alone or with a synchronous standby, and
//! Redis.
//!
//! They listen on the loopback only, and end with this program, whichever way it ends: a guard waits for a pipe to be
//! closed, which the kernel does even after `kill -9`, then kills what belongs to the server and removes its folder.
//! The log stays beside the folder.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::Outcome;

/// A start takes seconds, recovery after a crash included. A busy CI machine may need many times that.
const LIMIT: Duration = Duration::from_mins(2);

/// How often is looked whether it has happened.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits for the end of this program, then removes the server in the folder `$1`, whose program is `$2`.
/// PostgreSQL's one System V segment outlives a `kill -9`; the seventh line of postmaster.pid ends with its id.
const GUARD: &str = r#"
cat >/dev/null
processes() {
  find /proc/[0-9]*/cwd -maxdepth 0 -lname "$1" 2>/dev/null | while IFS=/ read -r _ _ pid _; do
    if [ "/proc/$pid/exe" -ef "$2" ]; then echo "$pid"; fi
  done
}
while pids=$(processes "$1" "$2"); [ -n "$pids" ]; do
  kill -9 $pids
  sleep 0.05
done
segment=$(sed -n '7s/.* //p' "$1/postmaster.pid" 2>/dev/null)
[ -z "$segment" ] || ipcrm -m "$segment" 2>/dev/null
rm -rf "$1"
"#;

/// One server: a folder, the processes that work in it, and their guard.
struct Server {
    folder: PathBuf,
    program: PathBuf,
    log: PathBuf,
    address: SocketAddr,
    /// The first process; all others are its children.
    main: Option<Child>,
    guard: std::process::Child,
}

impl Server {
    /// Makes the folder, which must not be there yet.
    fn new(folder: &Path, program: &Path) -> Outcome<Self> {
        fs::create_dir_all(folder.parent().ok_or("a server needs a folder of its own")?)?;
        fs::create_dir(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        // As the kernel tells them of a process.
        let (folder, program) = (folder.canonicalize()?, program.canonicalize()?);
        let guard = std::process::Command::new("sh")
            .args([OsStr::new("-c"), GUARD.as_ref(), "guard".as_ref()])
            .args([&folder, &program])
            .stdin(Stdio::piped())
            // Ctrl-C is for this program, which then closes the pipe.
            .process_group(0)
            .spawn()?;
        Ok(Self {
            log: folder.with_extension("log"),
            address: free_address()?,
            main: None,
            folder,
            program,
            guard,
        })
    }

    fn start(&mut self, mut command: Command) -> Outcome {
        let log = self.log_file()?;
        let command = command
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.main = Some(command.process_group(0).spawn()?);
        Ok(())
    }

    fn log_file(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(&self.log)
    }

    /// A process belongs to the server if it runs its program in its folder; every PostgreSQL process does.
    fn processes(&self) -> io::Result<Vec<Pid>> {
        let links_to = |link: PathBuf, target: &Path| fs::read_link(link).is_ok_and(|found| found == target);
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let process = entry.path();
            if links_to(process.join("cwd"), &self.folder) && links_to(process.join("exe"), &self.program) {
                found.push(Pid::from_raw(pid));
            }
        }
        Ok(found)
    }

    /// Sends the signal to all processes, also to those that are born meanwhile.
    fn signal_all(&self, signal: Signal) -> Outcome {
        let mut reached = Vec::new();
        loop {
            let mut fresh = self.processes()?;
            fresh.retain(|pid| !reached.contains(pid));
            if fresh.is_empty() {
                return Ok(());
            }
            for pid in fresh {
                send(pid, signal)?;
                reached.push(pid);
            }
        }
    }

    fn signal_main(&self, signal: Signal) -> Outcome {
        let main = self.main.as_ref().and_then(Child::id).ok_or("it does not run")?;
        send(Pid::from_raw(main.try_into()?), signal)
    }

    async fn until_gone(&mut self) -> Outcome {
        if let Some(mut main) = self.main.take() {
            timeout(LIMIT, main.wait()).await??;
        }
        until("all processes of a server are gone", async || {
            Ok(self.processes()?.is_empty())
        })
        .await
    }

    /// Did the first process end while it was starting?
    fn check_alive(&mut self) -> Outcome {
        match self.main.as_mut().map(Child::try_wait).transpose()?.flatten() {
            Some(status) => Err(format!("the server ended ({status}); its log is {}", self.log.display()).into()),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // Until all is removed: what runs next may want the place.
        drop(self.guard.wait());
    }
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

    /// Makes a standby in `folder` that follows `primary`, and starts it. From now on the primary acknowledges a commit
    /// only when the standby has it on its disk, too. (`remote_apply` would wait until it can be read there as well;
    /// nobody reads there, and a promotion applies all that is on the disk first.)
    pub async fn standby_of(primary: &Self, folder: &Path) -> Outcome<Self> {
        let mut standby = Self::new(folder, primary.password.clone())?;
        let name = format!("standby_{}", standby.server.address.port());
        let connection = format!(
            "host=127.0.0.1 port={} user=postgres application_name={name}",
            primary.server.address.port()
        );
        let slot = format!("--slot={name}");
        standby
            .tool(
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
        standby.restart().await?;
        primary.wait_for_standby(&name).await?;
        Ok(standby)
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

    async fn wait_for_standby(&self, name: &str) -> Outcome {
        self.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"))
            .await?;
        self.sql("SELECT pg_reload_conf()").await?;
        let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'";
        until("the standby is synchronous", async || {
            Ok(self.sql(synchronous).await? == "1")
        })
        .await
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
        let url = self.url("postgres");
        self.tool("psql", &["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", statement])
            .await
    }

    /// `pg_ctl stop -m immediate`: it ends at once, and recovers at the next start.
    pub async fn stop_immediate(&mut self) -> Outcome {
        self.server.signal_main(Signal::SIGQUIT)?;
        self.server.until_gone().await
    }

    /// `kill -9` of the postmaster and all its children, as if the machine had lost its power.
    pub async fn kill_9(&mut self) -> Outcome {
        self.server.signal_all(Signal::SIGKILL)?;
        self.server.until_gone().await
    }

    /// `kill -9` of one session of the database; PostgreSQL then restarts all of itself. Was there a session?
    pub async fn kill_9_session(&self, database: &str) -> Outcome<bool> {
        let sessions = format!(
            "SELECT pid FROM pg_stat_activity WHERE datname = '{database}' AND pid <> pg_backend_pid()
             ORDER BY random() LIMIT 1"
        );
        let Ok(pid) = self.sql(&sessions).await?.parse().map(Pid::from_raw) else {
            return Ok(false);
        };
        let ours = self.server.processes()?.contains(&pid);
        if ours {
            send(pid, Signal::SIGKILL)?;
        }
        Ok(ours)
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

async fn run(name: &str, command: &mut Command) -> Outcome<String> {
    let output = timeout(LIMIT, command.stdin(Stdio::null()).kill_on_drop(true).output()).await??;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?.trim().to_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Err(format!("{name} failed ({}): {}", output.status, said.trim()).into())
}

async fn until(what: &str, mut so: impl AsyncFnMut() -> Outcome<bool>) -> Outcome {
    let deadline = Instant::now() + LIMIT;
    while !so().await? {
        if Instant::now() > deadline {
            return Err(format!("waited {} s in vain until {what}", LIMIT.as_secs()).into());
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// To a process that may have ended meanwhile.
fn send(pid: Pid, signal: Signal) -> Outcome {
    match kill(pid, signal) {
        Ok(()) | Err(nix::Error::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A port that nobody listens on, from below the range that the kernel hands out to outgoing connections: while a server
/// is down, none of them takes its port.
fn free_address() -> Outcome<SocketAddr> {
    for _ in 0..1000 {
        let port = u16::try_from(20_000 + Uuid::new_v4().as_u128() % 10_000)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err("there is no free port between 20000 and 29999".into())
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

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.find(|candidate| candidate.is_file())
}
