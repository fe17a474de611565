//! A copy of an export that is fit to be passed on.
//!
//! The copy is built from nothing, row by row of what may stay, so that no removed text is ever
//! written: not in a row, and not in a freed page.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::NsysError;
use super::cells;
use super::rank::rank_in_title;
use super::schema::{Schema, quote, uri};
use super::source::{GlobalPid, each_row};
use super::target::{CAPTURE_FLAGS, EXPORT_VERSIONS, SYSTEM_VERSIONS, allowed_name, rank_variable};
use super::tasks::event_tables;

/// What [`redact`] left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedactReport {
    /// Rows in the copy.
    pub rows_kept: u64,
    /// Rows about environment, command line, host, user and paths that were left out.
    pub environment_rows: u64,
    /// Strings that no kept row uses.
    pub strings: u64,
    /// Names of processes and threads that have no events.
    pub names: u64,
    /// Rows of the target's output and of backtraces.
    pub other_rows: u64,
    /// Texts that were made empty in rows that stay.
    pub texts: u64,
}

/// Tables that describe the environment; a row stays when its name is allowed.
const ENVIRONMENT: [&str; 4] =
    ["META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"];

/// Tables of which no row stays: what the target wrote, and backtraces with their paths.
fn is_dropped(table: &str) -> bool {
    matches!(table, "ANALYSIS_FILE" | "ProcessStreams") || table.ends_with("_CALLCHAINS")
}

/// Columns that refer to `StringIds`.
const REFERENCES: [&str; 6] =
    ["nameId", "textId", "jsonTextId", "demangledName", "shortName", "mangledName"];

/// Whether texts of a column may stay.
fn keeps_text(table: &str, column: &str) -> bool {
    if REFERENCES.contains(&column) {
        return true;
    }
    match table {
        _ if ENVIRONMENT.contains(&table) => matches!(column, "name" | "value"),
        "NVTX_EVENTS" => matches!(column, "text" | "jsonText"),
        "StringIds" => column == "value",
        "PROCESSES" => column == "name",
        "TARGET_INFO_GPU" => matches!(column, "name" | "chipName"),
        "TARGET_INFO_CUDA_GPU" => column == "name",
        "TARGET_INFO_GPU_METRICS" => matches!(column, "typeName" | "metricName"),
        "TARGET_INFO_SESSION_START_TIME" => matches!(column, "utcTime" | "localTime"),
        "NVTX_PAYLOAD_SCHEMAS" | "NVTX_PAYLOAD_SCHEMA_ENTRIES" => column == "name",
        "UnwindMethodType" => column == "name",
        _ => table.starts_with("ENUM_") && matches!(column, "name" | "label"),
    }
}

/// Writes a copy of an export without the target's environment, command line, output and paths,
/// and without strings that no kept row uses. Every event stays; the copy imports to the same
/// tables. The copy appears under its name only when it is complete.
///
/// # Errors
/// When `input` is no nsys export or is damaged, when `output` exists, or cannot be written.
pub fn redact(input: &Path, output: &Path) -> Result<RedactReport, NsysError> {
    if output.symlink_metadata().is_ok() {
        return Err(NsysError::OutputExists { path: output.into() });
    }
    let (_, schema) = Schema::of_export(input)?;
    let write = |reason: String| NsysError::Write { path: output.into(), reason };
    let folder = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let copy = tempfile::Builder::new()
        .prefix(".steptally-redact-")
        .tempfile_in(folder)
        .map_err(|error| write(error.to_string()))?;
    let report =
        Copy::new(input, copy.path(), &schema).and_then(Copy::run).map_err(|error| match error
            .sqlite_error_code()
        {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                NsysError::Damaged { path: input.into(), reason: error.to_string() }
            }
            _ => write(error.to_string()),
        })?;
    copy.as_file().sync_all().map_err(|error| write(error.to_string()))?;
    copy.persist_noclobber(output).map_err(|error| match error.error.kind() {
        std::io::ErrorKind::AlreadyExists => NsysError::OutputExists { path: output.into() },
        _ => write(error.error.to_string()),
    })?;
    Ok(report)
}

type Sql<T> = Result<T, rusqlite::Error>;

/// The copy in the making: the database `main`, with the export attached as `export`.
struct Copy<'s> {
    connection: Connection,
    schema: &'s Schema,
    report: RedactReport,
}

