//! The string interner: every name of a trace is stored once.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

use crate::StringId;

/// Interned strings of one trace. Id 0 is the empty string.
#[derive(Clone, Debug)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: FixedState,
}

impl Default for Strings {
    fn default() -> Self {
        let mut strings = Self {
            text: String::new(),
            ends: Vec::new(),
            index: HashTable::new(),
            hasher: FixedState::with_seed(0x5eed),
        };
        strings.intern("");
        strings
    }
}

impl Strings {
    /// The id of `text`, stored on first sight.
    pub fn intern(&mut self, text: &str) -> StringId {
        self.intern_with(text.as_bytes(), || text.into())
    }

    /// The id of `bytes`, which need not be valid UTF-8: `decode` is called on first sight only.
    ///
    /// Equal bytes always get one id. `decode` must be a pure function of `bytes`, and must return
    /// `bytes` unchanged where they are valid; where it changes them, the id is that of the decoded
    /// text and the bytes are decoded again at each call.
    pub fn intern_with<'a>(
        &mut self,
        bytes: &'a [u8],
        decode: impl FnOnce() -> std::borrow::Cow<'a, str>,
    ) -> StringId {
        let hash = self.hasher.hash_one(bytes);
        if let Some(&id) = self.index.find(hash, |&id| slice(&self.text, &self.ends, id) == bytes) {
            return StringId(id);
        }
        let decoded = decode();
        if decoded.as_bytes() != bytes {
            return self.intern(&decoded);
        }
        let id = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        self.text.push_str(&decoded);
        self.ends.push(self.text.len());
        let (text, ends, hasher) = (&self.text, &self.ends, &self.hasher);
        self.index.insert_unique(hash, id, |&id| hasher.hash_one(slice(text, ends, id)));
        StringId(id)
    }

    /// The id of `text` if it is stored.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<StringId> {
        let hash = self.hasher.hash_one(text.as_bytes());
        self.index
            .find(hash, |&id| slice(&self.text, &self.ends, id) == text.as_bytes())
            .map(|&id| StringId(id))
    }

    /// The text of an id; the empty string for an id of another trace that is out of range.
    #[must_use]
    pub fn text(&self, id: StringId) -> &str {
        let Some(&end) = self.ends.get(id.index()) else {
            return "";
        };
        let start = if id.0 == 0 { 0 } else { self.ends[id.index() - 1] };
        &self.text[start..end]
    }

    /// How many different strings are stored, the empty one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing but the empty string is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.len() <= 1
    }

    /// All strings in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (StringId, &str)> {
        (0..self.ends.len() as u32).map(|id| (StringId(id), self.text(StringId(id))))
    }
}

fn slice<'a>(text: &'a str, ends: &[usize], id: u32) -> &'a [u8] {
    let end = ends[id as usize];
    let start = if id == 0 { 0 } else { ends[id as usize - 1] };
    &text.as_bytes()[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_an_id_and_zero_is_empty() {
        let mut strings = Strings::default();
        assert_eq!(strings.text(StringId(0)), "");
        let a = strings.intern("gemm");
        assert_eq!(strings.intern("gemm"), a);
        assert_ne!(strings.intern("norm"), a);
        assert_eq!(strings.text(a), "gemm");
        assert_eq!(strings.find("norm"), Some(StringId(2)));
        assert_eq!(strings.find("rope"), None);
    }

    #[test]
    fn undecodable_bytes_share_the_id_of_their_decoded_text() {
        let mut strings = Strings::default();
        let bytes = b"a\xf0\x28";
        let decode = || String::from_utf8_lossy(bytes);
        let id = strings.intern_with(bytes, decode);
        assert_eq!(strings.text(id), "a\u{fffd}(");
        assert_eq!(strings.intern_with(bytes, decode), id);
    }
}
