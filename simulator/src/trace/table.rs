//! A CSV file with a header, read by column names.

use super::{Source, TraceError};
use crate::number;

/// The rows of a CSV file and where its columns are.
pub struct Table<'a> {
    source: &'a Source,
    header: Vec<String>,
    rows: Vec<(usize, csv::StringRecord)>,
}

/// One row of a [`Table`].
#[derive(Clone, Copy)]
pub struct Row<'a> {
    source: &'a Source,
    header: &'a [String],
    line: usize,
    record: &'a csv::StringRecord,
}

impl<'a> Table<'a> {
    /// Reads the header and all rows. `header` names the columns of files that come without one.
    ///
    /// # Errors
    /// If the text is no CSV.
    pub fn read(source: &'a Source, header: Option<&[&str]>) -> Result<Self, TraceError> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(header.is_none())
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(source.text().as_bytes());
        let unreadable = |e: csv::Error| {
            let line = e.position().map_or(0, |p| usize::try_from(p.line()).unwrap_or(0));
            source.error(line, "", format!("is no CSV row: {e}"))
        };
        let header = match header {
            Some(names) => names.iter().map(|n| (*n).to_owned()).collect(),
            None => reader.headers().map_err(unreadable)?.iter().map(str::to_owned).collect(),
        };
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(unreadable)?;
            let line = record.position().map_or(0, |p| usize::try_from(p.line()).unwrap_or(0));
            rows.push((line, record));
        }
        Ok(Self { source, header, rows })
    }

    /// Whether the header names a column.
    #[must_use]
    pub fn has(&self, column: &str) -> bool {
        self.header.iter().any(|h| h == column)
    }

    /// The first of several names that the header knows.
    ///
    /// # Errors
    /// If it knows none of them; the message lists what is accepted and what is there.
    pub fn column<'n>(&self, accepted: &[&'n str]) -> Result<&'n str, TraceError> {
        accepted.iter().copied().find(|name| self.has(name)).ok_or_else(|| {
            self.source.error(
                1,
                accepted.first().copied().unwrap_or(""),
                format!(
                    "no such column; accepted: {}; the header has: {}",
                    accepted.join(", "),
                    self.header.join(", ")
                ),
            )
        })
    }

    /// The rows in file order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|(line, record)| Row { source: self.source, header: &self.header, line: *line, record })
    }
}

impl<'a> Row<'a> {
    /// Line in the file.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The text of a column; empty if the row ends before it.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn text(&self, column: &str) -> Result<&'a str, TraceError> {
        let at = self.header.iter().position(|h| h == column);
        let at =
            at.ok_or_else(|| self.source.error(1, column, format!("no such column in: {}", self.header.join(", "))))?;
        Ok(self.record.get(at).unwrap_or(""))
    }

    /// Microseconds of a column of decimal seconds.
    ///
    /// # Errors
    /// If it is no number.
    pub fn micros(&self, column: &str) -> Result<i64, TraceError> {
        let text = self.text(column)?;
        number::micros(text)
            .ok_or_else(|| self.error(column, format!("{text:?} is no number of seconds; write 162 or 162.5")))
    }

    /// A whole number that may be written with a zero fraction (`8`, `8.0`).
    ///
    /// # Errors
    /// If it is no whole number, or negative.
    pub fn count(&self, column: &str) -> Result<u64, TraceError> {
        let text = self.text(column)?;
        let whole = number::micros(text).filter(|m| *m >= 0 && m % 1_000_000 == 0).map(|m| m / 1_000_000);
        whole
            .and_then(|n| u64::try_from(n).ok())
            .ok_or_else(|| self.error(column, format!("{text:?} is no whole number of 0 or more")))
    }

    /// An error at a column of this row.
    #[must_use]
    pub fn error(&self, column: &str, problem: impl Into<String>) -> TraceError {
        self.source.error(self.line, column, problem)
    }
}
