//! A progress bar on stderr, when somebody is there to see it and reading takes long.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use steptally_import::Progress;

/// Reading that ends sooner shows no bar.
const PATIENCE: Duration = Duration::from_millis(300);

/// Bytes read over all files.
pub(crate) struct ReadingBar {
    started: Instant,
    wanted: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Read and total bytes by file.
    files: HashMap<PathBuf, (u64, u64)>,
    bar: Option<ProgressBar>,
}

impl ReadingBar {
    pub(crate) fn new() -> Self {
        let wanted = std::io::stderr().is_terminal();
        Self { started: Instant::now(), wanted, state: Mutex::default() }
    }

    /// Takes the bar off the screen.
    pub(crate) fn finish(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = state.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for ReadingBar {
    fn advance(&self, file: &Path, read: u64, total: u64) {
        if !self.wanted {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.files.get_mut(file) {
            Some(progress) => *progress = (read, total),
            None => {
                state.files.insert(file.to_owned(), (read, total));
            }
        }
        if self.started.elapsed() < PATIENCE {
            return;
        }
        let (read, total) =
            state.files.values().fold((0, 0), |sum, file| (sum.0 + file.0, sum.1 + file.1));
        let template = "reading {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let bar = state.bar.get_or_insert_with(|| new_bar(template));
        bar.set_length(total);
        bar.set_position(read);
    }

    fn exporting(&self, _: &Path, written: u64) {
        if !self.wanted || self.started.elapsed() < PATIENCE {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let template = "nsys exports the report: {bytes} written, {elapsed}";
        state.bar.get_or_insert_with(|| new_bar(template)).set_position(written);
    }
}

fn new_bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
