//! Zstandard of any number of frames, skippable ones included.
//!
//! Blocks are handed to the decoder whole. Where one is missing or broken, an empty last block
//! takes its place, which makes the decoder give out what it holds back as its window.

use std::io::{self, BufRead, ErrorKind, Read};

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use steptally_trace_model::Severity;

use super::source::Damage;

/// The magic number of a frame.
pub(crate) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whether `head` starts a skippable frame.
pub(crate) fn is_skippable(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// An empty last block, then room for a checksum that is not looked at.
const END_OF_FRAME: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

enum State {
    BetweenFrames,
    InFrame { checksum: bool },
    Drain(Option<io::Error>),
    Ended,
}

/// Decompresses one frame after the other.
pub(crate) struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    state: State,
    block: Vec<u8>,
    first: bool,
    damage: Damage,
}

impl<R: BufRead> Zstd<R> {
    pub(crate) fn new(source: R, damage: Damage) -> Self {
        let decoder = FrameDecoder::new();
        let block = Vec::new();
        Self { source, decoder, state: State::BetweenFrames, block, first: true, damage }
    }

    /// Reads a frame header into the decoder; skips what is skippable.
    fn start_frame(&mut self) -> io::Result<State> {
        self.block.clear();
        if self.source.fill_buf()?.is_empty() {
            return Ok(State::Ended);
        }
        let complete = self.take(4)?;
        if complete && is_skippable(&self.block) {
            self.block.clear();
            if !self.take(4)? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let size = self.block.iter().rev().fold(0, |size, &byte| size << 8 | u64::from(byte));
            let skipped = io::copy(&mut (&mut self.source).take(size), &mut io::sink())?;
            self.first = false;
            return if skipped < size {
                Err(ErrorKind::UnexpectedEof.into())
            } else {
                Ok(State::BetweenFrames)
            };
        }
        if self.block != MAGIC && !self.first {
            let count = 4 + io::copy(&mut self.source, &mut io::sink())?;
            self.damage.note("trailing_bytes", Severity::Warning, None, || {
                format!("{count} bytes after the zstd data are no frame; left out")
            });
            return Ok(State::Ended);
        }
        self.first = false;
        if !self.take(1)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // Frame_Header_Descriptor: content size flag, single segment, .., checksum, dictionary id.
        let descriptor = self.block[4];
        let single_segment = descriptor & 0x20 != 0;
        let content_size = match descriptor >> 6 {
            0 => usize::from(single_segment),
            flag => 1 << flag,
        };
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        if !self.take(usize::from(!single_segment) + dictionary + content_size)? {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.decoder.reset(&self.block[..]).map_err(invalid)?;
        Ok(State::InFrame { checksum: descriptor & 4 != 0 })
    }

    /// Decodes one block.
    fn decode_block(&mut self, checksum: bool) -> State {
        self.block.clear();
        let whole = self.take_block(checksum);
        let result = match whole {
            Ok(true) => self
                .decoder
                .decode_blocks(&self.block[..], BlockDecodingStrategy::UptoBlocks(1))
                .map_err(invalid),
            Ok(false) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        };
        match result {
            Ok(false) => State::InFrame { checksum },
            Ok(true) => State::Drain(None),
            Err(error) => {
                let _ = self
                    .decoder
                    .decode_blocks(&END_OF_FRAME[..], BlockDecodingStrategy::UptoBlocks(1));
                State::Drain(Some(error))
            }
        }
    }

    /// Compares the checksum of a frame that was given out whole.
    fn check_frame(&self) -> io::Result<State> {
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(invalid("checksum mismatch"));
        }
        Ok(State::BetweenFrames)
    }

    /// Takes a block, with its header and, after the last one, the checksum. False: cut short.
    fn take_block(&mut self, checksum: bool) -> io::Result<bool> {
        if !self.take(3)? {
            return Ok(false);
        }
        let header = u32::from_le_bytes([self.block[0], self.block[1], self.block[2], 0]);
        let size = match header >> 1 & 3 {
            1 => 1,
            _ => (header >> 3) as usize,
        };
        let last = header & 1 == 1;
        self.take(size + if last && checksum { 4 } else { 0 })
    }

    /// Appends `count` bytes to the block; false: the source ended before.
    fn take(&mut self, count: usize) -> io::Result<bool> {
        let taken = (&mut self.source).take(count as u64).read_to_end(&mut self.block)?;
        Ok(taken == count)
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buf);
            }
            self.state = match std::mem::replace(&mut self.state, State::Ended) {
                State::BetweenFrames => self.start_frame()?,
                State::InFrame { checksum } => self.decode_block(checksum),
                State::Drain(None) => self.check_frame()?,
                State::Drain(Some(error)) => return Err(error),
                State::Ended => return Ok(0),
            };
        }
    }
}
