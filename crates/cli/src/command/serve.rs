//! `fatflow serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use commands::Failure;
use serve::Options;
use serve::users::Role;

use crate::terminal::{Ending, Stop, Terminal};

/// Work in the browser: edit, run, look and compare, on this machine
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow serve                               then open http://127.0.0.1:8471/
  fatflow serve --workspace ~/fabrics --listen 127.0.0.1:9000
  fatflow serve --listen 0.0.0.0:8471 --token \"$(openssl rand -hex 16)\"
  fatflow serve --users team.toml --new-user ana --expires 2027-01-31   prints ana's token
  fatflow serve --users team.toml --proxy --host fabrics.example        behind a proxy with TLS

Runs and their results are kept in fatflow.redb in the workspace folder and survive a restart.
Nothing outside the workspace is read. Every run and check is a child process with limits; SIGTERM
and Ctrl-C end the server and all of them. Settings of the environment (FATFLOW_SET_…) hold for
every check and every run.")]
pub(crate) struct Arguments {
    /// The address to listen on; anything but loopback needs a token
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8471")]
    listen: SocketAddr,
    /// The folder that holds runs and results
    #[arg(long, value_name = "FOLDER", default_value = "fatflow-workspace")]
    workspace: PathBuf,
    /// What clients must know: add ?token=… to the address once
    #[arg(long, env = "FATFLOW_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// A file of people, each with a token, a role and limits; read again when it changes
    #[arg(long, value_name = "FILE.toml", conflicts_with = "token")]
    users: Option<PathBuf>,
    /// Add somebody to the file of people, print the token, and end
    #[arg(long, value_name = "NAME", requires = "users")]
    new_user: Option<String>,
    /// Whether the new person may look or run
    #[arg(long, value_name = "look|run", requires = "new_user", default_value = "run", value_parser = ["look", "run"])]
    role: String,
    /// The last day of the new person's token, such as 2027-01-31 [default: none]
    #[arg(long, value_name = "DAY", requires = "new_user")]
    expires: Option<String>,
    /// Requests come through a proxy that adds X-Forwarded-For and X-Forwarded-Proto
    #[arg(long)]
    proxy: bool,
    /// Runs that compute at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    runs: u16,
    /// Another name by which clients know this server, such as one of the DNS; may be given
    /// several times
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Memory that one run may use [default: half of what the machine has, shared by --runs]
    #[arg(long, value_name = "BYTES")]
    memory: Option<units::Bytes>,
    /// Processors that one run may use [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    processors: Option<u16>,
    /// Seconds after which a run is stopped
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = clap::value_parser!(u32).range(1..))]
    run_seconds: u32,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        terminal.only_text("where it listens")?;
        let failed = |error: std::io::Error| Failure::Run(format!("cannot serve: {error}"));
        if let (Some(name), Some(users)) = (&self.new_user, &self.users) {
            let role = if self.role == "look" { Role::Look } else { Role::Run };
            let added = serve::users::add(users, name, role, self.expires.as_deref());
            let token = added.map_err(failed)?;
            terminal.write(&format!("{token}\n"))?;
            return Ok(terminal.ending());
        }
        let program = std::env::current_exe().map_err(failed)?;
        std::fs::create_dir_all(&self.workspace).map_err(failed)?;
        let workspace = self.workspace.canonicalize().map_err(failed)?;
        let mut options = Options::new(workspace, program);
        options.listen = self.listen;
        options.token.clone_from(&self.token);
        options.users.clone_from(&self.users);
        options.proxy = self.proxy;
        options.max_runs = self.runs.into();
        options.run_memory /= u64::from(self.runs);
        options.hosts.clone_from(&self.host);
        options.run_timeout = Duration::from_secs(self.run_seconds.into());
        if let Some(memory) = self.memory {
            options.run_memory = memory.get();
        }
        if let Some(processors) = self.processors {
            options.processors = processors.into();
        }
        terminal.name_unused();
        let started = |address: SocketAddr| {
            // If standard output is closed, the address is known already.
            let _ = terminal.write(&format!("fatflow serves at http://{address}/\n"));
        };
        let until = std::future::pending();
        let served = terminal.interrupt.heeded(|| serve::serve(options, started, until));
        served.map_err(failed)?;
        Ok(terminal.ending())
    }
}
