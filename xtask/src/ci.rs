//! `cargo xtask ci`: everything that must pass, in one run.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::run::{cargo, root};
use crate::{generate, tidy};

/// Runs every check, also after one has failed, and says which failed. True when none did.
pub(crate) fn run() -> Result<bool> {
    let mut failed = Vec::new();
    let mut check = |name: &str, run: &mut dyn FnMut() -> Result<bool>| -> Result<()> {
        println!("== {name}");
        let start = Instant::now();
        let passed = run().with_context(|| name.to_owned())?;
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("== {name}: {verdict}, {:.0} s\n", start.elapsed().as_secs_f64());
        if !passed {
            failed.push(name.to_owned());
        }
        Ok(())
    };

    check("format", &mut || succeeds(&mut cargo(&["fmt", "--all", "--check"])))?;
    check("tidy", &mut tidy::run)?;
    check("lints", &mut || {
        let args =
            ["clippy", "--locked", "--workspace", "--all-targets", "--quiet", "--", "-Dwarnings"];
        succeeds(&mut cargo(&args))
    })?;
    check("tests", &mut || {
        succeeds(&mut cargo(&["test", "--locked", "--workspace", "--quiet", "--no-fail-fast"]))
    })?;
    check("generated docs", &mut || generate::run(true))?;
    check("API docs", &mut || {
        let args = ["doc", "--locked", "--workspace", "--no-deps", "--quiet"];
        succeeds(cargo(&args).env("RUSTDOCFLAGS", "-Dwarnings"))
    })?;
    check("oldest supported Rust", &mut check_msrv)?;
    check("dependencies", &mut check_dependencies)?;

    if failed.is_empty() {
        println!("all checks passed");
    } else {
        println!("FAILED: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

fn succeeds(command: &mut Command) -> Result<bool> {
    let program = command.get_program().to_string_lossy().into_owned();
    Ok(command.status().with_context(|| format!("cannot start {program}"))?.success())
}

/// Whether a program runs at all, its output thrown away.
fn is_there(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Builds with the toolchain of `rust-version`, where one is installed.
fn check_msrv() -> Result<bool> {
    let msrv = tidy::rust_version()?;
    let toolchain = format!("+{msrv}");
    // Through the name, not $CARGO: only the rustup proxy understands `+toolchain`.
    let msrv_cargo = || {
        let mut command = Command::new("cargo");
        command.arg(&toolchain).current_dir(root());
        command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
        // An absent toolchain is reported, never downloaded.
        command.env("RUSTUP_AUTO_INSTALL", "0");
        command
    };
    if !is_there(msrv_cargo().arg("--version")) {
        println!("SKIPPED: no Rust {msrv} toolchain (rustup toolchain install {msrv})");
        return Ok(true);
    }
    succeeds(msrv_cargo().args(["check", "--locked", "--workspace", "--all-targets", "--quiet"]))
}

/// Licences, sources and duplicates as `deny.toml` allows, where cargo-deny is installed.
fn check_dependencies() -> Result<bool> {
    if !is_there(&mut cargo(&["deny", "--version"])) {
        println!("SKIPPED: no cargo-deny (cargo install --locked cargo-deny)");
        return Ok(true);
    }
    succeeds(&mut cargo(&["deny", "check", "licenses", "bans", "sources"]))
}
