//! Writes an nsys export of a decode loop for measurements: `make_nsys FILE KERNELS`.
//!
//! The loop runs in one process on one GPU. Each kernel has a runtime call and a driver call, each
//! hundredth begins an NVTX range; names, streams and launch sizes repeat as in a real server. With
//! `--scan` and `--read`, `make_nsys` measures instead: a bare scan of the columns that the import
//! reads, and the import.

#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, params};
use steptally_import::ImportOptions;
use steptally_import::nsys::read_nsys;

/// Process 4242 on virtual machine 1.
const PROCESS: i64 = (1 << 48) | (4242 << 24);
const THREAD: i64 = PROCESS | 4242;
/// Names of kernels that a model has.
const NAMES: i64 = 40;

const TABLES: &str = "
    CREATE TABLE StringIds(id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE META_DATA_EXPORT(name TEXT NOT NULL, value TEXT);
    INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.24.0');
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER NOT NULL, end INTEGER NOT NULL,
        deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER,
        streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
        launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL,
        gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
        blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,
        staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
        localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL,
        gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,
        sharedMemoryLimitConfig INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER NOT NULL, end INTEGER NOT NULL,
        eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
        nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
    CREATE TABLE NVTX_EVENTS(start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
        text TEXT, globalTid INTEGER);";

fn write(path: &Path, kernels: i64) -> rusqlite::Result<()> {
    let mut database = Connection::open(path)?;
    database.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    let transaction = database.transaction()?;
    transaction.execute_batch(TABLES)?;
    {
        let mut string = transaction.prepare("INSERT INTO StringIds VALUES (?1, ?2)")?;
        string.execute(params![0, "cudaLaunchKernel_v7000"])?;
        string.execute(params![1, "cuLaunchKernelEx"])?;
        for name in 0..NAMES {
            string.execute(params![2 + name, format!("void model::kernel_{name}<float>(int)")])?;
            string.execute(params![2 + NAMES + name, format!("kernel_{name}")])?;
        }
        let mut kernel = transaction.prepare(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, 0, 1, 0, ?3, ?4, ?5, ?6, ?7,
             NULL, 1, 1, 64, ?8, 1, 1, 256, 1, 1, 0, 1024, 0, 127401984, ?4, 32768, NULL, 0)",
        )?;
        let mut call = transaction.prepare(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, NULL)",
        )?;
        let mut range =
            transaction.prepare("INSERT INTO NVTX_EVENTS VALUES (?1, ?2, 59, ?3, ?4)")?;
        for row in 0..kernels {
            let (start, name) = (1_000_000 + row * 3000, row % NAMES);
            let stream = if row % 10 == 9 { 20 } else { 7 };
            kernel.execute(params![
                start + 2000,
                start + 2800 + row % 7,
                stream,
                row + 1,
                PROCESS,
                2 + name,
                2 + NAMES + name,
                1 + name % 8 * 64,
            ])?;
            call.execute(params![start, start + 1200, 0, THREAD, row + 1, 0])?;
            call.execute(params![start + 200, start + 1000, 1, THREAD, kernels + row + 1, 1])?;
            if row % 100 == 0 {
                range.execute(params![start, start + 290_000, "decode", THREAD])?;
            }
        }
    }
    transaction.commit()
}

/// Steps over every row and column that the import reads, and does nothing with them.
fn scan(path: &Path) -> rusqlite::Result<i64> {
    let database = Connection::open(path)?;
    let mut sum = 0_i64;
    for sql in [
        "SELECT start, end, globalPid, deviceId, contextId, streamId, correlationId, demangledName,
         gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread, staticSharedMemory,
         dynamicSharedMemory, graphNodeId FROM CUPTI_ACTIVITY_KIND_KERNEL",
        "SELECT start, end, globalTid, nameId, correlationId, eventClass
         FROM CUPTI_ACTIVITY_KIND_RUNTIME",
        "SELECT start, end, eventType, globalTid FROM NVTX_EVENTS",
    ] {
        let mut statement = database.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                sum = sum.wrapping_add(row.get::<_, Option<i64>>(column)?.unwrap_or(0));
            }
        }
    }
    Ok(sum)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--scan", file] => {
            let begin = Instant::now();
            let sum = scan(Path::new(file))?;
            println!("scan {:.3} s (sum {sum})", begin.elapsed().as_secs_f64());
        }
        ["--read", file] => {
            let begin = Instant::now();
            let read = read_nsys(Path::new(file), &ImportOptions::default())?;
            let kernels: usize = read.traces.iter().map(|trace| trace.kernels.len()).sum();
            println!("read {:.3} s ({kernels} kernels)", begin.elapsed().as_secs_f64());
        }
        [file, kernels] => write(Path::new(file), kernels.parse()?)?,
        _ => return Err("make_nsys FILE KERNELS | --scan FILE | --read FILE".into()),
    }
    Ok(())
}
