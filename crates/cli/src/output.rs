//! Where results go, and how they look there.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;

use steptally_report::{TerminalStyle, Tool};

use crate::failure::Failure;

/// Columns when nothing says how many there are.
const DEFAULT_WIDTH: usize = 120;

/// The name and version that reports carry.
pub(crate) fn tool() -> Tool {
    Tool { name: "steptally".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

/// How text should look on standard output, or in a file.
pub(crate) fn style(to_file: bool, top: usize) -> TerminalStyle {
    let terminal = !to_file && std::io::stdout().is_terminal();
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    TerminalStyle {
        width: width(terminal),
        color: terminal && !set("NO_COLOR") && !dumb,
        bars: terminal,
        top,
    }
}

/// `COLUMNS` if set, else the terminal's, else a default.
fn width(terminal: bool) -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let measured = || {
        let size = terminal.then(terminal_size::terminal_size).flatten();
        size.map(|(width, _)| usize::from(width.0))
    };
    columns.filter(|&columns| columns > 0).or_else(measured).unwrap_or(DEFAULT_WIDTH)
}

/// Refuses to write a result over its own input.
pub(crate) fn check_not_input(file: Option<&Path>, input: &Path) -> Result<(), Failure> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let same = file.and_then(real).is_some_and(|file| Some(file) == real(input));
    if !same {
        return Ok(());
    }
    Err(Failure::usage("-o would write over the input".to_owned()).hint("give -o another file"))
}

/// Writes a result to a file, or to standard output. A reader that went away is no error.
pub(crate) fn write(text: &str, file: Option<&Path>) -> Result<(), Failure> {
    if let Some(path) = file {
        return std::fs::write(path, text).map_err(|error| {
            Failure::input(format!("cannot write {}: {error}", path.display()))
                .hint("give -o a file in a folder that exists and that you may write to")
        });
    }
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::input(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Says on stderr what is going on. Nobody is told when stderr is closed.
pub(crate) fn progress(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Ends when the user or the system wants the program to: Ctrl-C, a closed terminal, `kill`.
pub(crate) async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};

    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals: Vec<_> = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
    let mut waits: Vec<_> = signals.iter_mut().map(|signal| Box::pin(signal.recv())).collect();
    std::future::poll_fn(|context| {
        let is_ready = waits.iter_mut().any(|wait| wait.as_mut().poll(context).is_ready());
        if is_ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
