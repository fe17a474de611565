//! Server-sent events: pieces of an answer's body to the data of its events.

/// More than this without the end of a line is no event stream.
const MAX_LINE: usize = 32 << 20;

/// Splits a stream into the payloads of its `data:` lines.
#[derive(Debug, Default)]
pub(crate) struct EventStream {
    rest: Vec<u8>,
}

/// The stream is not made of events.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoEvents;

impl EventStream {
    /// Takes the next piece; hands back the payloads that are whole now.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<Vec<String>, NoEvents> {
        let scanned = self.rest.len();
        self.rest.extend_from_slice(piece);
        let mut payloads = Vec::new();
        let mut start = 0;
        let mut from = scanned;
        while let Some(length) = self.rest[from..].iter().position(|&byte| byte == b'\n') {
            let line = &self.rest[start..from + length];
            if let Some(data) = line.strip_prefix(b"data:") {
                payloads.push(String::from_utf8_lossy(data).trim().to_owned());
            }
            from += length + 1;
            start = from;
        }
        self.rest.drain(..start);
        if self.rest.len() > MAX_LINE { Err(NoEvents) } else { Ok(payloads) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = include_str!("../data/sglang-generate-stream.txt");

    #[test]
    fn a_recorded_stream_in_pieces_of_any_size() {
        for size in [1, 2, 7, 100, 5000] {
            let mut stream = EventStream::default();
            let mut payloads = Vec::new();
            for piece in RECORDED.as_bytes().chunks(size) {
                payloads.extend(stream.push(piece).unwrap());
            }
            assert_eq!(payloads.len(), 5, "pieces of {size}");
            assert!(payloads[0].starts_with("{\"text\":\" t28045\""));
            assert!(payloads[3].contains("\"e2e_latency\":0.017966231999992033"));
            assert_eq!(payloads[4], "[DONE]");
        }
    }

    #[test]
    fn comments_and_other_fields_are_no_data() {
        let mut stream = EventStream::default();
        assert_eq!(stream.push(b": ping\r\nevent: x\r\ndata: 1\r\n\r\nda").unwrap(), ["1"]);
        assert_eq!(stream.push(b"ta:2\n").unwrap(), ["2"]);
    }

    #[test]
    fn a_line_without_end() {
        let mut stream = EventStream::default();
        assert_eq!(stream.push(&vec![b'x'; MAX_LINE + 1]), Err(NoEvents));
    }
}
