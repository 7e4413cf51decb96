//! Whether what we know is complete and fresh: `/readyz` tells the truth by this.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// A watch lives at most 200 s, so a longer silence means that it died unseen.
const SILENCE_MAX: Duration = Duration::from_secs(240);

/// The pulse of all watches, and whether this process leads.
#[derive(Debug, Default)]
pub struct Pulse {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    kinds: BTreeMap<&'static str, Beat>,
    leading: bool,
    owner: Option<Instant>,
}

#[derive(Debug, Default)]
struct Beat {
    synced: bool,
    failing: bool,
    last: Option<Instant>,
}

impl Pulse {
    /// Kinds that must be synced before we are ready.
    pub fn expect(&self, kinds: &[&'static str]) {
        self.with(|inner| {
            for kind in kinds {
                inner.kinds.entry(kind).or_default();
            }
        });
    }

    /// A sign of life of one kind's watch; the time as seconds since 1970.
    pub fn beat(&self, kind: &'static str) -> f64 {
        self.with(|inner| {
            let beat = inner.kinds.entry(kind).or_default();
            beat.last = Some(Instant::now());
            beat.failing = false;
        });
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
    }

    /// One kind was listed wholly.
    pub fn synced(&self, kind: &'static str) {
        self.with(|inner| inner.kinds.entry(kind).or_default().synced = true);
    }

    /// One kind's watch is in trouble.
    pub fn failed(&self, kind: &'static str) {
        self.with(|inner| inner.kinds.entry(kind).or_default().failing = true);
    }

    /// Whether this process leads.
    pub fn set_leading(&self, leading: bool) {
        self.with(|inner| inner.leading = leading);
    }

    /// The owner of the state has come round.
    pub fn owner_turned(&self) {
        self.with(|inner| inner.owner = Some(Instant::now()));
    }

    /// Whether the owner of the state has come round lately (a stuck owner is restarted).
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.with(|inner| inner.owner.is_none_or(|at| at.elapsed() < Duration::from_secs(120)))
    }

    /// Whether all kinds have been listed.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.with(|inner| inner.kinds.values().all(|b| b.synced))
    }

    /// Ready, or why not. A standby is ready when it stands by.
    ///
    /// # Errors
    /// What is missing, one line for each kind.
    pub fn ready(&self) -> Result<&'static str, String> {
        self.with(|inner| {
            if !inner.leading {
                return Ok("standing by");
            }
            let mut missing = String::new();
            for (kind, beat) in &inner.kinds {
                let silence = beat.last.map(|at| at.elapsed());
                let trouble = match silence {
                    _ if !beat.synced => "not listed yet",
                    _ if beat.failing => "its watch fails",
                    Some(silence) if silence > SILENCE_MAX => "its watch is silent",
                    _ => continue,
                };
                missing.push_str(&format!("{kind}: {trouble}\n"));
            }
            if missing.is_empty() { Ok("leading") } else { Err(missing) }
        })
    }

    fn with<T>(&self, done: impl FnOnce(&mut Inner) -> T) -> T {
        done(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_ready_only_when_every_kind_was_listed_and_none_fails() {
        let pulse = Pulse::default();
        assert_eq!(pulse.ready(), Ok("standing by"));
        pulse.expect(&["Node", "Pod"]);
        pulse.set_leading(true);
        assert_eq!(pulse.ready(), Err("Node: not listed yet\nPod: not listed yet\n".to_owned()));
        for kind in ["Node", "Pod"] {
            pulse.beat(kind);
            pulse.synced(kind);
        }
        assert_eq!(pulse.ready(), Ok("leading"));
        pulse.failed("Pod");
        assert_eq!(pulse.ready(), Err("Pod: its watch fails\n".to_owned()));
        pulse.beat("Pod");
        assert_eq!(pulse.ready(), Ok("leading"));
    }
}
