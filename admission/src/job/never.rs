//! Whether a gang could ever be held: by the nodes that are registered, ready or not, all empty.
//!
//! Where nodes may still come (a pool that is empty, not ready or growable) a "never" is only a warning. What fits the
//! empty cluster but not the nodes that are up is a warning too.

use super::JobChange;
use super::floor::floor_text;
use crate::capacity::Capacity;
use crate::verdict::{Missing, Verdict, quoted};
use crate::world::World;
use crds::Code;
use crds::names::conditions;
use crds::v1alpha1::{NODE_LEVEL, Topology, TrainingJob};
use planner::job::JobSpec;
use planner::place::{Never, never_fits};
use planner::resources::{Amounts, ResourceTable};
use planner::room::FixedRoom;
use planner::shape::{NodeSet, Shape, ShapeTable};
use planner::state::ClusterState;
use planner::{DomainIdx, NodeIdx, QueueIdx, ShapeIdx};
use std::fmt::Write;
use translate::PodAsk;
use translate::amounts;
use translate::constraints::Obstacle;
use translate::job::{Inherited, PriorityClasses};
use translate::ports;

/// Steps of the packing search per request: bounds its time; a search that stops is no refusal.
const SEARCH_LIMIT: u32 = 20_000;

pub(super) fn judge(change: JobChange<'_>, world: &World, verdict: &mut Verdict) {
    if change.old.is_some_and(|old| !asks_for_more(change.new, old)) {
        return;
    }
    let Some(question) = Question::of(change.new, &world.capacity()) else { return };
    if slices(change.new, &question, world, verdict) {
        return;
    }
    match question.never(|_| true) {
        None => {
            let open = &question.capacity.open;
            if question.never(|node| open[node.row()]).is_some() {
                verdict.warn(
                    "the floor fits only when nodes that are cordoned or not ready come back: the job waits for them",
                );
            }
        }
        Some(never) => refuse(change.new, &question, &never, world, verdict),
    }
}

/// Judges each role's slice on its own: a slice that fits nowhere is the clearer reason. True if one was refused.
fn slices(job: &TrainingJob, question: &Question, world: &World, verdict: &mut Verdict) -> bool {
    let before = verdict.rejections.len();
    for (row, role) in job.spec.roles.iter().enumerate() {
        let Some(slice) = &role.slice else { continue };
        let Some(Never::FloorExceedsEveryDomain { domain, room, .. }) = question.never_slice(row) else { continue };
        let best = question.capacity.tree.domain(domain).path.clone();
        let best = if best.is_empty() { "the best".to_owned() } else { format!("the best, {best},") };
        let fault = format!(
            "no {} could hold a slice of {} pods of role \"{}\", even empty: {best} has room for {room}; lower the size, or name a wider level",
            slice.within, slice.size, role.name
        );
        let field = format!("spec.roles[{row}].slice.size");
        match may_still_come(job, world) {
            Some(reason) => verdict.warn(format!("{field} is {}: {fault}; accepted, since {reason}", slice.size)),
            None => {
                verdict.refuse(Code::FloorExceedsEveryDomain, field, slice.size, &fault);
                verdict.miss(Missing::Room);
            }
        }
    }
    verdict.rejections.len() > before
}

/// Whether a change could make a job harder to place.
fn asks_for_more(new: &TrainingJob, old: &TrainingJob) -> bool {
    let (a, b) = (&new.spec, &old.spec);
    let harder = |role: &crds::v1alpha1::Role| {
        b.roles.iter().find(|r| r.name == role.name).is_none_or(|before| {
            role.floor() > before.floor() || role.slice != before.slice || role.template != before.template
        })
    };
    a.topology.required != b.topology.required || a.communication != b.communication || a.roles.iter().any(harder)
}

/// A job as the planner asks about it, on the empty cluster.
struct Question {
    capacity: std::sync::Arc<Capacity>,
    resources: ResourceTable,
    shapes: ShapeTable,
    allocatable: Vec<Amounts>,
    asks: Vec<PodAsk>,
    spec: JobSpec,
}

