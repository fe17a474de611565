//! What can go wrong, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use steptally_trace_model::manifest::CaptureProblem;
use thiserror::Error;

/// A URL that cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UrlError {
    /// It is no URL of a server.
    #[error("cannot use the URL {url}: {reason}")]
    Malformed {
        /// As typed, without credentials.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// It asks for TLS.
    #[error("cannot use the URL {url}: https is not spoken here")]
    Https {
        /// As typed, without credentials.
        url: String,
    },
}

impl UrlError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "a URL looks like http://127.0.0.1:30000",
            Self::Https { .. } => {
                "give the server's own http port, or a tunnel to it: ssh -L 30000:localhost:30000 HOST"
            }
        }
    }
}

/// A request that did not go well.
#[derive(Debug, Error)]
#[error("{path}: {kind}")]
pub struct HttpError {
    /// The endpoint.
    pub path: String,
    /// What happened.
    pub kind: HttpErrorKind,
}

impl HttpError {
    pub(crate) fn new(path: &str, kind: HttpErrorKind) -> Self {
        Self { path: path.to_owned(), kind }
    }
}

/// Ways for a request to end.
#[derive(Debug)]
#[non_exhaustive]
pub enum HttpErrorKind {
    /// No connection.
    Unreachable(io::Error),
    /// The connection broke.
    Disconnected(String),
    /// Too slow.
    TimedOut {
        /// What did not come.
        waiting_for: &'static str,
        /// For how long it was waited for.
        limit: Duration,
    },
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404 or 405.
    NotFound,
    /// 409, with what the server says.
    Conflict(String),
    /// 503.
    Unavailable,
    /// 3xx, and where to.
    Redirect(String),
    /// Any other status.
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        detail: String,
    },
    /// More bytes than the limit, which is given.
    TooLarge(usize),
    /// An answer that is not what the endpoint gives.
    Unexpected(String),
    /// The request cannot be made.
    Invalid(String),
}

impl HttpErrorKind {
    /// Stable code of a problem of this kind.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Disconnected(_) => "disconnected",
            Self::TimedOut { .. } => "timed_out",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Conflict(_) => "conflict",
            Self::Unavailable => "unavailable",
            Self::Redirect(_) => "redirect",
            Self::Status { .. } => "server_error",
            Self::TooLarge(_) => "reply_too_large",
            Self::Unexpected(_) => "unexpected_reply",
            Self::Invalid(_) => "invalid_request",
        }
    }

    /// What to do about it, where that does not depend on the endpoint.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unreachable(_) => "is the server up, and is this its host and port?",
            Self::Disconnected(_) => "look into the server's log: it may have died",
            Self::TimedOut { .. } => "the server hangs or is overloaded: look into its log",
            Self::Unauthorized | Self::Forbidden => {
                "give --api-key, and --admin-key when the server was started with an admin key \
                 (STEPTALLY_API_KEY and STEPTALLY_ADMIN_KEY do the same); once there is an admin \
                 key, only that one may profile"
            }
            Self::Unavailable => {
                "the server is starting, overloaded or writing a trace: wait and try again"
            }
            Self::Redirect(_) => "give the URL of the server itself, not of a proxy in front of it",
            Self::TooLarge(_) | Self::Unexpected(_) => "is this the URL of an LLM server?",
            Self::NotFound | Self::Conflict(_) | Self::Status { .. } | Self::Invalid(_) => {
                return None;
            }
        })
    }

    /// Whether the server certainly did nothing upon the request.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Disconnected(_) | Self::TimedOut { .. } | Self::TooLarge(_))
    }
}

impl fmt::Display for HttpErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "cannot connect: {error}"),
            Self::Disconnected(how) => write!(f, "the connection broke: {how}"),
            Self::TimedOut { waiting_for, limit } => {
                write!(f, "waited {} s for {waiting_for}", limit.as_secs_f64())
            }
            Self::Unauthorized => f.write_str("the server wants a key, or another one (401)"),
            Self::Forbidden => f.write_str("the server does not allow it with this key (403)"),
            Self::NotFound => f.write_str("the server has no such endpoint (404)"),
            Self::Conflict(detail) => {
                write!(f, "the server is not in a state for it (409): {detail}")
            }
            Self::Unavailable => f.write_str("the server does not serve now (503)"),
            Self::Redirect(to) => write!(f, "the server redirects to {to}, which is not followed"),
            Self::Status { status, detail } if detail.is_empty() => {
                write!(f, "the server answers with status {status}")
            }
            Self::Status { status, detail } => {
                write!(f, "the server answers with status {status}: {detail}")
            }
            Self::TooLarge(limit) => write!(f, "the answer is larger than {limit} bytes"),
            Self::Unexpected(what) => f.write_str(what),
            Self::Invalid(what) => write!(f, "the request cannot be made: {what}"),
        }
    }
}

/// Why a capture, or part of it, failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Failure {
    /// Stable code.
    pub code: &'static str,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure with nothing to do about it yet.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What could not be done with a path.
    pub(crate) fn io(what: &str, path: &std::path::Path, error: &io::Error) -> Self {
        let path: PathBuf = path.to_owned();
        let code = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "disk_full",
            _ => "output_folder",
        };
        Self::new(code, format!("cannot {what} {}: {error}", path.display()))
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        let failure = Self::new(error.kind.code(), error.to_string());
        match error.kind.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<&Failure> for CaptureProblem {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.code.to_owned(),
            message: failure.message.clone(),
            hint: failure.hint.clone(),
        }
    }
}
