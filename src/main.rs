//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use payonce::commands::{Fatal, api_key, audit, cleanup, log, serve};
use payonce::config::{DatabaseArgs, ServeArgs};
use payonce::{http, storage};

/// The payment service that never charges twice.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Write the log as JSON lines
    #[arg(long, env, global = true)]
    log_json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring the schema up to date, then serve HTTP until SIGTERM or SIGINT
    Serve(Box<ServeArgs>),
    /// Bring the schema up to date
    Migrate(DatabaseArgs),
    /// Make, list and revoke API keys
    ApiKey {
        #[command(flatten)]
        database: DatabaseArgs,
        #[command(subcommand)]
        command: api_key::ApiKeyCommand,
    },
    /// Prove the books; exit status 1 if anything is wrong, 2 if that could not be found out
    Audit {
        #[command(flatten)]
        database: DatabaseArgs,
        /// Print one JSON document: each law, the rows that were checked, and the first that breaks it
        #[arg(long)]
        json: bool,
    },
    /// Erase expired responses and delete old tombstones, once
    Cleanup(DatabaseArgs),
    /// Print the OpenAPI document
    Openapi,
}

fn main() -> ExitCode {
    let cli = parse();
    log::start(cli.log_json);
    match run(cli.command) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("payonce: {}", api_key::hide_keys(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        let said = error.render().to_string();
        let hidden = api_key::hide_keys(&said);
        if hidden == said {
            error.exit();
        }
        eprint!("{hidden}");
        std::process::exit(error.exit_code())
    })
}

fn run(command: Command) -> Result<ExitCode, Fatal> {
    match command {
        Command::Serve(args) => end_at_once(serve::run(&args)),
        Command::Migrate(database) => {
            for migration in storage::run_migrations(&database.settings())? {
                println!("{migration}");
            }
        }
        Command::ApiKey { database, command } => api_key::run(&database.settings(), &command)?,
        Command::Audit { database, json } => return Ok(audit::run(&database.settings(), json)),
        Command::Cleanup(database) => cleanup::run(&database.settings())?,
        Command::Openapi => print!("{}", http::openapi::json()?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends `serve`, of which all work is done, without the exit handlers of C libraries. Threads that nobody waits for (those of
/// the read pool, the one that listens for revoked API keys) may be inside libpq at this moment, and OpenSSL's handler
/// frees what they use: a clean stop would now and then be a segmentation fault.
fn end_at_once(outcome: Result<(), Fatal>) -> ! {
    let status = match outcome {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("payonce: {error}");
            1
        }
    };
    signal_hook::low_level::exit(status)
}
