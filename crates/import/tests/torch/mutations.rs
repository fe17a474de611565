//! Real captures with bytes flipped, cut out and spliced: reading ends, and nothing panics.

use proptest::prelude::*;
use steptally_import::ImportOptions;
use steptally_import::torch::read_torch;

use crate::support::{decompressed, fixtures};

/// A change to a text; positions are parts of its length in 1/2^16.
#[derive(Clone, Debug)]
enum Change {
    Set(u16, u8),
    Insert(u16, Vec<u8>),
    Cut(u16, u16),
    Copy(u16, u16, u16),
    End(u16),
}

fn change() -> impl Strategy<Value = Change> {
    let bits = prop::sample::select(
        [
            "\"",
            "\\",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "},{",
            "\"args\":{",
            "\"ts\":",
            "nan",
            "-",
            "}, {\"ph\":",
            "\"traceEvents\":[",
            "]}",
            "\u{feff}",
            "\0",
            "1e999",
            "\"\"",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec(),
    );
    prop_oneof![
        (any::<u16>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<u16>(), bits).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (any::<u16>(), 1u16..400).prop_map(|(at, count)| Change::Cut(at, count)),
        (any::<u16>(), 1u16..900, any::<u16>()).prop_map(|(at, n, to)| Change::Copy(at, n, to)),
        any::<u16>().prop_map(Change::End),
    ]
}

fn apply(text: &mut Vec<u8>, change: &Change) {
    let place = |at: u16| text.len() * usize::from(at) / (1 << 16);
    match *change {
        Change::Set(at, byte) => {
            let at = place(at);
            if let Some(old) = text.get_mut(at) {
                *old = byte;
            }
        }
        Change::Insert(at, ref bytes) => {
            let at = place(at);
            text.splice(at..at, bytes.iter().copied());
        }
        Change::Cut(at, count) => {
            let at = place(at);
            text.drain(at..text.len().min(at + usize::from(count)));
        }
        Change::Copy(at, count, to) => {
            let (at, to) = (place(at), place(to));
            let copy = text[at..text.len().min(at + usize::from(count))].to_vec();
            text.splice(to..to, copy);
        }
        Change::End(at) => text.truncate(place(at)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn changed_captures_never_panic(
        which in any::<prop::sample::Index>(),
        from in any::<u16>(),
        changes in prop::collection::vec(change(), 1..40),
    ) {
        let fixtures = fixtures();
        let whole = decompressed(&fixtures[which.index(fixtures.len())]);
        // The header, and a stretch of events.
        let head = whole.len().min(3_000);
        let at = head + (whole.len() - head) * usize::from(from) / (1 << 16);
        let mut text = whole[..head].to_vec();
        text.extend_from_slice(&whole[at..whole.len().min(at + 100_000)]);
        for change in &changes {
            apply(&mut text, change);
        }
        let options = ImportOptions { threads: Some(2), ..ImportOptions::default() };
        if let Ok(read) = read_torch(&text[..], &options) {
            prop_assert!(!read.lanes.is_empty());
            prop_assert_eq!(read.bytes, text.len() as u64);
        }
    }

    #[test]
    fn arbitrary_text_never_panics(text in r#"[\[\]{}",:\\ntrue0-9e.\-a\n]{0,300}"#) {
        let _ = read_torch(text.as_bytes(), &ImportOptions::default());
    }
}
