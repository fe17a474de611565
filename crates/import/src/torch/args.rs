//! The arguments of an event: the known ones, by name.

use steptally_trace_model::OptionalId;

use super::number;
use super::scan::{Scanner, Stop, Text};

/// The known arguments of an event, as far as it has them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Args<'a> {
    /// The whole object as written.
    pub(super) raw: Text<'a>,
    pub(super) device: OptionalId,
    pub(super) context: OptionalId,
    pub(super) stream: OptionalId,
    pub(super) correlation: OptionalId,
    pub(super) external: OptionalId,
    pub(super) graph: OptionalId,
    pub(super) graph_node: OptionalId,
    pub(super) original_node: OptionalId,
    pub(super) bytes: OptionalId,
    pub(super) sequence: OptionalId,
    pub(super) python: OptionalId,
    pub(super) python_parent: OptionalId,
    pub(super) wait_on_stream: OptionalId,
    pub(super) wait_on_correlation: OptionalId,
    pub(super) registers: OptionalId,
    pub(super) shared_memory: OptionalId,
    pub(super) occupancy: OptionalId,
    pub(super) in_elements: OptionalId,
    pub(super) out_elements: OptionalId,
    pub(super) group_size: OptionalId,
    pub(super) collective_sequence: OptionalId,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) dims: Text<'a>,
    pub(super) types: Text<'a>,
    pub(super) concrete: Text<'a>,
    pub(super) collective: Text<'a>,
    pub(super) group: Text<'a>,
    pub(super) group_description: Text<'a>,
    pub(super) group_ranks: Text<'a>,
    pub(super) dtype: Text<'a>,
    /// The name that a metadata event gives.
    pub(super) name: Text<'a>,
    /// Direction of a copy, where the event's name does not say.
    pub(super) kind: Text<'a>,
    /// What an NPU executed.
    pub(super) task_type: Text<'a>,
    /// The first id that is not an unsigned integer of 64 bits.
    pub(super) bad_id: Option<Text<'a>>,
}

