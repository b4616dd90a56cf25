//! `fatflow serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use commands::Failure;
use serve::Options;

use crate::terminal::{Ending, Stop, Terminal};

/// Work in the browser: edit, run, look and compare, on this machine
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow serve                               then open http://127.0.0.1:8471/
  fatflow serve --workspace ~/fabrics --listen 127.0.0.1:9000
  fatflow serve --listen 0.0.0.0:8471 --token \"$(openssl rand -hex 16)\"

Runs and their results are kept in fatflow.redb in the workspace folder and survive a restart.
Nothing outside the workspace is read.")]
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
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        terminal.only_text("where it listens")?;
        let failed = |error: std::io::Error| Failure::Run(format!("cannot serve: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        std::fs::create_dir_all(&self.workspace).map_err(failed)?;
        let workspace = self.workspace.canonicalize().map_err(failed)?;
        let mut options = Options::new(workspace, program);
        options.listen = self.listen;
        options.token.clone_from(&self.token);
        let started = |address: SocketAddr| {
            // If standard output is closed, the address is known already.
            let _ = terminal.write(&format!("fatflow serves at http://{address}/\n"));
        };
        serve::serve(options, started, std::future::pending()).map_err(failed)?;
        Ok(Ending::Done)
    }
}
