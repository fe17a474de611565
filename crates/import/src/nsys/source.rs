//! What all readers of one export share: its tables, its strings, its enumerations, its NVTX domains.

use std::collections::HashMap;
use std::path::PathBuf;

use rusqlite::{Connection, Statement, params};
use steptally_trace_model::{Issues, Severity};

use super::cells;
use super::schema::Schema;

/// A process: `globalPid`, which is hardware, virtual machine and OS process id, thread bits zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GlobalPid(pub(super) i64);

impl GlobalPid {
    /// Rows that do not say whose they are.
    pub(super) const UNKNOWN: Self = Self(i64::MIN);

    /// The process of a `globalTid` or `globalPid` cell.
    pub(super) fn of(global: Option<i64>) -> Self {
        global.map_or(Self::UNKNOWN, |global| Self(global & !0xFF_FFFF))
    }

    /// The OS process id as text, empty when unknown.
    pub(super) fn os_pid(self) -> String {
        if self == Self::UNKNOWN { String::new() } else { ((self.0 >> 24) & 0xFF_FFFF).to_string() }
    }

    /// The OS process id, as tables about processes have it.
    pub(super) fn number(self) -> Option<i64> {
        (self != Self::UNKNOWN).then_some((self.0 >> 24) & 0xFF_FFFF)
    }

    /// Hardware and virtual machine: `globalVid`.
    pub(super) fn machine(self) -> i64 {
        self.0 & !0xFFFF_FFFF_FFFF
    }
}

/// The readers' view of an export.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) schema: Schema,
    strings: StringTable,
    pub(super) memory_kinds: Enumeration,
    pub(super) copy_kinds: Enumeration,
    pub(super) event_types: Enumeration,
    /// NVTX domain names by process and domain id.
    pub(super) domains: HashMap<(GlobalPid, i64), String>,
    /// NVTX category names by process, domain id and category.
    pub(super) categories: HashMap<(GlobalPid, i64, i64), String>,
    /// Counter names by `typeId` and `metricId`.
    pub(super) metrics: HashMap<(i64, i64), String>,
}

/// How a string is found by its id.
#[derive(Debug)]
enum StringTable {
    Absent,
    /// The id is the table's key.
    ById,
    /// The row of each id.
    ByRow(HashMap<i64, i64>),
}

/// The names of an enumeration's numbers, from the export or as known.
#[derive(Debug, Default)]
pub(super) struct Enumeration {
    names: HashMap<i64, String>,
}

impl Enumeration {
    fn read(connection: &Connection, schema: &Schema, table: &str, known: &[(i64, &str)]) -> Self {
        let mut names: HashMap<i64, String> =
            known.iter().map(|&(id, name)| (id, name.to_owned())).collect();
        if let Some(sql) = schema.select(table, &["id", "name"]) {
            // An enumeration that cannot be read leaves the known numbers.
            let _ = each_row(connection, &sql, |row| {
                if let (Some(id), Some(name)) = (cells::int(row, 0), cells::text(row, 1)) {
                    names.insert(id, name);
                }
            });
        }
        Self { names }
    }

    /// The name of a number; empty when there is none.
    pub(super) fn name(&self, id: i64) -> &str {
        self.names.get(&id).map_or("", String::as_str)
    }
}

const MEMORY_KINDS: &[(i64, &str)] = &[
    (0, "KIND_PAGEABLE"),
    (1, "KIND_PINNED"),
    (2, "KIND_DEVICE"),
    (3, "KIND_ARRAY"),
    (4, "KIND_MANAGED"),
    (5, "KIND_DEVICE_STATIC"),
    (6, "KIND_MANAGED_STATIC"),
];

const COPY_KINDS: &[(i64, &str)] = &[
    (1, "KIND_HTOD"),
    (2, "KIND_DTOH"),
    (3, "KIND_HTOA"),
    (4, "KIND_ATOH"),
    (5, "KIND_ATOA"),
    (6, "KIND_ATOD"),
    (7, "KIND_DTOA"),
    (8, "KIND_DTOD"),
    (9, "KIND_HTOH"),
    (10, "KIND_PTOP"),
    (11, "KIND_UVM_HTOD"),
    (12, "KIND_UVM_DTOH"),
    (13, "KIND_UVM_DTOD"),
];

const EVENT_TYPES: &[(i64, &str)] = &[
    (33, "NvtxCategory"),
    (34, "NvtxMark"),
    (39, "NvtxThread"),
    (59, "NvtxPushPopRange"),
    (60, "NvtxStartEndRange"),
    (64, "NvtxtCategory"),
    (65, "NvtxtMark"),
    (70, "NvtxtPushPopRange"),
    (71, "NvtxtStartEndRange"),
    (75, "NvtxDomainCreate"),
    (76, "NvtxDomainDestroy"),
];

impl Source {
    pub(super) fn new(
        path: PathBuf,
        connection: &Connection,
        schema: Schema,
        issues: &mut Issues,
    ) -> Self {
        let enumeration = |table, known| Enumeration::read(connection, &schema, table, known);
        let memory_kinds = enumeration("ENUM_CUDA_MEM_KIND", MEMORY_KINDS);
        let copy_kinds = enumeration("ENUM_CUDA_MEMCPY_OPER", COPY_KINDS);
        let event_types = enumeration("ENUM_NSYS_EVENT_TYPE", EVENT_TYPES);
        let strings = StringTable::read(connection, &schema, issues);
        let mut source = Self {
            path,
            schema,
            strings,
            memory_kinds,
            copy_kinds,
            event_types,
            domains: HashMap::new(),
            categories: HashMap::new(),
            metrics: HashMap::new(),
        };
        source.read_nvtx_names(connection, issues);
        source.read_metric_names(connection, issues);
        source
    }