impl Question {
    fn of(job: &TrainingJob, capacity: &std::sync::Arc<Capacity>) -> Option<Self> {
        let asks = translate::job::asks(job).ok()?;
        let mut resources = capacity.resources.clone();
        let mut shapes = ShapeTable::default();
        let rows: Vec<ShapeIdx> = asks
            .iter()
            .map(|ask| {
                let eligible =
                    NodeSet::of(capacity.tree.node_count(), |row| ask.constraints.allows(capacity.node(row)));
                let requests = amounts::rows(&ask.requests, &mut resources);
                shapes.intern(Shape { requests, filter: ask.constraints.key(), eligible })
            })
            .collect();
        let mut allocatable = capacity.allocatable.clone();
        for amounts in &mut allocatable {
            ports::grant(amounts, &resources);
        }
        // Queue and class decide nothing here.
        let mut state = ClusterState::new();
        let mut plain = job.clone();
        plain.spec.priority_class_name = None;
        let queue = translate::job::queue_name(&plain, None).to_owned();
        state.set_queue(planner::queue::Queue::open(&queue, QueueIdx::ROOT));
        let inherited = Inherited { namespace: None, queue: None, classes: &PriorityClasses::default() };
        let spec = translate::job::spec(&plain, inherited, &rows, &state).ok()?;
        Some(Self { capacity: capacity.clone(), resources, shapes, allocatable, asks, spec })
    }

    /// The planner's answer for one slice of a role, alone in its domain.
    fn never_slice(&self, role: usize) -> Option<Never> {
        let mut spec = self.spec.clone();
        let mut alone = spec.roles.swap_remove(role);
        let slice = alone.slice.take()?;
        (alone.floor, alone.replicas) = (slice.size, slice.size);
        spec.locality.required = Some(slice.within);
        spec.locality.preferred = None;
        spec.roles = vec![alone];
        let room = FixedRoom::new(&self.capacity.tree, &self.shapes, self.allocatable.clone());
        never_fits(&room, &spec, SEARCH_LIMIT)
    }

    /// The planner's answer when only these nodes count.
    fn never(&self, counts: impl Fn(NodeIdx) -> bool) -> Option<Never> {
        let free = self.allocatable.iter().enumerate();
        let free = free.map(|(row, a)| if counts(NodeIdx::of(row)) { a.clone() } else { Amounts::default() });
        let room = FixedRoom::new(&self.capacity.tree, &self.shapes, free.collect());
        never_fits(&room, &self.spec, SEARCH_LIMIT)
    }
}

fn refuse(job: &TrainingJob, question: &Question, never: &Never, world: &World, verdict: &mut Verdict) {
    let (code, field, value, fault) = match never {
        Never::NoNode { role } => {
            let name = &job.spec.roles[*role].name;
            let fault = format!("no node could hold it, even empty: {}", why_no_node(question, *role));
            (Code::PodFitsNoNode, format!("spec.roles[{role}].template"), format!("a pod of role \"{name}\""), fault)
        }
        Never::FloorExceedsEveryDomain { domain, room, short } => too_wide(job, question, *domain, *room, *short),
    };
    match may_still_come(job, world) {
        Some(reason) => verdict.warn(format!("{field} is {value}: {fault}; accepted, since {reason}")),
        None => {
            verdict.refuse(code, field, value, &fault);
            verdict.miss(Missing::Room);
        }
    }
}

fn too_wide(
    job: &TrainingJob,
    question: &Question,
    domain: DomainIdx,
    room: u32,
    short: u32,
) -> (Code, String, String, String) {
    let tree = &question.capacity.tree;
    let here = tree.domain(domain);
    let floor = floor_text(job);
    match job.spec.topology.required.as_deref() {
        Some(level) => {
            let best =
                if here.path.is_empty() { format!("the best {level}") } else { format!("the best, {},", here.path) };
            let wider = wider_level(question, level).map_or_else(String::new, |w| format!(" such as \"{w}\""));
            let fault = format!(
                "no {level} could hold {floor}, even empty: {best} has room for {room} of them, {short} too few; require a wider level{wider}, or lower minReplicas"
            );
            (Code::FloorExceedsEveryDomain, "spec.topology.required".to_owned(), quoted(level), fault)
        }
        None => {
            let pool = &tree.pool(here.pool).name;
            let pool = if pool.is_empty() {
                "the pool of nodes outside every Topology".to_owned()
            } else {
                format!("Topology \"{pool}\"")
            };
            let fault = format!(
                "no pool of nodes could hold it, even empty: {pool} has room for {room} of them, {short} too few; lower minReplicas or the requests, or add nodes"
            );
            (Code::FloorExceedsPool, "spec.roles".to_owned(), floor, fault)
        }
    }
}

/// The next wider level of some pool, to be named as a remedy.
fn wider_level(question: &Question, level: &str) -> Option<String> {
    question.capacity.tree.pools().iter().find_map(|pool| {
        let depth = pool.depth_of(level)?.0;
        let wider = pool.levels.get(usize::from(depth).checked_sub(2)?)?;
        Some(wider.name.to_string())
    })
}

