//! Which of two sights of an object is the newer one, and which objects are known to be gone: answers to our own writes
//! come before, after, or instead of what the watch shows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeSet, VecDeque};

/// Uids remembered after a deletion: more than one batch of answers can still bring.
const REMEMBERED: usize = 65_536;

/// Uids of objects seen deleted lately: a late answer to our own write does not bring them back.
#[derive(Debug, Default)]
pub struct Tombstones {
    set: BTreeSet<String>,
    order: VecDeque<String>,
}

impl Tombstones {
    /// Notes that an object is gone for good.
    pub fn bury(&mut self, uid: &str) {
        if self.set.insert(uid.to_owned()) {
            self.order.push_back(uid.to_owned());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
    }

    /// Whether an object was seen deleted.
    #[must_use]
    pub fn holds(&self, uid: &str) -> bool {
        self.set.contains(uid)
    }
}

/// Whether `seen` is older than `known`: the same object with a lower resourceVersion.
#[must_use]
pub fn is_older(seen: &ObjectMeta, known: &ObjectMeta) -> bool {
    let version = |m: &ObjectMeta| m.resource_version.as_deref().and_then(|v| v.parse::<u128>().ok());
    seen.uid == known.uid && matches!((version(seen), version(known)), (Some(seen), Some(known)) if seen < known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, version: &str) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.into()), resource_version: Some(version.into()), ..ObjectMeta::default() }
    }

    #[test]
    fn versions_are_numbers_and_only_compare_within_one_object() {
        assert!(is_older(&meta("a", "9"), &meta("a", "10")));
        assert!(!is_older(&meta("a", "10"), &meta("a", "10")));
        assert!(!is_older(&meta("b", "9"), &meta("a", "10")));
        assert!(!is_older(&meta("a", "opaque"), &meta("a", "10")));
    }

    #[test]
    fn the_oldest_tombstones_are_forgotten_first() {
        let mut stones = Tombstones::default();
        for n in 0..=REMEMBERED {
            stones.bury(&n.to_string());
        }
        assert!(!stones.holds("0"));
        assert!(stones.holds("1"));
    }
}
