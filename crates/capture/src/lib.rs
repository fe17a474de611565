//! Captures of a live LLM server: is it safe, how fast is it without a profiler, record, check, clean up.

pub mod backend;
mod capture;
mod doctor;
pub mod engine;
mod error;
mod files;
pub mod host;
pub mod http;
pub mod load;
mod lock;
pub mod place;
mod preflight;
mod record;
pub mod replay;
mod secret;
pub mod session;
mod sse;
mod version;

pub use capture::{CaptureOptions, Captured, Instrument, Progress, Verifier, VerifyInput, capture};
pub use doctor::{Advice, Availability, DIAGNOSIS_VERSION, Diagnosis, diagnose};
pub use error::{Failure, HttpError, HttpErrorKind, UrlError};
pub use files::{State, TraceFile, TraceFolder};
pub use record::{MANIFEST_NAME, ManifestFile};
pub use secret::{REDACTED, Redactor, Secret};
pub use version::Version;