impl<'a> Args<'a> {
    /// Reads the object at the scanner.
    pub(super) fn read(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Stop> {
        let start = scanner.at;
        scanner.at += 1;
        let mut more = scanner.next_member(true)?;
        while more {
            let key = scanner.key()?;
            self.member(key, scanner)?;
            more = scanner.next_member(false)?;
        }
        self.raw = Text { bytes: &scanner.text[start..scanner.at], at: start, ..Text::default() };
        Ok(())
    }

    #[inline(always)]
    fn member(&mut self, key: &[u8], scanner: &mut Scanner<'a>) -> Result<(), Stop> {
        let id = match key.len() {
            3 if key == b"Seq" => &mut self.collective_sequence,
            4 => match key {
                b"grid" => return read_triple(&mut self.grid, scanner),
                b"name" => return read_text(&mut self.name, scanner),
                b"kind" => return read_text(&mut self.kind, scanner),
                _ => return skip(scanner),
            },
            5 => match key {
                b"block" => return read_triple(&mut self.block, scanner),
                b"dtype" => return read_text(&mut self.dtype, scanner),
                b"bytes" => &mut self.bytes,
                _ => return skip(scanner),
            },
            6 => match key {
                b"device" => &mut self.device,
                b"stream" => &mut self.stream,
                _ => return skip(scanner),
            },
            7 if key == b"context" => &mut self.context,
            8 if key == b"graph id" => &mut self.graph,
            9 => match key {
                b"Python id" => &mut self.python,
                b"Stream Id" | b"stream_id" => &mut self.stream,
                b"Task Type" => return read_text(&mut self.task_type, scanner),
                _ => return skip(scanner),
            },
            10 => match key {
                b"Input Dims" | b"Input dims" => return read_text(&mut self.dims, scanner),
                b"Input type" => return read_text(&mut self.types, scanner),
                b"Group size" => &mut self.group_size,
                _ => return skip(scanner),
            },
            11 => match key {
                b"External id" | b"external id" => &mut self.external,
                b"correlation" => &mut self.correlation,
                b"Input Types" | b"Input types" => return read_text(&mut self.types, scanner),
                _ => return skip(scanner),
            },
            13 => match key {
                b"graph node id" => &mut self.graph_node,
                b"shared memory" => &mut self.shared_memory,
                b"In msg nelems" => &mut self.in_elements,
                _ => return skip(scanner),
            },
            14 => match key {
                b"wait_on_stream" => &mut self.wait_on_stream,
                b"Out msg nelems" => &mut self.out_elements,
                _ => return skip(scanner),
            },
            15 => match key {
                b"Concrete Inputs" => return read_text(&mut self.concrete, scanner),
                b"Sequence number" => &mut self.sequence,
                b"Collective name" => return read_text(&mut self.collective, scanner),
                _ => return skip(scanner),
            },
            16 if key == b"Python parent id" => &mut self.python_parent,
            18 if key == b"Process Group Name" => return read_text(&mut self.group, scanner),
            19 if key == b"Process Group Ranks" => {
                return read_text(&mut self.group_ranks, scanner);
            }
            20 if key == b"registers per thread" => &mut self.registers,
            22 if key == b"original graph node id" => &mut self.original_node,
            25 => match key {
                b"est. achieved occupancy %" => &mut self.occupancy,
                b"Process Group Description" => {
                    return read_text(&mut self.group_description, scanner);
                }
                _ => return skip(scanner),
            },
            33 if key == b"wait_on_cuda_event_record_corr_id" => &mut self.wait_on_correlation,
            _ => return skip(scanner),
        };
        if let Some(value) = read_digits(scanner) {
            *id = OptionalId::some(value);
            return Ok(());
        }
        let text = scanner.value()?;
        match number::unsigned(text.bytes) {
            Some(value) => *id = OptionalId::some(value),
            None if stands_for_none(text.bytes) => {}
            None if key == b"est. achieved occupancy %" => {
                *id = number::microseconds(text.bytes)
                    .and_then(|thousandths| u64::try_from(thousandths / 1000).ok())
                    .into();
            }
            None => self.bad_id = self.bad_id.or(Some(text)),
        }
        // The largest value stands for "none" in the tables.
        if *id == OptionalId::NONE && number::unsigned(text.bytes).is_some() {
            self.bad_id = self.bad_id.or(Some(text));
        }
        Ok(())
    }
}

#[inline]
fn skip(scanner: &mut Scanner<'_>) -> Result<(), Stop> {
    scanner.value().map(|_| ())
}

#[inline]
fn read_text<'a>(to: &mut Text<'a>, scanner: &mut Scanner<'a>) -> Result<(), Stop> {
    *to = scanner.value()?;
    Ok(())
}

/// A plain integer of at most 19 digits; leaves the scanner where it is when it is not one.
#[inline(always)]
fn read_digits(scanner: &mut Scanner<'_>) -> Option<u64> {
    let start = scanner.at;
    let mut value = 0u64;
    let mut at = start;
    while let Some(digit @ b'0'..=b'9') = scanner.text.get(at).copied() {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
        at += 1;
    }
    let ended = matches!(scanner.text.get(at), Some(b',' | b'}' | b' ' | b'\n' | b']'));
    if at == start || at - start > 19 || !ended {
        return None;
    }
    scanner.at = at;
    Some(value)
}

/// `[64, 1, 1]`; anything else is skipped.
fn read_triple(to: &mut [u32; 3], scanner: &mut Scanner<'_>) -> Result<(), Stop> {
    let text = scanner.value()?;
    let Some(inner) = text.bytes.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")) else {
        return Ok(());
    };
    let mut numbers = inner.split(|&byte| byte == b',').map(|text| {
        text.trim_ascii().iter().try_fold(0u32, |value, byte| {
            let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
            value.checked_mul(10)?.checked_add(digit)
        })
    });
    if let (Some(Some(x)), Some(Some(y)), Some(Some(z)), None) =
        (numbers.next(), numbers.next(), numbers.next(), numbers.next())
    {
        *to = [x, y, z];
    }
    Ok(())
}

/// What recorders write where there is no id.
fn stands_for_none(text: &[u8]) -> bool {
    matches!(text, b"-1" | b"null" | b"" | b"None" | b"N/A")
}
