//! UTF-16 text as UTF-8, read through.

use std::io::{ErrorKind, Read};

/// Which half of a unit comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    LittleEndian,
    BigEndian,
}

/// Whether a text is UTF-16, from its first bytes, and how many of them are its mark.
pub(super) fn detect(start: &[u8]) -> Option<(Order, usize)> {
    match *start {
        [0xff, 0xfe, ..] => Some((Order::LittleEndian, 2)),
        [0xfe, 0xff, ..] => Some((Order::BigEndian, 2)),
        [b'{' | b'[', 0, ..] => Some((Order::LittleEndian, 0)),
        [0, b'{' | b'[', ..] => Some((Order::BigEndian, 0)),
        _ => None,
    }
}

/// A source of UTF-16 read as UTF-8; what cannot be decoded becomes U+FFFD.
pub(super) struct Utf16<R> {
    source: R,
    order: Order,
    ready: Vec<u8>,
    taken: usize,
    /// A byte, or a unit, whose other half is still to come.
    half: Option<u8>,
    high: Option<u16>,
    ended: bool,
}

impl<R: Read> Utf16<R> {
    pub(super) fn new(source: R, order: Order) -> Self {
        Self { source, order, ready: Vec::new(), taken: 0, half: None, high: None, ended: false }
    }

    fn refill(&mut self) -> std::io::Result<()> {
        let mut raw = [0; 16 << 10];
        let count = match self.source.read(&mut raw) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        };
        self.ready.clear();
        self.taken = 0;
        let mut units = Vec::with_capacity(count / 2 + 2);
        units.extend(self.high.take());
        for &byte in raw.get(..count).unwrap_or_default() {
            match self.half.take() {
                None => self.half = Some(byte),
                Some(first) if self.order == Order::LittleEndian => {
                    units.push(u16::from_le_bytes([first, byte]));
                }
                Some(first) => units.push(u16::from_be_bytes([first, byte])),
            }
        }
        if count == 0 {
            self.ended = true;
        } else if units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            self.high = units.pop();
        }
        for decoded in char::decode_utf16(units) {
            let c = decoded.unwrap_or(char::REPLACEMENT_CHARACTER);
            self.ready.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(())
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        while self.taken == self.ready.len() && !self.ended {
            self.refill()?;
        }
        let count = to.len().min(self.ready.len() - self.taken);
        to[..count].copy_from_slice(&self.ready[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrogates_and_halves_across_reads_are_joined() {
        /// Gives one byte at a time.
        struct Slow(std::vec::IntoIter<u8>);
        impl Read for Slow {
            fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
                Ok(self.0.next().map_or(0, |byte| {
                    to[0] = byte;
                    1
                }))
            }
        }
        let text = "{\"a\u{e9}\u{1F600}\u{4e2d}\"}";
        for order in [Order::LittleEndian, Order::BigEndian] {
            let bytes = text.encode_utf16().flat_map(|unit| match order {
                Order::LittleEndian => unit.to_le_bytes(),
                Order::BigEndian => unit.to_be_bytes(),
            });
            let slow = Slow(bytes.collect::<Vec<_>>().into_iter());
            let mut decoded = String::new();
            Utf16::new(slow, order).read_to_string(&mut decoded).unwrap();
            assert_eq!(decoded, text);
        }
    }
}
