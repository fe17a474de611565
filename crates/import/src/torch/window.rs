//! The recorded window, from the profiler's own span and its two instants.

use steptally_trace_model::{Nanos, Timestamp, Window};

/// What events say about the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowMarks {
    /// `Iteration Start: PyTorch Profiler`, the earliest.
    iteration_start: Option<Timestamp>,
    /// `Record Window End`, the latest.
    window_end: Option<Timestamp>,
    /// The span `PyTorch Profiler (0)`.
    span: Option<(Timestamp, Timestamp)>,
}

impl WindowMarks {
    /// Takes a span of category `Trace`.
    pub(super) fn span(&mut self, name: &[u8], start: Timestamp, duration: Nanos) {
        if name.starts_with(b"PyTorch Profiler") {
            let end = start + duration;
            self.add(Self { span: Some((start, end)), ..Self::default() });
        }
    }

    /// Takes an instant.
    pub(super) fn instant(&mut self, name: &[u8], at: Timestamp) {
        match name {
            b"Iteration Start: PyTorch Profiler" => {
                self.add(Self { iteration_start: Some(at), ..Self::default() });
            }
            b"Record Window End" => self.add(Self { window_end: Some(at), ..Self::default() }),
            _ => {}
        }
    }

    /// Joins what another part of the file says.
    pub(super) fn add(&mut self, other: Self) {
        let starts = self.iteration_start.into_iter().chain(other.iteration_start);
        self.iteration_start = starts.min();
        self.window_end = self.window_end.max(other.window_end);
        self.span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    /// The window, if anything says when it began.
    pub(super) fn window(self) -> Option<Window> {
        let start = self.iteration_start.or(self.span.map(|span| span.0))?;
        Some(Window { start, end: self.window_end.or(self.span.map(|span| span.1)) })
    }
}