impl<'s> Copy<'s> {
    fn new(input: &Path, copy: &Path, schema: &'s Schema) -> Sql<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(copy, flags)?;
        connection.execute_batch(
            "PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = OFF; PRAGMA journal_mode = OFF;
             PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY;
             CREATE TEMP TABLE used(id INTEGER PRIMARY KEY);
             CREATE TEMP TABLE active(process INTEGER PRIMARY KEY);",
        )?;
        connection.execute("ATTACH DATABASE ?1 AS export", [uri(input)])?;
        Ok(Self { connection, schema, report: RedactReport::default() })
    }

    fn run(mut self) -> Sql<RedactReport> {
        self.connection.execute_batch("BEGIN")?;
        self.find_active_processes()?;
        let tables: Vec<String> = self.schema.tables().map(str::to_owned).collect();
        // Strings last: by then the rows that use them are known.
        for table in tables.iter().filter(|table| *table != "StringIds") {
            self.copy_table(table)?;
        }
        if self.schema.has("StringIds") {
            self.copy_table("StringIds")?;
        }
        self.connection.execute_batch("COMMIT; DETACH DATABASE export")?;
        self.connection.close().map_err(|(_, error)| error)?;
        Ok(self.report)
    }

    /// Processes that own events, and those whose title states a rank.
    fn find_active_processes(&self) -> Sql<()> {
        for table in event_tables() {
            for column in ["globalPid", "globalTid"] {
                if self.schema.column(table, column) {
                    self.connection.execute_batch(&format!(
                        "INSERT OR IGNORE INTO active SELECT DISTINCT {column} & ~0xFFFFFF
                         FROM export.{} WHERE {column} IS NOT NULL",
                        quote(table)
                    ))?;
                }
            }
        }
        let mut ranks = BTreeSet::new();
        if self.schema.column("PROCESSES", "globalPid") && self.schema.column("PROCESSES", "name") {
            let sql = "SELECT globalPid, name FROM export.PROCESSES";
            each_row(&self.connection, sql, |row| {
                let title = cells::text(row, 1).unwrap_or_default();
                if rank_in_title(&title).is_some() {
                    ranks.insert(GlobalPid::of(cells::int(row, 0)).0);
                }
            })?;
        }
        for process in ranks {
            self.connection.execute("INSERT OR IGNORE INTO active VALUES (?1)", [process])?;
        }
        Ok(())
    }

    fn copy_table(&mut self, table: &str) -> Sql<()> {
        let columns = self.schema.columns(table);
        if columns.is_empty() {
            return Ok(());
        }
        self.create(table)?;
        let name = quote(table);
        let total = self.count(&format!("SELECT count(*) FROM export.{name}"))?;
        let mut kept = 0;
        if !is_dropped(table) {
            let filter = self.filter(table)?;
            let values: Vec<String> =
                columns.iter().map(|column| self.value(table, column)).collect();
            let list: Vec<String> = columns.iter().map(|column| quote(column)).collect();
            let sql = format!(
                "INSERT INTO main.{name} ({}) SELECT {} FROM export.{name} {filter}",
                list.join(", "),
                values.join(", "),
            );
            kept = self.connection.execute(&sql, [])? as u64;
            self.report.texts += self.blanked(table, columns, &filter)?;
            for column in columns.iter().filter(|column| REFERENCES.contains(&column.as_str())) {
                let column = quote(column);
                self.connection.execute_batch(&format!(
                    "INSERT OR IGNORE INTO used SELECT DISTINCT CAST({column} AS INTEGER)
                     FROM main.{name} WHERE {column} IS NOT NULL"
                ))?;
            }
        }
        self.report.rows_kept += kept;
        let removed = total.saturating_sub(kept);
        match table {
            "StringIds" => self.report.strings += removed,
            "PROCESSES" | "ThreadNames" => self.report.names += removed,
            _ if ENVIRONMENT.contains(&table) => self.report.environment_rows += removed,
            _ => self.report.other_rows += removed,
        }
        Ok(())
    }

