//! A server in a folder of its own, which goes away with it, whichever way this program ends.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::Outcome;

/// A start takes seconds, recovery after a crash included. A busy CI machine may need many times that.
pub const LIMIT: Duration = Duration::from_mins(2);

/// How often is looked whether it has happened.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits for the end of this program, then removes the server in the folder `$1`, whose program is `$2`. The segment is
/// what [`Server::remove_segment`] knows of.
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
pub struct Server {
    pub folder: PathBuf,
    pub program: PathBuf,
    pub log: PathBuf,
    pub address: SocketAddr,
    /// The first process; all others are its children.
    pub main: Option<Child>,
    guard: std::process::Child,
}

impl Server {
    /// Makes the folder, which must not be there yet.
    pub fn new(folder: &Path, program: &Path) -> Outcome<Self> {
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

    pub fn start(&mut self, mut command: Command) -> Outcome {
        let log = self.log_file()?;
        let command = command
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.main = Some(command.process_group(0).spawn()?);
        Ok(())
    }

    pub fn log_file(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(&self.log)
    }

    /// A process belongs to the server if it runs its program in its folder; every PostgreSQL process does.
    pub fn processes(&self) -> io::Result<Vec<Pid>> {
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
    pub fn signal_all(&self, signal: Signal) -> Outcome {
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

    pub fn main_process(&self) -> Outcome<Pid> {
        let main = self
            .main
            .as_ref()
            .and_then(Child::id)
            .ok_or("the server does not run")?;
        Ok(Pid::from_raw(main.try_into()?))
    }

    pub async fn until_gone(&mut self) -> Outcome {
        if let Some(mut main) = self.main.take() {
            timeout(LIMIT, main.wait()).await??;
        }
        until("all processes of a server are gone", async || {
            Ok(self.processes()?.is_empty())
        })
        .await
    }

    /// PostgreSQL's one System V segment outlives a `kill -9`; the seventh line of postmaster.pid ends with its id.
    pub async fn remove_segment(&self) {
        let pid_file = fs::read_to_string(self.folder.join("postmaster.pid")).unwrap_or_default();
        let segment = pid_file.lines().nth(6).and_then(|line| line.split_whitespace().last());
        if let Some(segment) = segment {
            // It may be gone already.
            drop(run("ipcrm", Command::new("ipcrm").args(["-m", segment])).await);
        }
    }

    pub fn empty_folder(&self) -> Outcome {
        if !self.processes()?.is_empty() {
            return Err("the server still runs".into());
        }
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Did the first process end while it was starting?
    pub fn check_alive(&mut self) -> Outcome {
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

pub async fn run(name: &str, command: &mut Command) -> Outcome<String> {
    let output = timeout(LIMIT, command.stdin(Stdio::null()).kill_on_drop(true).output()).await??;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?.trim().to_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Err(format!("{name} failed ({}): {}", output.status, said.trim()).into())
}

pub async fn until(what: &str, mut so: impl AsyncFnMut() -> Outcome<bool>) -> Outcome {
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
pub fn send(pid: Pid, signal: Signal) -> Outcome {
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

pub fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.find(|candidate| candidate.is_file())
}
