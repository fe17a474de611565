//! A byte scanner over JSON text: strings, scalars and members, without building values.
//!
//! Strict unless told to be lenient; then it repairs what is harmless and notes each repair.

use super::issue::Repair;

/// Why the scanner stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The text ended too early.
    End,
    /// The text breaks the grammar here.
    Bad,
}

/// Text between quotes as written, or the text of any other value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Text<'a> {
    pub(super) bytes: &'a [u8],
    /// Position in the scanned text.
    pub(super) at: usize,
    /// Whether a backslash is in it, so that it must be decoded.
    pub(super) escaped: bool,
    /// Whether a raw control character is in it.
    pub(super) control: bool,
}

/// How deep arrays and objects may nest within an event.
const MAX_DEPTH: u32 = 128;

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES * 0x80;

/// The high bit of the lowest byte that is a quote, a backslash or a control character is the
/// lowest bit set (higher bits may be wrong).
#[inline(always)]
const fn special_bytes(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    (quote.wrapping_sub(ONES) & !quote
        | backslash.wrapping_sub(ONES) & !backslash
        | word.wrapping_sub(ONES * 0x20) & !word)
        & HIGH
}

/// What a byte means while a nested value is skipped.
const NESTING: [u8; 256] = {
    let mut class = [0; 256];
    class[b'"' as usize] = 1;
    class[b'[' as usize] = 2;
    class[b'{' as usize] = 3;
    class[b']' as usize] = 4;
    class[b'}' as usize] = 5;
    class
};

