//! The release binary: its subcommands, and instances of `payonce serve` that end with this program.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::Outcome;

/// A start takes less than a second. A busy CI machine may need many times that.
const START_LIMIT: Duration = Duration::from_mins(1);

/// For subcommands and shell commands, which are done in less than a second too.
pub const COMMAND_LIMIT: Duration = Duration::from_mins(1);

/// An audit takes about a minute for each million transfers.
const AUDIT_LIMIT: Duration = Duration::from_mins(30);

/// Waits for the end of this program, whichever way it comes, `kill -9` included; then ends the process `$1`, if it still is one of `$2`.
const GUARD: &str = r#"cat >/dev/null; if [ "/proc/$1/exe" -ef "$2" ]; then kill -9 "$1"; fi"#;

/// The binary, and where the logs of its instances go.
pub struct Payonce {
    binary: PathBuf,
    logs: PathBuf,
}

impl Payonce {
    /// `PAYONCE_BIN`, or the binary that cargo has put one folder above this example.
    pub fn find(logs: PathBuf) -> Outcome<Self> {
        let beside = |example: &Path| Some(example.parent()?.parent()?.join("payonce"));
        let binary = match std::env::var_os("PAYONCE_BIN") {
            Some(path) => Some(PathBuf::from(path)),
            None => beside(&std::env::current_exe()?),
        };
        match binary {
            Some(binary) if binary.is_file() => Ok(Self { binary, logs }),
            other => Err(
                format!("there is no payonce at {other:?}: `make demo` builds it, PAYONCE_BIN names another").into(),
            ),
        }
    }

    /// Proves the books; are they right, and what did it print?
    pub async fn audit(&self, database_url: &str) -> Outcome<(bool, String)> {
        self.run_within(AUDIT_LIMIT, &["audit"], database_url).await
    }

    /// What the instances have logged so far.
    pub fn logs(&self) -> Outcome<Vec<String>> {
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(&self.logs)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                logs.push(String::from_utf8_lossy(&std::fs::read(path)?).into_owned());
            }
        }
        Ok(logs)
    }

    /// Runs a subcommand; did it exit with 0, and what did it print?
    pub async fn run(&self, arguments: &[&str], database_url: &str) -> Outcome<(bool, String)> {
        self.run_within(COMMAND_LIMIT, arguments, database_url).await
    }

    async fn run_within(&self, limit: Duration, arguments: &[&str], database_url: &str) -> Outcome<(bool, String)> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env("DATABASE_URL", database_url);
        let output = timeout(limit, command.kill_on_drop(true).output()).await??;
        let good = output.status.success();
        let printed = if good {
            output.stdout
        } else {
            [output.stdout, output.stderr].concat()
        };
        Ok((good, String::from_utf8_lossy(&printed).trim().to_owned()))
    }

    /// What a subcommand prints; an error if it fails.
    pub async fn ask(&self, arguments: &[&str], database_url: &str) -> Outcome<String> {
        match self.run(arguments, database_url).await? {
            (true, printed) => Ok(printed),
            (false, printed) => Err(printed.into()),
        }
    }

    /// Starts an instance and waits until it listens.
    pub async fn serve(&self, name: &str, settings: &[(&str, &str)]) -> Outcome<Instance> {
        let log = self.logs.join(format!("{name}.log"));
        let mut child = Command::new(&self.binary)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .envs(settings.iter().map(|(name, value)| (name, OsString::from(value))))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(OpenOptions::new().create(true).append(true).open(&log)?)
            // Also when this program panics or is interrupted.
            .kill_on_drop(true)
            .spawn()?;
        let guard = self.guard(child.id().ok_or("it has ended already")?)?;
        let stdout = child.stdout.take().ok_or("its stdout is not a pipe")?;
        let mut stdout = BufReader::new(stdout).lines();
        let first_line = timeout(START_LIMIT, stdout.next_line()).await??;
        let url = first_line.as_deref().and_then(address);
        let url =
            url.ok_or_else(|| format!("instance {name} did not start; its last words are in {}", log.display()))?;
        Ok(Instance {
            url,
            child,
            _stdout: stdout,
            _guard: guard,
        })
    }

    fn guard(&self, process: u32) -> Outcome<Child> {
        let mut command = Command::new("sh");
        command
            .args(["-c", GUARD, "guard", &process.to_string()])
            .arg(&self.binary);
        // Ctrl-C is for this program, whose end closes the pipe.
        Ok(command.stdin(Stdio::piped()).process_group(0).spawn()?)
    }
}

/// From `payonce listens on http://127.0.0.1:4711, Swagger UI on …`.
fn address(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("http://")?;
    let (address, _) = rest.split_once(',')?;
    Some(format!("http://{address}"))
}

/// A running `payonce serve`.
pub struct Instance {
    /// Where it listens.
    pub url: String,
    child: Child,
    /// It would fail to print into a closed pipe.
    _stdout: Lines<BufReader<ChildStdout>>,
    /// Holds the pipe that it waits at.
    _guard: Child,
}

impl Instance {
    /// Its process id; `None` once it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// `kill -9`; returns when the process is gone.
    pub async fn kill(&mut self) -> Outcome {
        Ok(self.child.kill().await?)
    }
}
