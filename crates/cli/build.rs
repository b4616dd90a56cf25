//! Tells the binary from which commit it was built, where that is known: there may be no git. Where
//! the toolchain links with the lld that it brings, functions that come out alike are kept once,
//! and addresses to be set at the start are listed in a bit each if the C library can read that.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    // A package's source may say it, for it is no checkout.
    let said = env::var("FATFLOW_BUILT_FROM").ok().filter(|said| !said.is_empty());
    let commit = said.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    let commit = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=FATFLOW_COMMIT={commit}");
    println!("cargo::rerun-if-env-changed=FATFLOW_BUILT_FROM");
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    if env::var("PROFILE").as_deref() == Ok("release") && links_with_lld() {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        if glibc().is_some_and(|version| version >= (2, 36)) {
            println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
    }
}

/// Whether this is the target whose toolchain brings lld and uses it, and nobody says otherwise.
fn links_with_lld() -> bool {
    let target = env::var("TARGET").unwrap_or_default();
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map_or_else(
        |_| String::new(),
        |said| String::from_utf8_lossy(&said.stdout).trim().to_owned(),
    );
    let lld = Path::new(&sysroot).join(format!("lib/rustlib/{target}/bin/gcc-ld/ld.lld"));
    let is_said = flags.contains("linker") || flags.contains("fuse-ld");
    target == "x86_64-unknown-linux-gnu"
        && env::var_os("RUSTC_LINKER").is_none()
        && !is_said
        && lld.exists()
}

/// The version of the C library here, where it is glibc.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
