//! Alibaba Lingjun 2023 `topo.csv`: `ip,DSW,PSW,ASW`. A leaf is (PSW, ASW): ASW names repeat under every PSW.

use super::{ClusterMap, MappedNode};
use crate::trace::{Source, Table, TraceError};

/// Columns of the levels, broadest first.
const LEVELS: [&str; 3] = ["DSW", "PSW", "ASW"];

/// Reads the hosts in file order.
///
/// # Errors
/// If a column is missing or empty.
pub fn read(source: &Source) -> Result<ClusterMap, TraceError> {
    let table = Table::read(source, None)?;
    let mut nodes = Vec::new();
    for line in table.rows() {
        let mut path = Vec::new();
        for level in LEVELS {
            let name = line.text(level)?;
            if name.is_empty() {
                return Err(line.error(level, "is empty; every host needs a switch at each level"));
            }
            path.push(name.into());
        }
        nodes.push(MappedNode { name: line.text("ip")?.into(), path, gpus: None });
    }
    Ok(ClusterMap { levels: LEVELS.iter().map(|l| l.to_lowercase().into()).collect(), nodes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_known_by_its_whole_path() {
        let map = read(&Source::of("topo.csv", "ip,DSW,PSW,ASW\na,G6,P10,S14\nb,G6,P12,S14\n")).unwrap();
        assert_eq!(map.levels.iter().map(|l| &**l).collect::<Vec<_>>(), ["dsw", "psw", "asw"]);
        assert_ne!(map.nodes[0].path, map.nodes[1].path);
        assert_eq!(map.clone().subtree("P12").unwrap().nodes.len(), 1);
        assert!(map.subtree("P9").is_none());
    }
}
