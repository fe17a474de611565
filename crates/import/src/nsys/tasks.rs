//! Reads the tables of an export in pieces, on several connections at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rusqlite::{Connection, Row};
use steptally_trace_model::{Issues, Severity};

use super::part::{Part, Reader};
use super::schema::{open, quote};
use super::source::{GlobalPid, Source};
use super::{counters, gpu, host, nvtx};
use crate::ImportOptions;

/// A range of row ids, both ends included; `None` is the whole table.
pub(super) type Rows = Option<(i64, i64)>;

/// Fewest row ids in a piece, so that a piece is worth its start.
const SMALLEST: u64 = 1 << 12;
/// Row ids in a piece of a large table.
const PIECE: u64 = 1 << 17;
/// Into how many pieces a table of few is cut, so that all threads have a share.
const SHARES: u64 = 4;
/// Most pieces of a table, whatever its row ids are.
const PIECES: u64 = 512;

/// A piece of a table, and who reads it.
struct Task {
    read: fn(&mut Reader<'_>, &Connection, Rows),
    rows: Rows,
    weight: u64,
}

/// What a piece came to.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) parts: Vec<(GlobalPid, Part)>,
    pub(super) issues: Issues,
    pub(super) partial: bool,
}

/// Who reads a table.
type Read = fn(&mut Reader<'_>, &Connection, Rows);

/// The tables in the order in which their rows are put together.
const TABLES: [(&str, Read); 13] = [
    (gpu::KERNEL, gpu::kernels),
    (host::API, host::api_calls),
    (gpu::MEMCPY, gpu::copies),
    (gpu::MEMSET, gpu::fills),
    (gpu::GRAPH_TRACE, gpu::graph_traces),
    (nvtx::NVTX, nvtx::ranges),
    (host::OS_CALLS, host::os_calls),
    (counters::GPU_METRICS, counters::samples),
    (host::SYNCS, host::syncs),
    (host::GRAPH_EVENTS[0], |reader, connection, rows| {
        host::graph_nodes(reader, connection, host::GRAPH_EVENTS[0], rows);
    }),
    (host::GRAPH_EVENTS[1], |reader, connection, rows| {
        host::graph_nodes(reader, connection, host::GRAPH_EVENTS[1], rows);
    }),
    (host::OVERHEADS[0], |reader, connection, rows| {
        host::overheads(reader, connection, host::OVERHEADS[0], rows);
    }),
    (host::OVERHEADS[1], |reader, connection, rows| {
        host::overheads(reader, connection, host::OVERHEADS[1], rows);
    }),
];

/// Names of the tables of which each row is an event.
pub(super) fn event_tables() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(table, _)| *table)
}

/// Reads all event tables. Pieces come back in the order of the tables and of their rows.
pub(super) fn read_tables(
    source: &Source,
    connection: &Connection,
    options: &ImportOptions,
) -> Vec<Piece> {
    let tasks = plan(source, connection);
    let threads = thread_count(options).clamp(1, tasks.len().max(1));
    let total: u64 = tasks.iter().map(|task| task.weight).sum();
    let size = std::fs::metadata(&source.path).map_or(0, |file| file.len());
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let pieces: Vec<Mutex<Piece>> = tasks.iter().map(|_| Mutex::default()).collect();
    let work = |connection: &Connection| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { return };
            let mut reader = Reader::new(source, connection);
            (task.read)(&mut reader, connection, task.rows);
            let (parts, issues, partial) = reader.finish();
            if let Ok(mut piece) = pieces[index].lock() {
                *piece = Piece { parts, issues, partial };
            }
            let done = done.fetch_add(task.weight, Ordering::Relaxed) + task.weight;
            let read = (u128::from(size) * u128::from(done) / u128::from(total.max(1))) as u64;
            options.progress.advance(&source.path, read, size);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // A thread that cannot open the file leaves the work to the others.
            scope.spawn(|| {
                if let Ok(connection) = open(&source.path) {
                    work(&connection);
                }
            });
        }
        work(connection);
    });
    pieces.into_iter().filter_map(|piece| piece.into_inner().ok()).collect()
}

/// How many threads to use.
pub(super) fn thread_count(options: &ImportOptions) -> usize {
    options
        .threads
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1)
        .max(1)
}

/// Cuts the tables into pieces.
fn plan(source: &Source, connection: &Connection) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (table, read) in TABLES {
        if !source.schema.has(table) {
            continue;
        }
        // Waits are paired with the records of all rows, which one reader looks up once.
        let whole = table == host::SYNCS;
        match row_ids(connection, table).filter(|_| !whole) {
            Some((first, last)) => {
                let span = last.abs_diff(first);
                let step = (span / SHARES + 1).clamp(SMALLEST, PIECE).max(span / PIECES + 1);
                let mut from = first;
                loop {
                    let to = from.saturating_add_unsigned(step - 1).min(last);
                    tasks.push(Task {
                        read,
                        rows: Some((from, to)),
                        weight: to.abs_diff(from) + 1,
                    });
                    if to == last {
                        break;
                    }
                    from = to + 1;
                }
            }
            // Small, or without row ids.
            None => tasks.push(Task { read, rows: None, weight: 1 }),
        }
    }
    tasks
}

/// The first and last row id of a table; `None` when it is empty or has none.
fn row_ids(connection: &Connection, table: &str) -> Option<(i64, i64)> {
    let end = |which: &str| {
        let sql = format!("SELECT {which}(rowid) FROM {}", quote(table));
        connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten()
    };
    Some((end("min")?, end("max")?))
}

/// Reads `columns` of `table` and hands each row over. An error ends the piece, with an issue.
pub(super) fn scan<'s>(
    reader: &mut Reader<'s>,
    connection: &Connection,
    table: &str,
    columns: &[&str],
    rows: Rows,
    mut each: impl FnMut(&mut Reader<'s>, &Row<'_>),
) {
    let Some(mut sql) = reader.source.schema.select(table, columns) else {
        return;
    };
    if let Some((first, last)) = rows {
        sql.push_str(&format!(" WHERE rowid BETWEEN {first} AND {last}"));
    }
    let mut seen = 0_u64;
    let result = (|| {
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            seen += 1;
            each(reader, row);
        }
        Ok::<_, rusqlite::Error>(())
    })();
    if let Err(error) = result {
        reader.partial = true;
        reader.issues.note("unreadable_rows", Severity::Error, None, || {
            format!("{table}, after {seen} rows of a piece: {error}")
        });
    }
}
