//! Values of SQLite cells, whatever type they were stored with.

use rusqlite::Row;
use rusqlite::types::ValueRef;

/// The integer in column `index`: stored as integer, as a whole real number or as decimal text.
/// `None` for NULL, anything else, and a column that the query lacks.
pub(super) fn int(row: &Row<'_>, index: usize) -> Option<i64> {
    match row.get_ref(index).ok()? {
        ValueRef::Integer(value) => Some(value),
        ValueRef::Null | ValueRef::Blob(_) => None,
        // Every f64 up to 2^53 in size stands for one integer.
        ValueRef::Real(value) => {
            (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then_some(value as i64)
        }
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
    }
}

/// The number in column `index`.
pub(super) fn real(row: &Row<'_>, index: usize) -> Option<f64> {
    match row.get_ref(index).ok()? {
        ValueRef::Real(value) => Some(value),
        ValueRef::Integer(value) => Some(value as f64),
        ValueRef::Null | ValueRef::Blob(_) => None,
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
    }
}

/// The bytes of the text (or blob) in column `index`; `None` for NULL and numbers.
pub(super) fn bytes<'r>(row: &'r Row<'_>, index: usize) -> Option<&'r [u8]> {
    match row.get_ref(index).ok()? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes),
        _ => None,
    }
}

/// The text in column `index`, numbers in decimal; what is not UTF-8 is replaced.
pub(super) fn text(row: &Row<'_>, index: usize) -> Option<String> {
    Some(match row.get_ref(index).ok()? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        ValueRef::Integer(value) => value.to_string(),
        ValueRef::Real(value) => value.to_string(),
        ValueRef::Null => return None,
    })
}

/// An id column: `None` for NULL, negative numbers and 0xFFFFFFFF, which stands for "none".
pub(super) fn id(row: &Row<'_>, index: usize) -> Option<u64> {
    int(row, index)
        .and_then(|value| u64::try_from(value).ok())
        .filter(|&value| value != 0xFFFF_FFFF)
}

/// A small count or size: `None` for NULL and what does not fit.
pub(super) fn small(row: &Row<'_>, index: usize) -> Option<u32> {
    int(row, index).and_then(|value| u32::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    fn ints(sql: &str) -> Vec<Option<i64>> {
        let db = Connection::open_in_memory().unwrap();
        db.query_row(sql, [], |row| {
            Ok((0..row.as_ref().column_count()).map(|index| int(row, index)).collect())
        })
        .unwrap()
    }

    #[test]
    fn integers_are_read_from_any_type() {
        assert_eq!(
            ints("SELECT 7, ' 8 ', 9.0, 9.5, NULL, 'x', x'00', 1e300"),
            [Some(7), Some(8), Some(9), None, None, None, None, None]
        );
        assert_eq!(ints("SELECT 9223372036854775807"), [Some(i64::MAX)]);
    }

    #[test]
    fn other_types() {
        let db = Connection::open_in_memory().unwrap();
        db.query_row("SELECT 4294967295, -1, 3, '2.5', CAST(x'41FF' AS TEXT), 12", [], |row| {
            assert_eq!((id(row, 0), id(row, 1), id(row, 2)), (None, None, Some(3)));
            assert_eq!((small(row, 1), small(row, 2)), (None, Some(3)));
            assert_eq!((real(row, 3), real(row, 4)), (Some(2.5), None));
            assert_eq!(text(row, 4).as_deref(), Some("A\u{fffd}"));
            assert_eq!(text(row, 5).as_deref(), Some("12"));
            assert_eq!((bytes(row, 4), bytes(row, 5)), (Some(&b"A\xff"[..]), None));
            assert_eq!(int(row, 99), None);
            Ok(())
        })
        .unwrap();
    }
}
