//! One thread reads and cuts blocks, several parse them, the caller's joins them in order.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::assemble::{Assembly, Parsed, parse};
use super::block::{Cut, Place};
use super::source::{Block, Blocks, SourceEnd};
use super::{TorchError, TorchRead};

/// How to go about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// How many threads parse; with one, everything is done on the caller's.
    pub(super) threads: usize,
    /// Size of a block in bytes.
    pub(super) block_size: usize,
}

/// Reads a whole source.
pub(super) fn read<R: Read + Send>(
    source: R,
    plan: Plan,
    keep_args: &[String],
) -> Result<TorchRead, TorchError> {
    let mut blocks = Blocks::new(source, plan.block_size);
    let mut assembly = Assembly::new(keep_args);
    // The head of the file, and often all of it, is read right here.
    let Some(first) = blocks.next(Vec::new()) else {
        return assembly.finish(blocks.end);
    };
    assembly.take(&first, None);
    let end = if plan.threads > 1 && !matches!(first.cut, Cut::EndOfFile | Cut::Broken) {
        read_parallel(blocks, first.text, plan.threads, &mut assembly, keep_args)
    } else {
        read_alone(blocks, first.text, &mut assembly)
    };
    assembly.finish(end)
}

fn read_alone<R: Read>(
    mut blocks: Blocks<R>,
    mut buffer: Vec<u8>,
    assembly: &mut Assembly<'_>,
) -> SourceEnd {
    while !assembly.is_hopeless() {
        let Some(block) = blocks.next(buffer) else {
            break;
        };
        assembly.take(&block, None);
        buffer = block.text;
    }
    blocks.end
}

/// A block, what was read of it, and its number in the file.
type Done = (usize, Block, Option<Parsed>);

fn read_parallel<R: Read + Send>(
    mut blocks: Blocks<R>,
    buffer: Vec<u8>,
    threads: usize,
    assembly: &mut Assembly<'_>,
    keep_args: &[String],
) -> SourceEnd {
    let (give_buffer, buffers) = channel::<Vec<u8>>();
    let (give_block, todo) = channel::<(usize, Block)>();
    let (give_done, done) = channel::<Done>();
    // The number of buffers bounds what is in flight.
    let spare = std::iter::once(buffer).chain(std::iter::repeat_with(Vec::new).take(threads + 1));
    for buffer in spare {
        let _ = give_buffer.send(buffer);
    }
    let todo = Mutex::new(todo);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            // A closed channel means that no one wants more.
            let mut number = 0;
            while let Ok(buffer) = buffers.recv() {
                let Some(block) = blocks.next(buffer) else {
                    break;
                };
                if give_block.send((number, block)).is_err() {
                    break;
                }
                number += 1;
            }
            blocks.end
        });
        for _ in 0..threads {
            let give_done = give_done.clone();
            let todo = &todo;
            scope.spawn(move || work(todo, &give_done, keep_args));
        }
        drop(give_done);
        join(&done, give_buffer, assembly);
        drop(done);
        reader.join().unwrap_or_default()
    })
}

fn work(todo: &Mutex<Receiver<(usize, Block)>>, done: &Sender<Done>, keep_args: &[String]) {
    loop {
        let Ok(todo) = todo.lock() else { return };
        let Ok((number, block)) = todo.recv() else {
            return;
        };
        drop(todo);
        let parsed = block
            .at_boundary
            .then(|| parse(&block.text, block.offset, Place::AfterComma, block.cut, keep_args));
        if done.send((number, block, parsed)).is_err() {
            return;
        }
    }
}

/// Takes finished blocks in file order.
fn join(done: &Receiver<Done>, give_buffer: Sender<Vec<u8>>, assembly: &mut Assembly<'_>) {
    let mut waiting: VecDeque<Option<(Block, Option<Parsed>)>> = VecDeque::new();
    let mut next = 0;
    while let Ok((number, block, parsed)) = done.recv() {
        let index = number - next;
        if waiting.len() <= index {
            waiting.resize_with(index + 1, || None);
        }
        waiting[index] = Some((block, parsed));
        while let Some(Some(_)) = waiting.front() {
            let Some(Some((block, parsed))) = waiting.pop_front() else {
                break;
            };
            next += 1;
            assembly.take(&block, parsed);
            if assembly.is_hopeless() {
                return;
            }
            let _ = give_buffer.send(block.text);
        }
    }
}