#[derive(Debug)]
pub(super) struct Scanner<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    /// Repair instead of stopping.
    pub(super) lenient: bool,
    /// Repairs made, with their positions.
    pub(super) repairs: Vec<(Repair, usize)>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at, lenient: false, repairs: Vec::new() }
    }

    #[inline(always)]
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline(always)]
    pub(super) fn require(&self) -> Result<u8, Stop> {
        self.text.get(self.at).copied().ok_or(Stop::End)
    }

    /// The eight bytes from here on, the first one lowest; zeros past the end.
    #[inline(always)]
    pub(super) fn word(&self) -> u64 {
        let rest = self.text.get(self.at..).unwrap_or_default();
        match rest.first_chunk::<8>() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        }
    }

    #[inline(always)]
    pub(super) fn skip_space(&mut self) {
        while let Some(&byte) = self.text.get(self.at) {
            if !is_space(byte) {
                return;
            }
            self.at += 1;
        }
    }

    /// The rest of a string whose opening quote was just passed.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Text<'a>, Stop> {
        let start = self.at;
        let (mut escaped, mut control) = (false, false);
        let mut at = start;
        loop {
            let rest = self.text.get(at..).unwrap_or_default();
            let byte = match rest.first_chunk::<8>() {
                Some(bytes) => {
                    let special = special_bytes(u64::from_le_bytes(*bytes));
                    if special == 0 {
                        at += 8;
                        continue;
                    }
                    let offset = (special.trailing_zeros() / 8) as usize;
                    at += offset;
                    bytes[offset % 8]
                }
                None => match rest.first() {
                    Some(&byte) => byte,
                    None => return Err(Stop::End),
                },
            };
            match byte {
                b'"' => {
                    self.at = at + 1;
                    let bytes = &self.text[start..at];
                    return Ok(Text { bytes, at: start, escaped, control });
                }
                b'\\' => {
                    escaped = true;
                    at += 2;
                }
                _ => {
                    control |= byte < 0x20;
                    at += 1;
                }
            }
        }
    }

    /// Moves to the next member of an object and past the opening quote of its key; `false` past
    /// the end of the object. `first`: nothing of the object was read yet.
    #[inline(always)]
    pub(super) fn next_member(&mut self, first: bool) -> Result<bool, Stop> {
        self.skip_space();
        let mut byte = self.require()?;
        if !first && byte == b',' {
            self.at += 1;
            self.skip_space();
            byte = self.require()?;
        } else if byte == b'}' {
            self.at += 1;
            return Ok(false);
        } else if !first {
            return self.odd_member(true);
        }
        if byte == b'"' {
            self.at += 1;
            return Ok(true);
        }
        self.odd_member(false)
    }

    #[cold]
    fn odd_member(&mut self, comma_missing: bool) -> Result<bool, Stop> {
        if !self.lenient {
            return Err(Stop::Bad);
        }
        let mut comma_missing = comma_missing;
        loop {
            match self.require()? {
                b',' => {
                    self.repairs.push((Repair::StrayComma, self.at));
                    comma_missing = false;
                }
                b'}' => {
                    self.repairs.push((Repair::StrayComma, self.at));
                    self.at += 1;
                    return Ok(false);
                }
                b'"' => {
                    if comma_missing {
                        self.repairs.push((Repair::MissingComma, self.at));
                    }
                    self.at += 1;
                    return Ok(true);
                }
                byte if byte.is_ascii_alphabetic() && !comma_missing => {
                    self.repairs.push((Repair::UnquotedKey, self.at));
                    return Ok(true);
                }
                byte if is_space(byte) => {}
                _ => return Err(Stop::Bad),
            }
            self.at += 1;
        }
    }

    /// The key whose opening quote was just passed, and on to its value.
    #[inline]
    pub(super) fn key(&mut self) -> Result<&'a [u8], Stop> {
        let key = if self.lenient { self.odd_key()? } else { self.string()?.bytes };
        self.colon()?;
        Ok(key)
    }

    /// A key, or its rest, up to a quote or a colon.
    fn odd_key(&mut self) -> Result<&'a [u8], Stop> {
        if self.text[..self.at].last() == Some(&b'"') {
            return Ok(self.string()?.bytes);
        }
        let start = self.at;
        while !matches!(self.require()?, b'"' | b':') {
            if !self.text[self.at].is_ascii_alphanumeric() {
                return Err(Stop::Bad);
            }
            self.at += 1;
        }
        let key = &self.text[start..self.at];
        self.at += usize::from(self.text[self.at] == b'"');
        Ok(key)
    }

    /// Past a colon and to the value behind it.
    #[inline(always)]
    pub(super) fn colon(&mut self) -> Result<(), Stop> {
        if self.peek() != Some(b':') {
            self.skip_space();
            if self.require()? != b':' {
                return Err(Stop::Bad);
            }
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    /// A value as text: what is between the quotes of a string, any other value as it is.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Text<'a>, Stop> {
        let start = self.at;
        match self.require()? {
            b'"' => {
                self.at += 1;
                return self.string();
            }
            b'[' | b'{' => self.skip_nested()?,
            _ => self.skip_scalar()?,
        }
        let bytes = &self.text[start..self.at];
        Ok(Text { bytes, at: start, escaped: false, control: false })
    }

    /// Past a number, `true`, `false` or `null`.
    #[inline]
    pub(super) fn skip_scalar(&mut self) -> Result<(), Stop> {
        let start = self.at;
        if matches!(self.require()?, b'0'..=b'9' | b'-') {
            self.at += 1;
            while matches!(self.require()?, b'0'..=b'9' | b'.') {
                self.at += 1;
            }
        }
        if self.at > start && !is_word(self.require()?) {
            return Ok(());
        }
        while is_word(self.require()?) {
            self.at += 1;
        }
        if matches!(&self.text[start..self.at], b"true" | b"false" | b"null") {
            return Ok(());
        }
        self.odd_scalar(start)
    }

    #[cold]
    fn odd_scalar(&mut self, start: usize) -> Result<(), Stop> {
        let text = &self.text[start..self.at];
        if super::number::microseconds(text).is_some() || is_float(text) {
            return Ok(());
        }
        let word = text.strip_prefix(b"-").unwrap_or(text);
        let known = [&b"nan"[..], b"inf", b"infinity"];
        if !self.lenient || !known.iter().any(|known| word.eq_ignore_ascii_case(known)) {
            self.at = start;
            return Err(Stop::Bad);
        }
        self.repairs.push((Repair::NotFinite, start));
        Ok(())
    }

    /// Past an array or object, checking only that brackets and quotes match.
    #[inline]
    pub(super) fn skip_nested(&mut self) -> Result<(), Stop> {
        let (mut objects, mut depth) = (0u128, 0u32);
        let mut at = self.at;
        loop {
            let class = loop {
                let Some(&byte) = self.text.get(at) else {
                    return Err(Stop::End);
                };
                at += 1;
                let class = NESTING[byte as usize];
                if class != 0 {
                    break class;
                }
            };
            match class {
                1 => {
                    self.at = at;
                    self.string()?;
                    at = self.at;
                }
                2 | 3 => {
                    if depth == MAX_DEPTH {
                        return Err(Stop::Bad);
                    }
                    objects = objects << 1 | u128::from(class - 2);
                    depth += 1;
                }
                _ => {
                    if objects & 1 != u128::from(class - 4) {
                        return Err(Stop::Bad);
                    }
                    objects >>= 1;
                    depth -= 1;
                    if depth == 0 {
                        self.at = at;
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Whether a byte is white space of JSON.
#[inline(always)]
pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Whether a byte may be in a number or a word.
#[inline(always)]
const fn is_word(byte: u8) -> bool {
    matches!(byte, b'-' | b'+' | b'.') || byte.is_ascii_alphanumeric()
}

fn is_float(text: &[u8]) -> bool {
    let text = std::str::from_utf8(text).unwrap_or_default();
    text.starts_with(|first: char| first.is_ascii_digit() || first == '-')
        && text.ends_with(|last: char| last.is_ascii_digit())
        && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_string(text: &str, expected: Result<(&str, bool, bool), Stop>) {
        let mut scanner = Scanner::new(text.as_bytes(), 0);
        let found = scanner.string().map(|text| (text.bytes, text.escaped, text.control));
        assert_eq!(found, expected.map(|(text, e, c)| (text.as_bytes(), e, c)), "{text:?}");
    }

    #[test]
    fn strings_end_at_the_first_quote_that_is_not_escaped() {
        check_string("ab\"", Ok(("ab", false, false)));
        check_string("\"", Ok(("", false, false)));
        check_string("0123456789\" \\", Ok(("0123456789", false, false)));
        check_string(r#"a\"b\\" "#, Ok((r#"a\"b\\"#, true, false)));
        check_string("0123456\\\"89abcdef\"", Ok(("0123456\\\"89abcdef", true, false)));
        check_string("012345\n789\"", Ok(("012345\n789", false, true)));
        check_string("\u{e9}\u{1F600}\u{e9}\"", Ok(("\u{e9}\u{1F600}\u{e9}", false, false)));
        check_string("0123456789", Err(Stop::End));
        check_string("ab\\\"", Err(Stop::End));
        check_string("ab\\", Err(Stop::End));
    }

    #[track_caller]
    fn check_value(text: &str, expected: Result<&str, Stop>) {
        let mut scanner = Scanner::new(text.as_bytes(), 0);
        let found = scanner.value().map(|text| text.bytes);
        assert_eq!(found, expected.map(str::as_bytes), "{text:?}");
    }

    #[test]
    fn values_are_skipped_whole() {
        check_value(
            r#"[[4, 2048], ["]"], {"a": [1]}], 7"#,
            Ok(r#"[[4, 2048], ["]"], {"a": [1]}]"#),
        );
        check_value("-12.5e+3,", Ok("-12.5e+3"));
        check_value("null}", Ok("null"));
        check_value("12", Err(Stop::End));
        check_value("[1, [2]", Err(Stop::End));
        check_value("[1}", Err(Stop::Bad));
        check_value("nan,", Err(Stop::Bad));
        check_value("nul,", Err(Stop::Bad));
    }

    #[test]
    fn nesting_is_bounded() {
        check_value(
            &format!("{}{}", "[".repeat(128), "]".repeat(128)),
            Ok(&format!("{}{}", "[".repeat(128), "]".repeat(128))),
        );
        check_value(&"[".repeat(129), Err(Stop::Bad));
    }
}
