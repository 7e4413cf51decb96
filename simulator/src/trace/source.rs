//! A text file, gzipped or not, with the errors that point into it.

use flate2::read::MultiGzDecoder;
use std::fmt;
use std::io::Read;
use std::path::Path;

/// Why a file cannot be used: where, which field, and what is accepted instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The file.
    pub file: String,
    /// Line from 1; 0 when it is about the whole file.
    pub line: usize,
    /// Name of the field; empty when it is about the whole line.
    pub field: String,
    /// What is wrong and what is accepted.
    pub problem: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.field.is_empty() {
            write!(f, ": field {}", self.field)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for TraceError {}

/// A file's text and name.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
}

impl Source {
    /// Reads a file; gzip is recognised by its first bytes, not by its name.
    ///
    /// # Errors
    /// If it cannot be read, is a damaged archive or no UTF-8.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let whole = |problem: String| TraceError { file: name.clone(), line: 0, field: String::new(), problem };
        let bytes = std::fs::read(path).map_err(|e| whole(format!("cannot be read: {e}")))?;
        let text = if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut text = String::new();
            MultiGzDecoder::new(&bytes[..])
                .read_to_string(&mut text)
                .map_err(|e| whole(format!("is no readable gzip text: {e}")))?;
            text
        } else {
            String::from_utf8(bytes).map_err(|e| whole(format!("is no UTF-8 text: {e}")))?
        };
        Ok(Self { name, text })
    }

    /// A source from memory, for tests.
    #[must_use]
    pub fn of(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.to_owned() }
    }

    /// Its lines with their numbers from 1, without blank ones.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(row, line)| (row + 1, line)).filter(|(_, line)| !line.trim().is_empty())
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An error at a line and field.
    #[must_use]
    pub fn error(&self, line: usize, field: &str, problem: impl Into<String>) -> TraceError {
        TraceError { file: self.name.clone(), line, field: field.to_owned(), problem: problem.into() }
    }
}
