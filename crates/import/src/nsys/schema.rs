//! What an export holds: its tables and columns, looked up before anything is read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::NsysError;
use super::cells;

/// Opens a database so that neither it nor its folder can change.
pub(super) fn open(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri(path), flags)?;
    // Views and triggers of a stranger's file must not reach functions with side effects.
    connection.pragma_update(None, "trusted_schema", false)?;
    // Without this, a file that was cut short is refused as a whole. Nothing can be written here.
    connection.pragma_update(None, "writable_schema", true)?;
    Ok(connection)
}

/// `file:` URI of a path, read-only and immutable.
pub(super) fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?mode=ro&immutable=1");
    uri
}

/// The tables of a database with their columns, in the database's order.
#[derive(Debug, Default)]
pub(super) struct Schema {
    tables: BTreeMap<String, Vec<String>>,
}

impl Schema {
    /// Looks at the file's first bytes and at its list of tables, and says what it is.
    pub(super) fn of_export(path: &Path) -> Result<(Connection, Self), NsysError> {
        let io = |source| NsysError::Io { path: path.into(), source };
        let mut head = [0; 16];
        let mut file = File::open(path).map_err(io)?;
        match file.read_exact(&mut head) {
            Ok(()) if &head == b"SQLite format 3\0" => {}
            Err(source) if source.kind() != std::io::ErrorKind::UnexpectedEof => {
                return Err(io(source));
            }
            _ => return Err(NsysError::NotSqlite { path: path.into() }),
        }
        let damaged = |error: rusqlite::Error| NsysError::Damaged {
            path: path.into(),
            reason: error.to_string(),
        };
        let connection = open(path).map_err(damaged)?;
        let schema = Self::of(&connection).map_err(damaged)?;
        schema.check(path)?;
        Ok((connection, schema))
    }

    /// The tables of `connection`. A table whose columns cannot be told has none.
    pub(super) fn of(connection: &Connection) -> Result<Self, rusqlite::Error> {
        let mut tables = BTreeMap::new();
        let mut names = connection.prepare(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
        )?;
        let mut rows = names.query([])?;
        while let Some(row) = rows.next()? {
            let Some(name) = cells::text(row, 0) else {
                continue;
            };
            let columns = columns_of(connection, &name).unwrap_or_default();
            tables.insert(name, columns);
        }
        Ok(Self { tables })
    }

    /// Tells an nsys export from other databases.
    fn check(&self, path: &Path) -> Result<(), NsysError> {
        let nvprof = self.has("StringTable")
            || self.has("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL")
            || self.column("CUPTI_ACTIVITY_KIND_KERNEL", "_id_");
        if nvprof && !self.has("StringIds") {
            return Err(NsysError::Nvprof { path: path.into() });
        }
        let known =
            ["TARGET_INFO_GPU", "META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE"];
        let events = [
            ("CUPTI_ACTIVITY_KIND_KERNEL", "start"),
            ("CUPTI_ACTIVITY_KIND_RUNTIME", "start"),
            ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "start"),
            ("NVTX_EVENTS", "eventType"),
            ("OSRT_API", "start"),
            ("StringIds", "value"),
        ];
        if known.iter().any(|table| self.has(table))
            || events.iter().any(|(table, column)| self.column(table, column))
        {
            return Ok(());
        }
        let mut names: Vec<&str> = self.tables.keys().map(String::as_str).take(6).collect();
        if names.is_empty() {
            names.push("none");
        }
        Err(NsysError::Unrelated { path: path.into(), tables: names.join(", ") })
    }

    /// Whether there is such a table.
    pub(super) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// Whether there is such a table with such a column.
    pub(super) fn column(&self, table: &str, column: &str) -> bool {
        self.columns(table).iter().any(|name| name == column)
    }

    /// The columns of a table; none for a table that is absent.
    pub(super) fn columns(&self, table: &str) -> &[String] {
        self.tables.get(table).map_or(&[], Vec::as_slice)
    }

    /// Names of all tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// `SELECT` of `columns` of `table` in this order, NULL where the table lacks one. `None` when
    /// the table is absent.
    pub(super) fn select(&self, table: &str, columns: &[&str]) -> Option<String> {
        self.has(table).then(|| {
            let list: Vec<String> = columns
                .iter()
                .map(|column| match self.column(table, column) {
                    true => quote(column),
                    false => "NULL".into(),
                })
                .collect();
            format!("SELECT {} FROM {}", list.join(", "), quote(table))
        })
    }
}

/// An SQL identifier.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn columns_of(connection: &Connection, table: &str) -> Result<Vec<String>, rusqlite::Error> {
    let mut statement = connection.prepare(&format!("PRAGMA table_info({})", quote(table)))?;
    let mut rows = statement.query([])?;
    let mut columns = Vec::new();
    while let Some(row) = rows.next()? {
        columns.extend(cells::text(row, 1));
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_a_uri() {
        assert_eq!(
            uri(Path::new("/a b/c?d#é%.sqlite")),
            "file:/a%20b/c%3Fd%23%C3%A9%25.sqlite?mode=ro&immutable=1"
        );
    }

    #[test]
    fn absent_columns_are_selected_as_null() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t(\"end\" INTEGER, start INTEGER)").unwrap();
        let schema = Schema::of(&db).unwrap();
        assert_eq!(
            schema.select("t", &["start", "end", "graphNodeId"]).as_deref(),
            Some("SELECT \"start\", \"end\", NULL FROM \"t\"")
        );
        assert_eq!(schema.select("u", &["start"]), None);
    }
}