/// What keeps a role's pods from every node, in words: the resource nobody has enough of, or what repels it.
fn why_no_node(question: &Question, role: usize) -> String {
    let ask = &question.asks[role];
    let tree = &question.capacity.tree;
    let rows = || (0..tree.node_count()).map(NodeIdx::of);
    let allowed: Vec<NodeIdx> = rows().filter(|row| ask.constraints.allows(question.capacity.node(*row))).collect();
    if allowed.is_empty() {
        return repelled(question, role);
    }
    for (name, wanted) in &ask.requests {
        let resource = question.resources.find(name);
        let most = |row: &NodeIdx| resource.map_or(0, |r| question.allocatable[row.row()].get(r));
        let largest = allowed.iter().map(most).max().unwrap_or(0);
        if *wanted > largest {
            let text = |amount| amounts::quantity(name, amount).0;
            return format!(
                "it asks for {} {name}, and the largest node it may use has {}; lower its requests, or add such nodes",
                text(*wanted),
                text(largest)
            );
        }
    }
    "no single node has enough of everything it asks for; lower its requests".to_owned()
}

fn repelled(question: &Question, role: usize) -> String {
    let ask = &question.asks[role];
    let (mut by_selector, mut by_affinity, mut by_taint) = (0u32, 0u32, 0u32);
    let (mut selector, mut taint) = (String::new(), String::new());
    for row in (0..question.capacity.tree.node_count()).map(NodeIdx::of) {
        match ask.constraints.obstacle(question.capacity.node(row)) {
            Some(Obstacle::Selector(wanted)) => (by_selector, selector) = (by_selector + 1, wanted),
            Some(Obstacle::Affinity) => by_affinity += 1,
            Some(Obstacle::Taint(found)) => (by_taint, taint) = (by_taint + 1, found),
            Some(Obstacle::Avoided) | None => {}
        }
    }
    let mut text = String::new();
    let mut add = |count: u32, why: String| {
        if count > 0 {
            let _ = write!(text, "{}{count} {why}", if text.is_empty() { "" } else { ", " });
        }
    };
    add(by_selector, format!("lack what nodeSelector wants ({selector})"));
    add(by_affinity, "are excluded by its node affinity".to_owned());
    add(by_taint, format!("have a taint it does not tolerate ({taint})"));
    if text.is_empty() {
        return "there are no nodes; add some".to_owned();
    }
    format!("of {} nodes {text}; correct its selectors or tolerations", question.capacity.tree.node_count())
}

/// Why nodes may still come that hold the job, if so.
fn may_still_come(job: &TrainingJob, world: &World) -> Option<String> {
    if world.nodes().next().is_none() {
        return Some("no node is registered yet".to_owned());
    }
    let capacity = world.capacity();
    let has_level = |t: &Topology| match job.spec.topology.required.as_deref() {
        None | Some(NODE_LEVEL) => true,
        Some(level) => t.spec.effective_levels().iter().any(|l| l.name == level),
    };
    world.topologies().filter(|(_, t)| has_level(t) && !rules_out(job, t)).find_map(|(name, topology)| {
        let pool = capacity.tree.pools().iter().find(|p| &*p.name == name);
        let nodes = pool.map_or(0, |p| capacity.tree.domain(p.root).node_count());
        match topology {
            t if t.spec.growable => Some(format!("Topology \"{name}\" is growable")),
            t if !is_ready(t) => Some(format!("Topology \"{name}\" is not Ready")),
            _ if nodes == 0 => Some(format!("Topology \"{name}\" has no nodes yet")),
            _ => None,
        }
    })
}

/// Whether no node of a Topology's pool, whatever comes, can have the labels that some role of the job asks for.
fn rules_out(job: &TrainingJob, topology: &Topology) -> bool {
    let of_pool = topology.spec.nodes.as_ref().and_then(|n| n.match_labels.as_ref());
    let Some(of_pool) = of_pool else { return false };
    job.spec.roles.iter().filter(|role| role.floor() > 0).any(|role| {
        let wanted = role.template.spec.iter().filter_map(|s| s.node_selector.as_ref()).flatten();
        wanted.into_iter().any(|(label, value)| of_pool.get(label).is_some_and(|theirs| theirs != value))
    })
}

/// Whether nothing says that a Topology is not ready.
fn is_ready(topology: &Topology) -> bool {
    let conditions = topology.status.iter().flat_map(|s| &s.conditions);
    !conditions.into_iter().any(|c| c.type_ == conditions::READY && c.status == "False")
}
