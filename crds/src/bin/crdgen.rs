//! Writes what is generated from the types: config/crd, docs/reference/codes.md and docs/reference/api.md.
//! `crdgen ROOT` writes below ROOT (default: the working directory); `make crds` runs it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crds::generated;

fn main() -> io::Result<()> {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    generated::files().into_iter().try_for_each(|(path, text)| write(&root.join(path), &text))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}