    /// An empty table with the same columns. The original's text is not taken over: it may hold
    /// comments.
    fn create(&self, table: &str) -> Sql<()> {
        let mut columns = Vec::new();
        let sql = format!("PRAGMA export.table_info({})", quote(table));
        let mut keys = 0;
        each_row(&self.connection, &sql, |row| {
            let name = cells::text(row, 1).unwrap_or_default();
            let declared = cells::text(row, 2).unwrap_or_default().to_ascii_uppercase();
            let kind = ["INTEGER", "INT", "REAL", "TEXT", "BLOB"]
                .into_iter()
                .find(|kind| *kind == declared)
                .unwrap_or("");
            let required = if cells::int(row, 3) == Some(1) { " NOT NULL" } else { "" };
            let key = cells::int(row, 5).unwrap_or(0) > 0;
            keys += u32::from(key);
            columns.push((format!("{} {kind}{required}", quote(&name)), key && kind == "INTEGER"));
        })?;
        let columns: Vec<String> = columns
            .into_iter()
            .map(|(column, key)| if key && keys == 1 { column + " PRIMARY KEY" } else { column })
            .collect();
        self.connection.execute_batch(&format!(
            "CREATE TABLE main.{} ({})",
            quote(table),
            columns.join(", ")
        ))
    }

    /// The rows of a table that stay, as a `WHERE` clause.
    fn filter(&self, table: &str) -> Sql<String> {
        let has = |column| self.schema.column(table, column);
        Ok(match table {
            "StringIds" if has("id") => "WHERE id IN (SELECT id FROM used)".into(),
            "PROCESSES" if has("globalPid") => {
                "WHERE globalPid & ~0xFFFFFF IN (SELECT process FROM active)".into()
            }
            "ThreadNames" if has("globalTid") => {
                "WHERE globalTid & ~0xFFFFFF IN (SELECT process FROM active)".into()
            }
            "StringIds" | "PROCESSES" | "ThreadNames" => "WHERE 0".into(),
            _ if ENVIRONMENT.contains(&table) => self.allowed_rows(table)?,
            _ => String::new(),
        })
    }

    fn allowed_rows(&self, table: &str) -> Sql<String> {
        if !self.schema.column(table, "name") || !self.schema.column(table, "value") {
            return Ok("WHERE 0".into());
        }
        let allowed = |name: &str, value: &str| match table {
            "META_DATA_CAPTURE" => {
                allowed_name(name, &CAPTURE_FLAGS).is_some()
                    || (name.ends_with("ENVIRONMENT_VARIABLE") && rank_variable(value).is_some())
            }
            "TARGET_INFO_SYSTEM_ENV" => allowed_name(name, &SYSTEM_VERSIONS).is_some(),
            _ => {
                allowed_name(name, &EXPORT_VERSIONS).is_some()
                    || name == "EXPORT_PRODUCT_NAME"
                    || name.starts_with("EXPORT_SCHEMA_VERSION_")
            }
        };
        let mut rows = Vec::new();
        let sql = format!("SELECT rowid, name, value FROM export.{}", quote(table));
        each_row(&self.connection, &sql, |row| {
            let text = |index| cells::text(row, index).unwrap_or_default();
            if allowed(&text(1), &text(2)) {
                rows.extend(cells::int(row, 0).map(|rowid| rowid.to_string()));
            }
        })?;
        Ok(format!("WHERE rowid IN ({})", rows.join(", ")))
    }

    /// How many texts of the kept rows were made empty.
    fn blanked(&self, table: &str, columns: &[String], filter: &str) -> Sql<u64> {
        let terms: Vec<String> = columns
            .iter()
            .filter(|column| self.value(table, column) != quote(column))
            .map(|column| {
                let (name, new) = (quote(column), self.value(table, column));
                format!("({name} IS NOT NULL AND {name} IS NOT {new})")
            })
            .collect();
        if terms.is_empty() {
            return Ok(0);
        }
        let sum = terms.join(" + ");
        self.count(&format!("SELECT coalesce(sum({sum}), 0) FROM export.{} {filter}", quote(table)))
    }

    fn count(&self, sql: &str) -> Sql<u64> {
        self.connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(|n| n.max(0) as u64)
    }

    /// The value of a column in the copy: as it is where texts may stay, else with every text that
    /// is no number made empty.
    fn value(&self, table: &str, column: &str) -> String {
        let name = quote(column);
        let remark = table == "DIAGNOSTIC_EVENT" && column == "text";
        if remark && self.schema.column(table, "severity") {
            // Remarks that the import keeps; others name paths of logs.
            return "CASE WHEN severity IS NULL OR severity IN (2, 3) \
                    OR text LIKE '%events produced:%' OR text LIKE '%might be lost%' \
                    THEN text ELSE '' END"
                .into();
        }
        if remark || keeps_text(table, column) {
            return name;
        }
        format!(
            "CASE typeof({name}) WHEN 'text' THEN iif({name} GLOB '*[^0-9.+ -]*', '', {name}) \
             WHEN 'blob' THEN x'' ELSE {name} END"
        )
    }
}
