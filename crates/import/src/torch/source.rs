//! The source as blocks of text, each cut between two events.

use std::io::{ErrorKind, Read};

use super::block::Cut;
use super::resync::last_boundary;

/// A piece of the text.
#[derive(Debug)]
pub(super) struct Block {
    /// The text; recycled.
    pub(super) text: Vec<u8>,
    /// Where it begins in the file.
    pub(super) offset: u64,
    /// Whether it begins with an event's brace behind a comma.
    pub(super) at_boundary: bool,
    /// Where it ends.
    pub(super) cut: Cut,
}

/// How reading a source ended.
#[derive(Debug, Default)]
pub(super) struct SourceEnd {
    /// How many bytes were read.
    pub(super) bytes: u64,
    /// Why reading stopped, when not at the end.
    pub(super) error: Option<std::io::Error>,
}

/// Cuts a source into blocks.
pub(super) struct Blocks<R> {
    source: R,
    size: usize,
    /// What was read beyond the last cut.
    rest: Vec<u8>,
    offset: u64,
    at_boundary: bool,
    ended: bool,
    pub(super) end: SourceEnd,
}

impl<R: Read> Blocks<R> {
    pub(super) fn new(source: R, size: usize) -> Self {
        Self {
            source,
            size: size.max(1),
            rest: Vec::new(),
            offset: 0,
            at_boundary: false,
            ended: false,
            end: SourceEnd::default(),
        }
    }

    /// The next block, in the memory of `recycled`; `None` behind the last one.
    pub(super) fn next(&mut self, recycled: Vec<u8>) -> Option<Block> {
        if self.ended {
            return None;
        }
        let mut text = recycled;
        let held = self.rest.len();
        text.resize(self.size.max(held + self.size / 2).max(held + 1), 0);
        text[..held].copy_from_slice(&self.rest);
        self.rest.clear();
        let mut filled = held;
        while filled < text.len() {
            match self.source.read(&mut text[filled..]) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    filled += count.min(text.len() - filled);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.end.error = Some(error);
                    self.ended = true;
                }
            }
            break;
        }
        text.truncate(filled);
        self.end.bytes = self.offset + filled as u64;
        let cut = if self.ended {
            if self.end.error.is_some() { Cut::Broken } else { Cut::EndOfFile }
        } else if let Some(at) = last_boundary(&text) {
            self.rest.extend_from_slice(&text[at..]);
            text.truncate(at);
            Cut::Boundary
        } else {
            Cut::Anywhere
        };
        let block = Block { offset: self.offset, at_boundary: self.at_boundary, cut, text };
        self.offset += block.text.len() as u64;
        self.at_boundary = cut == Cut::Boundary;
        Some(block)
    }
}
