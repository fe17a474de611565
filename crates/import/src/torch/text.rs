//! Text of events to interned strings: escapes decoded, damage repaired and counted.

use std::borrow::Cow;

use steptally_trace_model::{Issues, Severity, StringId, Strings};

use super::issue::excerpt;
use super::scan::Text;

/// Interns the text of a value; `base` is the offset of the scanned text in the file.
#[inline]
pub(super) fn intern(
    strings: &mut Strings,
    issues: &mut Issues,
    text: Text<'_>,
    base: u64,
) -> StringId {
    if text.escaped || text.control {
        return intern_odd(strings, issues, text, base);
    }
    let mut valid = true;
    let id = strings.intern_with(text.bytes, || {
        let decoded = String::from_utf8_lossy(text.bytes);
        valid = matches!(decoded, Cow::Borrowed(_));
        decoded
    });
    if !valid {
        note_invalid_utf8(issues, text, base);
    }
    id
}

#[cold]
fn intern_odd(strings: &mut Strings, issues: &mut Issues, text: Text<'_>, base: u64) -> StringId {
    let at = Some(base + text.at as u64);
    let shown = || excerpt(text.bytes);
    if text.control {
        issues.note("raw_control_character", Severity::Warning, at, shown);
    }
    let decoded = String::from_utf8_lossy(text.bytes);
    if matches!(decoded, Cow::Owned(_)) {
        note_invalid_utf8(issues, text, base);
    }
    let (unescaped, all_valid) = unescape(&decoded);
    if !all_valid {
        issues.note("invalid_escape", Severity::Warning, at, shown);
    }
    strings.intern(&unescaped)
}

fn note_invalid_utf8(issues: &mut Issues, text: Text<'_>, base: u64) {
    let at = Some(base + text.at as u64);
    issues.note("invalid_utf8", Severity::Warning, at, || excerpt(text.bytes));
}

/// Decodes the escapes of JSON; unknown ones stay as they are. Also whether all were valid.
pub(super) fn unescape(text: &str) -> (Cow<'_, str>, bool) {
    let Some(first) = text.find('\\') else {
        return (Cow::Borrowed(text), true);
    };
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut all_valid) = (text, true);
    let mut next = Some(first);
    while let Some(at) = next {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let escape = rest.chars().next();
        let plain = match escape {
            Some(c @ ('"' | '\\' | '/')) => Some(c),
            Some('n') => Some('\n'),
            Some('t') => Some('\t'),
            Some('r') => Some('\r'),
            Some('b') => Some('\u{8}'),
            Some('f') => Some('\u{c}'),
            _ => None,
        };
        if let Some(plain) = plain {
            out.push(plain);
            rest = &rest[1..];
        } else if let Some((c, length)) = (escape == Some('u')).then(|| code_point(rest)).flatten()
        {
            out.push(c);
            rest = &rest[length..];
        } else {
            out.push('\\');
            all_valid = false;
        }
        next = rest.find('\\');
    }
    out.push_str(rest);
    (Cow::Owned(out), all_valid)
}

/// The character of `uXXXX`, or of a pair `uD83D\uDE00`, and how long its text is. Half a pair
/// becomes the replacement character.
fn code_point(text: &str) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = text.get(from + 1..from + 5)?;
        let all_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        all_hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    let high = unit(0)?;
    if (0xd800..0xdc00).contains(&high)
        && text.get(5..7) == Some("\\u")
        && let Some(low) = unit(6).filter(|low| (0xdc00..0xe000).contains(low))
    {
        let c = char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
        return c.map(|c| (c, 11));
    }
    Some((char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER), 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_unknown_ones_kept() {
        let check = |text: &str, expected: &str, valid: bool| {
            assert_eq!(unescape(text), (Cow::Borrowed(expected), valid), "{text}");
        };
        check("plain", "plain", true);
        check(r#"a\"b\\c\/d\n"#, "a\"b\\c/d\n", true);
        check(r"\u003clambda\u003E", "<lambda>", true);
        check(r"\ud83d\ude00!", "\u{1F600}!", true);
        check(r"\ud83d!", "\u{fffd}!", true);
        check(r"torch\cuda\__init__.py", r"torch\cuda\__init__.py", false);
        check(r"\u00g0", r"\u00g0", false);
        check("\\\u{e9}", "\\\u{e9}", false);
        check("end\\", "end\\", false);
    }
}
