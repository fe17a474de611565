//! Where one event ends and the next one begins, told from a few bytes.

use super::scan::is_space;

/// Keys that stand first in an event object.
fn begins_event(key: &[u8]) -> bool {
    matches!(
        key,
        b"ph"
            | b"name"
            | b"cat"
            | b"pid"
            | b"tid"
            | b"ts"
            | b"dur"
            | b"args"
            | b"id"
            | b"s"
            | b"bp"
    )
}

/// Keys of the top level that writers put behind the events.
fn is_top_level(key: &[u8]) -> bool {
    matches!(
        key,
        b"traceName"
            | b"displayTimeUnit"
            | b"baseTimeNanoseconds"
            | b"schemaVersion"
            | b"deviceProperties"
            | b"distributedInfo"
            | b"trace_id"
            | b"metadata"
            | b"otherData"
            | b"stackFrames"
            | b"samples"
            | b"INFO"
            | b"WARNING"
            | b"ERROR"
            | b"traceEvents"
    )
}

/// The key of the first member of the object at `at` (its opening brace).
fn first_key(text: &[u8], at: usize) -> Option<&[u8]> {
    const LONGEST: usize = 32;
    let quote = skip_space(text, at + 1);
    let rest = text.get(quote..)?.strip_prefix(b"\"")?;
    let length = rest.iter().take(LONGEST).position(|&byte| byte == b'"')?;
    let colon = skip_space(rest, length + 1);
    (rest.get(colon) == Some(&b':')).then(|| &rest[..length])
}

fn skip_space(text: &[u8], mut at: usize) -> usize {
    while text.get(at).copied().is_some_and(is_space) {
        at += 1;
    }
    at
}

/// The text before `at` without white space at its end.
fn before(text: &[u8], at: usize) -> &[u8] {
    text[..at].trim_ascii_end()
}

/// Whether the brace at `at` begins an event that follows another one and a comma. In valid JSON
/// this cannot lie within a string, as quotes are escaped there.
fn is_boundary(text: &[u8], at: usize) -> bool {
    first_key(text, at).is_some_and(begins_event)
        && before(text, at)
            .strip_suffix(b",")
            .is_some_and(|left| left.trim_ascii_end().ends_with(b"}"))
}

/// The last place where `text` can be cut between two events, so that the second part begins with
/// an event's brace.
pub(super) fn last_boundary(text: &[u8]) -> Option<usize> {
    memchr::memrchr_iter(b'{', text).take(4096).find(|&at| is_boundary(text, at))
}

/// Where reading can go on after damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resume {
    /// An event begins here.
    Event(usize),
    /// The array was closed just before here.
    Closed(usize),
}

/// The first place from `from` on where an event begins or the array ends.
pub(super) fn find_resume(text: &[u8], from: usize, end_of_file: bool) -> Option<Resume> {
    let candidates = text.get(from..)?;
    memchr::memchr2_iter(b'{', b']', candidates).map(|offset| from + offset).find_map(|at| {
        if text[at] == b']' {
            return ends_array(text, at, end_of_file).then_some(Resume::Closed(at + 1));
        }
        if !first_key(text, at).is_some_and(begins_event) {
            return None;
        }
        let left = before(text, at);
        let follows = left.ends_with(b"}")
            || left.strip_suffix(b",").is_some_and(|left| left.trim_ascii_end().ends_with(b"}"))
            || is_array_of_events(left);
        follows.then_some(Resume::Event(at))
    })
}

/// Whether a text ends with `"traceEvents": [`.
fn is_array_of_events(text: &[u8]) -> bool {
    text.strip_suffix(b"[")
        .and_then(|left| left.trim_ascii_end().strip_suffix(b":"))
        .is_some_and(|left| left.trim_ascii_end().ends_with(b"\"traceEvents\""))
}

/// Whether the bracket at `at` closes the array of events: an event before it, and behind it the
/// end of the file's object or one of its keys.
fn ends_array(text: &[u8], at: usize, end_of_file: bool) -> bool {
    if !before(text, at).ends_with(b"}") {
        return false;
    }
    let next = skip_space(text, at + 1);
    match text.get(next) {
        None => end_of_file,
        Some(b'}') => end_of_file && skip_space(text, next + 1) == text.len(),
        Some(b',') => first_key(text, next).is_some_and(is_top_level),
        Some(_) => false,
    }
}

/// Whether a damaged text has the head of another file in it.
pub(super) fn looks_interleaved(text: &[u8]) -> bool {
    [&b"\"schemaVersion\""[..], b"\"traceEvents\"", b"\"deviceProperties\""]
        .iter()
        .any(|key| memchr::memmem::find(text, key).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_cut_before_the_last_event() {
        let text = br#"[{"ph": "X", "args": {"a": 1}},
          {"ph": "X", "name": "}, {\"ph\":"}, {"x": 1}, {"na"#;
        let second = text.windows(9).rposition(|part| part == br#"{"ph": "X"#).unwrap();
        assert_eq!(last_boundary(text), Some(second));
        assert_eq!(last_boundary(br#"[{"ph": "X"}"#), None);
    }

    #[test]
    fn reading_goes_on_at_the_next_event_or_the_end() {
        let check = |text: &str, expected| {
            assert_eq!(find_resume(text.as_bytes(), 0, true), expected, "{text}");
        };
        check(r#"L("x")}, {"ph":1}"#, Some(Resume::Event(9)));
        check(r#"L("x")}{"cat" :1}"#, Some(Resume::Event(7)));
        check(r#"L("x", {"ph":1})}], "traceName": 1}"#, Some(Resume::Closed(18)));
        check(r#"L}]  } "#, Some(Resume::Closed(3)));
        check(r#"1, "traceEvents": [ {"ph":1}"#, Some(Resume::Event(20)));
        check(r#"{"ph"}], "Input type": 1"#, None);
    }
}