    /// Domains and categories, which ranges of any later or earlier row refer to.
    fn read_nvtx_names(&mut self, connection: &Connection, issues: &mut Issues) {
        let columns = ["eventType", "globalTid", "domainId", "category", "text", "textId"];
        let Some(sql) = self.schema.select("NVTX_EVENTS", &columns) else {
            return;
        };
        if !self.schema.column("NVTX_EVENTS", "eventType") {
            return;
        }
        let kinds: Vec<String> = self
            .event_types
            .names
            .iter()
            .filter(|(_, name)| {
                matches!(name.as_str(), "NvtxDomainCreate" | "NvtxCategory" | "NvtxtCategory")
            })
            .map(|(id, _)| id.to_string())
            .collect();
        let sql = format!("{sql} WHERE eventType IN ({})", kinds.join(", "));
        let mut names = self.names(connection);
        let (mut domains, mut categories) = (HashMap::new(), HashMap::new());
        let result = each_row(connection, &sql, |row| {
            let process = GlobalPid::of(cells::int(row, 1));
            let domain = cells::int(row, 2).unwrap_or(0);
            let text = cells::text(row, 4)
                .or_else(|| names.fetch(cells::int(row, 5)?).map(|text| lossy(&text)));
            let Some(text) = text else { return };
            let kind = self.event_types.name(cells::int(row, 0).unwrap_or(-1));
            if kind == "NvtxDomainCreate" {
                domains.insert((process, domain), text);
            } else if let Some(category) = cells::int(row, 3) {
                categories.insert((process, domain, category), text);
            }
        });
        drop(names);
        note_unreadable(issues, "NVTX_EVENTS", result);
        self.domains = domains;
        self.categories = categories;
    }

    fn read_metric_names(&mut self, connection: &Connection, issues: &mut Issues) {
        let table = "TARGET_INFO_GPU_METRICS";
        let columns = ["typeId", "metricId", "metricName"];
        let Some(sql) = self.schema.select(table, &columns) else {
            return;
        };
        let mut metrics = HashMap::new();
        let result = each_row(connection, &sql, |row| {
            if let (Some(metric), Some(name)) = (cells::int(row, 1), cells::text(row, 2)) {
                metrics.insert((cells::int(row, 0).unwrap_or(-1), metric), name);
            }
        });
        note_unreadable(issues, table, result);
        self.metrics = metrics;
    }

    /// A reader of single strings on `connection`.
    pub(super) fn names<'c>(&'c self, connection: &'c Connection) -> Names<'c> {
        let sql = match &self.strings {
            StringTable::Absent => {
                return Names { table: &self.strings, statement: None };
            }
            StringTable::ById => "SELECT value FROM StringIds WHERE id = ?1",
            StringTable::ByRow(_) => "SELECT value FROM StringIds WHERE rowid = ?1",
        };
        Names { table: &self.strings, statement: connection.prepare(sql).ok() }
    }
}

impl StringTable {
    fn read(connection: &Connection, schema: &Schema, issues: &mut Issues) -> Self {
        if !schema.column("StringIds", "id") || !schema.column("StringIds", "value") {
            return Self::Absent;
        }
        // Only where the id is no key its rows must be looked up; a scan for each would be too slow.
        let key =
            "SELECT count(*) FROM pragma_table_info('StringIds') WHERE name = 'id' AND pk = 1";
        if connection.query_row(key, [], |row| row.get::<_, i64>(0)).is_ok_and(|keys| keys == 1) {
            return Self::ById;
        }
        let mut rows = HashMap::new();
        let result = each_row(connection, "SELECT id, rowid FROM StringIds", |row| {
            if let (Some(id), Some(rowid)) = (cells::int(row, 0), cells::int(row, 1)) {
                rows.entry(id).or_insert(rowid);
            }
        });
        note_unreadable(issues, "StringIds", result);
        Self::ByRow(rows)
    }
}

/// Fetches strings one by one, so that a string which no row uses is never read.
pub(super) struct Names<'c> {
    table: &'c StringTable,
    statement: Option<Statement<'c>>,
}

impl Names<'_> {
    /// The bytes of a string; `None` when it is missing or cannot be read.
    pub(super) fn fetch(&mut self, id: i64) -> Option<Vec<u8>> {
        let key = match self.table {
            StringTable::Absent => return None,
            StringTable::ById => id,
            StringTable::ByRow(rows) => *rows.get(&id)?,
        };
        let statement = self.statement.as_mut()?;
        statement
            .query_row(params![key], |row| Ok(cells::bytes(row, 0).map(<[u8]>::to_vec)))
            .ok()?
    }
}

/// Runs a query and hands each row over. Rows before an error have been handed over.
pub(super) fn each_row(
    connection: &Connection,
    sql: &str,
    mut each: impl FnMut(&rusqlite::Row<'_>),
) -> Result<(), rusqlite::Error> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each(row);
    }
    Ok(())
}

/// Notes that a table could be read in part only.
pub(super) fn note_unreadable(
    issues: &mut Issues,
    table: &str,
    result: Result<(), rusqlite::Error>,
) {
    if let Err(error) = result {
        issues.note("unreadable_rows", Severity::Error, None, || format!("{table}: {error}"));
    }
}

/// Bytes as text, what is not UTF-8 replaced.
pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
