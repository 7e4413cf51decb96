//! The standing contest of queues' heads: a tree of ordered sets, so that one change costs a walk up one lineage.

use super::Shares;
use super::order::{Head, Standing};
use crate::ids::QueueIdx;
use crate::state::Tally;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A family's entry among its siblings: standing, then its head, then its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    standing: Standing,
    priority: Reverse<i64>,
    queued_at: Time,
    sequence: u64,
    name: Arc<str>,
    /// The family and the queue whose head it sends.
    family: QueueIdx,
    leaf: QueueIdx,
}

/// A queue's head as the contest keeps it.
#[derive(Clone, Debug)]
struct Kept {
    priority: i64,
    queued_at: Time,
    sequence: u64,
    demand: Tally,
}

/// The heads of all queues, best first. Every family sends its best head; families meet under their parent.
#[derive(Clone, Debug)]
pub struct Contest {
    heads: Vec<Option<Kept>>,
    /// Per family: its entry under its parent, if it has a head.
    entries: Vec<Option<Entry>>,
    /// Per queue: entries of its children, and its own head's.
    rivals: Vec<BTreeSet<Entry>>,
}

impl Contest {
    /// Without any heads.
    #[must_use]
    pub fn new(shares: &Shares) -> Self {
        let count = shares.children.len();
        Self { heads: vec![None; count], entries: vec![None; count], rivals: vec![BTreeSet::new(); count] }
    }

    /// Replaces the head of a queue, and brings its lineage up to date with the shares.
    pub fn set(&mut self, shares: &Shares, queue: QueueIdx, head: Option<&Head>) {
        self.heads[queue.row()] = head.map(|h| Kept {
            priority: h.priority,
            queued_at: h.queued_at,
            sequence: h.sequence,
            demand: h.demand.clone(),
        });
        self.refresh(shares, queue);
    }

    /// To be called for a queue whose use changed (a start, a stop) while its head stays.
    pub fn refresh(&mut self, shares: &Shares, queue: QueueIdx) {
        let state = shares.snapshot.state;
        for here in state.lineage(queue) {
            let own = self.heads[here.row()].as_ref().map(|_| here);
            let leaf = own.or_else(|| self.rivals[here.row()].first().map(|best| best.leaf));
            let new = leaf.and_then(|leaf| self.entry(shares, here, leaf));
            let old = std::mem::replace(&mut self.entries[here.row()], new.clone());
            if here == QueueIdx::ROOT {
                break;
            }
            let rivals = &mut self.rivals[state.queue(here).parent.row()];
            if let Some(old) = old {
                rivals.remove(&old);
            }
            rivals.extend(new);
        }
    }

    fn entry(&self, shares: &Shares, family: QueueIdx, leaf: QueueIdx) -> Option<Entry> {
        let head = self.heads[leaf.row()].as_ref()?;
        Some(Entry {
            standing: shares.standing(family, &head.demand),
            priority: Reverse(head.priority),
            queued_at: head.queued_at,
            sequence: head.sequence,
            name: shares.snapshot.state.queue(family).name.clone(),
            family,
            leaf,
        })
    }

    /// The queue whose head goes next.
    #[must_use]
    pub fn best(&self) -> Option<QueueIdx> {
        self.entries[QueueIdx::ROOT.row()].as_ref().map(|e| e.leaf)
    }
}
