//! How the members of a job's Berth fare: each seat with its pod, and pods that have no seat.

use crate::commit::{is_terminal, owner_uid};
use crate::state::World;
use crate::state::seat_of;
use crds::v1alpha1::{BerthState, TrainingJob};
use crds::{Berth, names::conditions};
use k8s_openapi::api::core::v1::Pod;
use planner::Time;
use std::collections::BTreeMap;
use std::sync::Arc;
use translate::lifecycle::environment::members;
use translate::lifecycle::failure::{Failure, Outcome, classify};
use translate::lifecycle::{naming, stages, success};

/// How a seat fares.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// No pod of it was made yet.
    Missing,
    /// Its pod lives.
    Alive {
        /// Its kubelet has taken it.
        accepted: bool,
        /// It is ready.
        ready: bool,
    },
    /// Its pod ended well.
    Succeeded,
    /// The user's code failed.
    Failed(Failure),
    /// Lost without fault of its own: node gone, evicted, deleted, refused.
    Lost(Failure),
}

/// One seat.
#[derive(Clone, Debug)]
pub struct SeatLook {
    /// Row of the role.
    pub role: usize,
    /// Index in the role.
    pub index: i32,
    /// Rank in the job.
    pub rank: i64,
    /// Its node.
    pub node: String,
    /// The pod that sits there, the newest if there were several.
    pub pod: Option<Arc<Pod>>,
    /// Number of the next attempt.
    pub attempt: u32,
    /// How it fares.
    pub fate: Fate,
}

/// A committed Berth with its members.
#[derive(Clone, Debug)]
pub struct Look {
    /// The Berth.
    pub berth: Arc<Berth>,
    /// Its seats by rank.
    pub seats: Vec<SeatLook>,
    /// All pods it owns.
    pub pods: Vec<Arc<Pod>>,
    /// Live pods of it that sit nowhere: superseded, or of a seat that was given up.
    pub strays: Vec<Arc<Pod>>,
    /// Rows of the roles whose turn it is.
    pub startable: Vec<usize>,
}

/// Looks at a job's committed Berth; none if it has none.
#[must_use]
pub fn look(world: &World, key: &str, job: &TrainingJob, now: Time) -> Option<Look> {
    let berths = world.berths(key, job);
    let name = berths.current.filter(|b| b.spec.state == BerthState::Committed)?.metadata.name.clone()?;
    let berth = world.index.berths.get(&format!("{}/{name}", job.metadata.namespace.as_deref().unwrap_or_default()))?;
    let uid = berth.metadata.uid.as_deref();
    let mut by_seat: BTreeMap<(String, i32), Vec<Arc<Pod>>> = BTreeMap::new();
    let mut pods = Vec::new();
    for (_, pod) in world.index.pods_of_job(key) {
        if owner_uid(&pod.metadata) == uid {
            pods.push(pod.clone());
        }
        if let (Some(role), Some(index)) = seat_of(pod) {
            let index = i32::try_from(index).unwrap_or(i32::MAX);
            by_seat.entry((role.to_owned(), index)).or_default().push(pod.clone());
        }
    }
    let started = has_started(job, berth);
    let job_name = job.metadata.name.as_deref().unwrap_or_default();
    let mut strays: BTreeMap<String, Arc<Pod>> = pods
        .iter()
        .filter(|p| !is_terminal(p) && p.metadata.deletion_timestamp.is_none())
        .map(|p| (p.metadata.uid.clone().unwrap_or_default(), p.clone()))
        .collect();
    let mut seats = Vec::new();
    for member in members(job, berth) {
        let known = by_seat.get(&(member.role_name.to_owned(), member.index)).map_or(&[][..], Vec::as_slice);
        let attempt_of = |p: &Pod| {
            let name = p.metadata.name.as_deref().unwrap_or_default();
            naming::attempt_of(name, job_name, member.role_name, member.index).unwrap_or(0)
        };
        let attempt = known.iter().map(|p| attempt_of(p)).max().unwrap_or(0) + 1;
        let sits = |p: &&Arc<Pod>| owner_uid(&p.metadata) == uid && translate::pod::node_of(p) == Some(member.node);
        let pod = known.iter().filter(sits).max_by_key(|p| attempt_of(p)).cloned();
        if let Some(pod) = &pod {
            strays.remove(pod.metadata.uid.as_deref().unwrap_or_default());
        }
        let fate = fate(world, job, pod.as_deref(), member.node, started, now);
        let (role, index, rank, node) = (member.role, member.index, member.rank, member.node.to_owned());
        seats.push(SeatLook { role, index, rank, node, pod, attempt, fate });
    }
    let ready = |role: usize| {
        let mut of_role = seats.iter().filter(|s| s.role == role).peekable();
        of_role.peek().is_some() && of_role.all(|s| matches!(s.fate, Fate::Alive { ready: true, .. } | Fate::Succeeded))
    };
    let startable = stages::startable(&job.spec.roles, ready);
    Some(Look { berth: berth.clone(), seats, pods, strays: strays.into_values().collect(), startable })
}

