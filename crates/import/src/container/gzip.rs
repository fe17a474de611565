//! Gzip of any number of members.

use std::io::{self, BufRead, ErrorKind, Read};

use flate2::bufread::GzDecoder;
use steptally_trace_model::Severity;

use super::source::Damage;

/// Most bytes asked of the decoder at once: what a corrupt block can cost at most.
const STRIDE: usize = 128 << 10;

/// Decompresses one member after the other. Zero padding after a member is legal; other bytes that
/// are no member become an issue.
pub(crate) struct Gzip<R> {
    member: Option<GzDecoder<R>>,
    fresh: bool,
    first: bool,
    damage: Damage,
}

impl<R: BufRead> Gzip<R> {
    pub(crate) fn new(source: R, damage: Damage) -> Self {
        Self { member: Some(GzDecoder::new(source)), fresh: true, first: true, damage }
    }

    /// Goes on to the next member, if there is one.
    fn advance(&mut self, mut source: R) -> io::Result<()> {
        loop {
            let buffer = source.fill_buf()?;
            let zeros = buffer.iter().take_while(|&&byte| byte == 0).count();
            match buffer.get(zeros) {
                None if buffer.is_empty() => return Ok(()),
                None => {}
                Some(0x1f) if buffer.get(zeros + 1).is_none_or(|&byte| byte == 0x8b) => {
                    source.consume(zeros);
                    self.member = Some(GzDecoder::new(source));
                    self.fresh = true;
                    self.first = false;
                    return Ok(());
                }
                Some(_) => return self.note_trailing(&mut source),
            }
            source.consume(zeros);
        }
    }

    fn note_trailing(&self, source: &mut R) -> io::Result<()> {
        let count = io::copy(source, &mut io::sink())?;
        self.damage.note("trailing_bytes", Severity::Warning, None, || {
            format!("{count} bytes after the gzip data are no gzip member; left out")
        });
        Ok(())
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let stride = buf.len().min(STRIDE);
        while let Some(mut decoder) = self.member.take() {
            match decoder.read(&mut buf[..stride]) {
                Ok(0) if stride > 0 => self.advance(decoder.into_inner())?,
                Ok(count) => {
                    self.fresh = false;
                    self.member = Some(decoder);
                    return Ok(count);
                }
                // A later "member" without a valid header was never one.
                Err(error) if self.fresh && !self.first && decoder.header().is_none() => {
                    if error.kind() == ErrorKind::UnexpectedEof {
                        return Err(error);
                    }
                    return self.note_trailing(decoder.get_mut()).map(|()| 0);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }
}
