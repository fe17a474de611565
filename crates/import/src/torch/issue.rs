//! Codes of import issues of this format, and how grave each is.

use steptally_trace_model::{Issues, Severity};

/// A repair of harmless damage within an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// A comma is missing between members.
    MissingComma,
    /// A comma too many.
    StrayComma,
    /// `inf` or `nan`, taken as not available.
    NotFinite,
    /// A key without its opening quote.
    UnquotedKey,
}

impl Repair {
    pub(super) const fn code(self) -> (&'static str, Severity) {
        match self {
            Self::MissingComma => ("missing_comma", Severity::Warning),
            Self::StrayComma => ("stray_comma", Severity::Info),
            Self::NotFinite => ("not_finite_number", Severity::Info),
            Self::UnquotedKey => ("unquoted_key", Severity::Warning),
        }
    }
}

/// Notes repairs, with `base` added to their positions.
pub(super) fn note_repairs(
    issues: &mut Issues,
    repairs: &mut Vec<(Repair, usize)>,
    text: &[u8],
    base: u64,
) {
    for (repair, at) in repairs.drain(..) {
        let (code, severity) = repair.code();
        issues
            .note(code, severity, Some(base + at as u64), || excerpt(&text[at.min(text.len())..]));
    }
}

/// The beginning of a text, short enough for a message: control characters and bytes that are not
/// UTF-8 are escaped.
pub(super) fn excerpt(text: &[u8]) -> String {
    const LENGTH: usize = 80;
    let short = &text[..text.len().min(LENGTH)];
    let mut shown: String = String::from_utf8_lossy(short)
        .chars()
        .flat_map(|c| {
            let plain = !c.is_control() || c == ' ';
            plain
                .then_some(c)
                .into_iter()
                .chain((!plain).then(|| c.escape_default()).into_iter().flatten())
        })
        .collect();
    if text.len() > LENGTH {
        shown.push_str("...");
    }
    shown
}
