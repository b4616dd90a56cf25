//! `fatflow completions`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::terminal::{Ending, Stop, Terminal};

/// Print completions for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  fatflow completions bash > ~/.local/share/bash-completion/completions/fatflow
  fatflow completions zsh > ~/.zfunc/_fatflow
  fatflow completions fish > ~/.config/fish/completions/fatflow.fish

They complete commands and flags, and in bash and fish names of presets, files and keys too.")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(required_unless_present = "list")]
    shell: Option<Shell>,
    /// Print what can be completed, one on a line
    #[arg(long, hide = true, value_parser = ["presets", "keys"])]
    list: Option<String>,
}

impl Arguments {
    pub(crate) fn run(&self, terminal: &Terminal) -> Result<Ending, Stop> {
        terminal.only_text("a script")?;
        let text = match (self.list.as_deref(), self.shell) {
            (Some("keys"), _) => lines(scenario::schema().keys().into_iter().map(|key| key.path)),
            (Some(_), _) => lines(scenario::preset::names().map(str::to_owned)),
            (None, Some(shell)) => script(shell),
            (None, None) => String::new(),
        };
        terminal.write(&text)?;
        Ok(Ending::Done)
    }
}

fn lines(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.filter(|word| !word.contains('*')).collect();
    words.dedup();
    words.join("\n") + "\n"
}

/// What clap makes of the flags, and names below it.
fn script(shell: Shell) -> String {
    let mut command = crate::arguments::Arguments::command();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "fatflow", &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    text += match shell {
        Shell::Bash => BASH,
        Shell::Fish => FISH,
        _ => "",
    };
    text
}

/// Names of presets, files and keys, over what clap has made.
const BASH: &str = r#"
# Names of presets, files and keys.
_fatflow_names() {
    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"
    case "$before" in
        --set|--vary)
            compopt -o nospace 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -S = -W "$(fatflow completions --list keys)" -- "$current")
            return ;;
        explain)
            mapfile -t COMPREPLY < <(compgen -W "$(fatflow completions --list keys)" -- "$current")
            return ;;
    esac
    _fatflow "$@"
    case "$current" in -*) return ;; esac
    case "${COMP_WORDS[1]}" in
        run|topo|traffic|collective|compare|check|init|advise|place|live)
            compopt -o filenames 2>/dev/null
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(
                compgen -W "$(fatflow completions --list presets)" -- "$current"
                compgen -f -- "$current") ;;
    esac
}
complete -F _fatflow_names -o bashdefault -o default fatflow
"#;

/// The same for fish, which completes files by itself.
const FISH: &str = r#"
# Names of presets and keys.
complete -c fatflow -n "__fish_seen_subcommand_from run topo traffic collective compare check init advise place live" -a "(fatflow completions --list presets)"
complete -c fatflow -l set -x -a "(fatflow completions --list keys)="
complete -c fatflow -n "__fish_seen_subcommand_from explain" -f -a "(fatflow completions --list keys)"
"#;