fn fate(world: &World, job: &TrainingJob, pod: Option<&Pod>, node: &str, started: bool, now: Time) -> Fate {
    let lost =
        |reason: &str, message: String| Fate::Lost(Failure { exit_code: None, reason: reason.to_owned(), message });
    let Some(pod) = pod else {
        // Before Started a pod that is not there was not made yet; after it, somebody removed it.
        return if started { lost("Deleted", "the pod is gone".to_owned()) } else { Fate::Missing };
    };
    match classify(pod, &job.spec.failure_policy) {
        Outcome::Succeeded => return Fate::Succeeded,
        Outcome::User(failure) => return Fate::Failed(failure),
        Outcome::Infrastructure(failure) | Outcome::Refused(failure) => return Fate::Lost(failure),
        Outcome::Alive => {}
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return lost("Deleted", "the pod is being deleted by somebody else".to_owned());
    }
    match world.index.nodes.get(node) {
        None => return lost("NodeLost", format!("node {node} is gone")),
        Some(there) if translate::node::facts(there).lost(now, world.settings.node_lost_after) => {
            return lost("NodeLost", format!("node {node} does not answer"));
        }
        Some(_) => {}
    }
    let status = pod.status.as_ref();
    let accepted = status.is_some_and(|s| s.start_time.is_some());
    if !accepted && age(pod, now) > world.settings.accept_timeout {
        return lost("NotAccepted", format!("the kubelet of {node} has not taken the pod"));
    }
    let conditions = status.and_then(|s| s.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    Fate::Alive { accepted, ready }
}

/// How long a pod exists.
fn age(pod: &Pod, now: Time) -> planner::Span {
    let made = pod.metadata.creation_timestamp.clone().map(|t| translate::time::time(t.into()));
    made.map_or(planner::Span::ZERO, |made| now.since(made))
}

/// Whether this incarnation has started: all its pods were there at one time.
#[must_use]
pub fn has_started(job: &TrainingJob, berth: &Berth) -> bool {
    let Some(status) = &job.status else { return false };
    status.incarnation == Some(berth.spec.incarnation)
        && status.conditions.iter().any(|c| c.type_ == conditions::STARTED && c.status == "True")
}

impl Look {
    /// Whether the seats that stay make a gang: no role below its floor.
    #[must_use]
    pub fn holds_without(&self, job: &TrainingJob, stays: impl Fn(&SeatLook) -> bool) -> bool {
        job.spec.roles.iter().enumerate().all(|(row, role)| {
            let fine = |s: &&SeatLook| s.role == row && (s.fate == Fate::Succeeded || stays(s));
            let count = self.seats.iter().filter(fine).count();
            i64::try_from(count).unwrap_or(i64::MAX) >= i64::from(role.floor())
        })
    }

    /// Whether every seat has or had its pod.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.seats.iter().all(|s| s.fate != Fate::Missing)
    }

    /// Whether every pod was taken by its kubelet, however it fared then.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        let taken =
            |fate: &Fate| matches!(fate, Fate::Alive { accepted: true, .. } | Fate::Succeeded | Fate::Failed(_));
        self.seats.iter().all(|s| taken(&s.fate))
    }

    /// Whether every pod is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.seats.iter().all(|s| matches!(s.fate, Fate::Alive { ready: true, .. } | Fate::Succeeded))
    }

    /// Pods that are ready or ended well.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.seats.iter().filter(|s| matches!(s.fate, Fate::Alive { ready: true, .. } | Fate::Succeeded)).count()
    }

    /// Ranks of members lost without fault of their own, once all had been there.
    #[must_use]
    pub fn lost_ranks(&self) -> Vec<u32> {
        let lost = self.seats.iter().filter(|s| matches!(s.fate, Fate::Lost(_)));
        lost.filter_map(|s| u32::try_from(s.rank).ok()).collect()
    }

    /// Pods by role for the question of success.
    #[must_use]
    pub fn tallies(&self, roles: usize) -> Vec<success::Tally> {
        let mut tallies = vec![success::Tally::default(); roles];
        for seat in &self.seats {
            tallies[seat.role].seats += 1;
            tallies[seat.role].succeeded += u32::from(seat.fate == Fate::Succeeded);
        }
        tallies
    }

    /// Seats whose pod is due and was never made.
    #[must_use]
    pub fn due(&self) -> Vec<&SeatLook> {
        self.seats.iter().filter(|s| s.fate == Fate::Missing && self.startable.contains(&s.role)).collect()
    }
}
