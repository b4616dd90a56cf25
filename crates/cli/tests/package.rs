//! The Debian package: made from this binary, unpacked, and what it installs is used.

use std::path::Path;
use std::process::Command;

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_package_installs_the_binary_its_completions_and_its_manual() {
    let binary = env!("CARGO_BIN_EXE_fatflow");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/deb.sh");
    let folder = tempfile::tempdir().unwrap();
    let mut make = Command::new(script);
    make.arg(folder.path()).env("FATFLOW_BINARY", binary).env("FATFLOW_DEB_COMPRESSOR", "none");
    let package = said(&mut make).trim().to_owned();
    assert!(package.ends_with("_amd64.deb"), "{package}");
    let fields = said(Command::new("dpkg-deb").args(["--field", &package]));
    let version = env!("CARGO_PKG_VERSION");
    assert!(fields.contains("Package: fatflow") && fields.contains(version), "{fields}");
    let root = folder.path().join("root");
    install(&package, &root);
    let installed = root.join("usr/bin/fatflow");
    let presets = said(Command::new(&installed).args(["presets", "--json"]));
    assert!(presets.contains("small-16"));
    let has = |path: &str| {
        let size = std::fs::metadata(root.join(Path::new(path))).map_or(0, |file| file.len());
        assert!(0 < size, "{path}");
    };
    has("usr/share/bash-completion/completions/fatflow");
    has("usr/share/zsh/vendor-completions/_fatflow");
    has("usr/share/fish/vendor_completions.d/fatflow.fish");
    has("usr/share/man/man1/fatflow.1.gz");
    has("usr/share/man/man1/fatflow-run.1.gz");
    has("usr/share/man/man1/fatflow-advise.1.gz");
    has("usr/share/doc/fatflow/copyright");
    assert!(said(Command::new(&installed).arg("--version")).contains(version));
    completes(&root);
}

/// Installs it with dpkg below a folder that has a database of its own.
fn install(package: &str, root: &Path) {
    let database = root.join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        std::fs::create_dir_all(database.join(folder)).unwrap();
    }
    for file in ["status", "available"] {
        std::fs::write(database.join(file), "").unwrap();
    }
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", root.display()));
    said(command.args(["--force-not-root", "--log=/dev/null", "--install", package]));
    let status = std::fs::read_to_string(database.join("status")).unwrap();
    assert!(status.contains("Status: install ok installed"), "{status}");
}

/// bash completes presets, files and keys with what was installed.
fn completes(root: &Path) {
    let script = root.join("usr/share/bash-completion/completions/fatflow");
    let reply = |words: &str, last: usize| {
        let text = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; \
             _fatflow_names fatflow \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let path = format!("{}:/usr/bin:/bin", root.join("usr/bin").display());
        said(Command::new("bash").args(["-c", &text]).env("PATH", path).current_dir(root))
    };
    assert!(reply("fatflow run small-1", 2).contains("small-128"));
    assert!(reply("fatflow topo us", 2).contains("usr"), "files too");
    assert!(reply("fatflow run x --set network.routing.q", 4).contains("network.routing.qps="));
    assert!(reply("fatflow explain network.routing.q", 2).contains("network.routing.qps"));
    assert!(reply("fatflow comp", 1).contains("compare"));
}
