//! Why a figure misses its mark and what was tried: shown in the table beside it, and only while it misses.

/// Part of a figure's name, and what is to be said.
const WHY: [(&str, &str); 0] = [];

/// What is to be said of a missed figure.
pub(crate) fn why(name: &str) -> Option<&'static str> {
    WHY.iter().find(|(part, _)| name.contains(part)).map(|(_, why)| *why)
}
