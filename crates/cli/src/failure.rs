//! Exit codes, and errors as the user sees them.

use std::io::Write;
use std::process::ExitCode;

/// Why the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// All went well.
    Ok = 0,
    /// A gate that was asked for failed.
    Gate = 1,
    /// The arguments make no sense, by themselves or for this input.
    Usage = 2,
    /// A file could not be read or written.
    Input = 3,
    /// A capture failed, or was interrupted.
    Capture = 4,
    /// There is output, but part of the input could not be read.
    Partial = 5,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// An error with its exit code and, where there is something to do about it, a hint.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: Code::Usage, message: message.into(), hint: None }
    }

    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self { code: Code::Input, message: message.into(), hint: None }
    }

    pub(crate) fn capture(message: impl Into<String>) -> Self {
        Self { code: Code::Capture, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says it on stderr; the code to exit with.
    pub(crate) fn report(self) -> Code {
        let mut text = format!("error: {}\n", self.message);
        if let Some(hint) = self.hint {
            text.push_str(&format!("hint: {hint}\n"));
        }
        // Nobody is left to tell when stderr is closed.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
        self.code
    }
}

/// `a, b, c`, or `none`.
pub(crate) fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}
