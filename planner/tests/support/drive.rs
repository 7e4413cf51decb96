//! A small simulation: submits jobs, lets them end early, at their limit or late, loses nodes, edits queues, and applies
//! what the planner says, judging every plan on the way.

use super::build::{self, Telling, job_key};
use super::render;
use super::world::{EventDraw, NodeDraw, Run, World};
use berth_planner::check::check_thoroughly;
use berth_planner::ids::{JobIdx, NodeIdx};
use berth_planner::job::{Phase, Placement, Waiting};
use berth_planner::plan::{Action, Plan, StopCause};
use berth_planner::policy::Policy;
use berth_planner::state::{ClusterState, NodeState, Snapshot};
use berth_planner::{Span, Time};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A planner: the real one, or a mutated one that the laws must catch.
pub type Planner = fn(&Snapshot<'_>, &Policy) -> Plan;

/// How often each kind of action was seen: a law that never sees one says nothing about it.
pub static SEEN: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

fn see(what: &'static str) {
    *SEEN.lock().expect("no panic while counting").entry(what).or_default() += 1;
}

fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Start { .. } => "start",
        Action::Reserve { clears, .. } if !clears.is_empty() => "clear",
        Action::Reserve { .. } => "reserve",
        Action::Move { cause: None, .. } => "pull forward",
        Action::Move { to: None, .. } => "drop",
        Action::Move { .. } => "move",
        Action::Stop { cause: StopCause::Preempted, .. } => "preempt",
        Action::Stop { cause: StopCause::Reclaimed, .. } => "reclaim",
        Action::Stop { .. } => "stop",
        Action::Resize { by: Some(_), .. } => "shrink",
        Action::Resize { .. } => "resize",
        Action::Replace { .. } => "replace",
        Action::Guarantee { .. } => "guarantee",
    }
}

#[derive(Clone, Debug)]
enum Happening {
    End(usize, u32),
    Gone(usize, u32),
    Shed,
    Event(usize),
    Submit(usize),
    Wake,
}

impl Happening {
    /// Ends, then the timeline, then submissions, then the planner's own alarms.
    fn class(&self) -> u8 {
        match self {
            Self::End(..) | Self::Gone(..) | Self::Shed => 0,
            Self::Event(_) => 1,
            Self::Submit(_) => 2,
            Self::Wake => 3,
        }
    }
}

/// What became of one job.
#[derive(Clone, Debug, Default)]
pub struct Story {
    pub submitted: Option<Time>,
    pub started: Vec<Time>,
    pub finished: Option<Time>,
    pub deleted: bool,
    /// Earliest start it was promised since the last recorded cause.
    pub promised: Option<Time>,
    pub moved_later: u32,
}

pub struct Sim<'w> {
    pub world: &'w World,
    pub telling: Telling,
    pub state: ClusterState,
    pub policy: Policy,
    pub nodes: Vec<NodeDraw>,
    pub lost: Vec<bool>,
    pub now: Time,
    pub stories: Vec<Story>,
    pub log: Vec<String>,
    /// Every plan in names, where a test wants to compare whole runs.
    pub transcript: Option<Vec<String>>,
    pub plans: u64,
    planner: Planner,
    incarnation: Vec<u32>,
    repair: Vec<bool>,
    due: BTreeMap<(Time, u8, u64), Happening>,
    sequence: u64,
}

pub const HORIZON: Time = Time::from_secs(200_000);

impl<'w> Sim<'w> {
    pub fn new(world: &'w World, telling: Telling, planner: Planner) -> Self {
        let count = world.jobs.len();
        let mut sim = Self {
            world,
            telling,
            state: build::empty(world, telling),
            policy: build::policy(world),
            nodes: world.nodes.clone(),
            lost: vec![false; world.nodes.len()],
            now: Time::ZERO,
            stories: vec![Story::default(); count],
            log: Vec::new(),
            transcript: None,
            plans: 0,
            planner,
            incarnation: vec![0; count],
            repair: vec![false; count],
            due: BTreeMap::new(),
            sequence: 0,
        };
        for (row, (at, _)) in world.events.iter().enumerate() {
            sim.schedule(Time::from_secs(*at), Happening::Event(row));
        }
        for (row, job) in world.jobs.iter().enumerate() {
            sim.schedule(Time::from_secs(job.at), Happening::Submit(row));
        }
        sim
    }

    fn schedule(&mut self, at: Time, what: Happening) {
        self.sequence += 1;
        self.due.insert((at, what.class(), self.sequence), what);
    }

    /// Runs to the end of what happens.
    pub fn run(&mut self) -> Result<(), String> {
        while let Some(at) = self.due.keys().next().map(|k| k.0) {
            if at > HORIZON {
                break;
            }
            self.now = at;
            while let Some(entry) = self.due.first_entry().filter(|e| e.key().0 == at) {
                let what = entry.remove();
                self.happen(&what);
            }
            self.settle()?;
        }
        self.kept_to_the_end()
    }

    /// A promise whose time is over was kept.
    fn kept_to_the_end(&self) -> Result<(), String> {
        for (row, story) in self.stories.iter().enumerate() {
            if story.promised.is_some_and(|p| p < self.now) && story.finished.is_none() && !story.deleted {
                return Err(self.fail(&format!("job {row} was promised {:?} and never started", story.promised)));
            }
        }
        Ok(())
    }

    pub fn fail(&self, what: &str) -> String {
        let most = if std::env::var_os("BERTH_LAW_ONE").is_some() { 1200 } else { 60 };
        let from = self.log.len().saturating_sub(most);
        format!("at {} s: {what}\n{}", self.now.as_secs_f64(), self.log[from..].join("\n"))
    }

    pub fn row(&self, job: usize) -> Option<JobIdx> {
        self.state.find_job(&self.telling.name(&job_key(job)))
    }

    fn draw_of(&self, job: JobIdx) -> usize {
        let key = &self.state.job(job).expect("the plan was checked").spec.key;
        key.rsplit('j').next().and_then(|n| n.parse().ok()).expect("keys end in the number of the job")
    }

    fn happen(&mut self, what: &Happening) {
        match what {
            Happening::Wake => {}
            Happening::Submit(row) => {
                let draw = &self.world.jobs[*row];
                self.stories[*row].submitted = Some(self.now);
                build::submit(&mut self.state, self.telling, &self.nodes, *row, draw, self.now);
                self.log.push(format!("{} submit j{row:02}", self.now.as_secs_f64()));
            }
            Happening::End(row, incarnation) => self.end(*row, *incarnation),
            Happening::Gone(row, incarnation) => self.gone(*row, *incarnation),
            Happening::Shed => self.state.settle_shedding(self.now),
            Happening::Event(row) => self.event(&self.world.events[*row].1.clone()),
        }
    }

    fn end(&mut self, row: usize, incarnation: u32) {
        let Some(job) = self.row(row).filter(|_| self.incarnation[row] == incarnation) else { return };
        if self.state.job(job).is_some_and(|j| j.running().is_some()) {
            self.state.remove_job(job, self.now);
            self.stories[row].finished = Some(self.now);
            self.log.push(format!("{} end j{row:02}", self.now.as_secs_f64()));
        }
    }

    fn gone(&mut self, row: usize, incarnation: u32) {
        let Some(job) = self.row(row).filter(|_| self.incarnation[row] == incarnation) else { return };
        if self.state.job(job).is_some_and(|j| matches!(j.phase, Phase::Leaving(_))) {
            let repair = std::mem::take(&mut self.repair[row]);
            let waiting = Waiting { requeued: true, repair, ..Waiting::default() };
            self.state.requeue(job, self.now, waiting);
            self.log.push(format!("{} gone j{row:02}", self.now.as_secs_f64()));
        }
    }

    fn event(&mut self, event: &EventDraw) {
        self.log.push(format!("{} {event:?}", self.now.as_secs_f64()));
        let count = self.nodes.len();
        match event {
            EventDraw::Cordon(n) => self.change_node(n % count, |d| d.closed = true),
            EventDraw::Uncordon(n) => self.change_node(n % count, |d| d.closed = false),
            EventDraw::Foreign(n, gpus) => self.change_node(n % count, |d| d.foreign = (*gpus).min(d.gpus)),
            EventDraw::Away(n, at, len) => {
                let start = self.now.0 / 1_000_000 + at;
                self.change_node(n % count, |d| d.away = Some((start, *len)));
            }
            EventDraw::Lose(n) => self.lose(n % count),
            EventDraw::Back(n) => {
                self.lost[n % count] = false;
                self.change_node(n % count, |_| {});
            }
            EventDraw::Limit(q, limit) => {
                let name = self.telling.name(&build::queue_name(*q));
                let Some(row) = self.state.find_queue(&name) else { return };
                let mut queue = self.state.queue(row).clone();
                let least = queue.guarantee.values().copied().max().unwrap_or(0);
                queue.limit = build::gpu_quota(&mut self.state, Some((*limit).max(least)));
                self.state.set_queue(queue);
            }
            EventDraw::Delete(row) => {
                if let Some(job) = self.row(*row) {
                    self.state.remove_job(job, self.now);
                    self.stories[*row].deleted = true;
                }
            }
            EventDraw::Relabel(n, rack) => {
                self.nodes[n % count].rack = *rack;
                build::set_nodes(&mut self.state, self.telling, self.world, &self.nodes);
                for row in 0..count {
                    self.change_node(row, |_| {});
                }
            }
        }
    }

    fn change_node(&mut self, row: usize, change: impl FnOnce(&mut NodeDraw)) {
        change(&mut self.nodes[row]);
        let node = self.node(row);
        let own = build::node_state(&mut self.state, &self.nodes[row]);
        self.state.set_node(node, NodeState { lost: self.lost[row], ..own });
    }

    pub fn node(&self, row: usize) -> NodeIdx {
        self.state.find_node(&self.telling.name(&build::node_name(row))).expect("nodes stay listed")
    }

    fn lose(&mut self, row: usize) {
        self.lost[row] = true;
        self.change_node(row, |_| {});
        let node = self.node(row);
        let hit: Vec<JobIdx> = self
            .state
            .jobs()
            .filter(|(_, j)| j.running().is_some_and(|r| r.placement.seats.iter().any(|s| s.node == node)))
            .map(|(row, _)| row)
            .collect();
        for job in hit {
            self.state.update_job(job, self.now, |j| {
                let firsts: Vec<u32> = (0..j.spec.roles.len()).map(|r| j.spec.first_rank(r)).collect();
                let Phase::Running(r) = &mut j.phase else { return };
                let seats = r.placement.seats.iter().filter(|s| s.node == node);
                let ranks: Vec<u32> = seats.map(|s| firsts[usize::from(s.role)] + s.index).collect();
                r.lost.extend(ranks);
                r.lost.sort_unstable();
                r.lost.dedup();
            });
        }
    }

    /// Plans and applies until nothing changes.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..20 {
            let plan = self.judged()?;
            let acts = !plan.actions.is_empty();
            let released = self.apply(&plan)?;
            if let Some(at) = plan.wake {
                if at <= self.now {
                    return Err(self.fail(&format!("law 8: wakes at {at:?}, which is not later")));
                }
                self.schedule(at, Happening::Wake);
            }
            if !acts && !released {
                return Ok(());
            }
        }
        Err(self.fail("law 8: plans go on and on at one instant"))
    }

    fn judged(&mut self) -> Result<Plan, String> {
        let snapshot = self.state.at(self.now);
        let plan = (self.planner)(&snapshot, &self.policy);
        self.plans += 1;
        let verdict = check_thoroughly(&snapshot, &self.policy, &plan);
        let lines = plan.actions.iter().map(|a| render::action(&self.state, a));
        let stamp = self.now.as_secs_f64();
        self.log.extend(lines.map(|l| format!("{stamp} {l}")));
        if std::env::var_os("BERTH_LAW_ONE").is_some() {
            let all = render::plan(&self.state, &plan).into_iter().skip(plan.actions.len());
            self.log.extend(all.map(|l| format!("{stamp}     {l}")));
        }
        if let Some(transcript) = &mut self.transcript {
            transcript.push(format!("at {}", self.now.0));
            transcript.extend(render::plan(&self.state, &plan));
            let silent = Policy { explain: false, ..self.policy.clone() };
            let quietly = (self.planner)(&self.state.at(self.now), &silent);
            if quietly.actions != plan.actions {
                return Err(self.fail("explaining its reasons changes a plan"));
            }
        }
        // Those tables decide nothing: a copy, which has none yet, plans the same.
        let cold = self.state.clone();
        if (self.planner)(&cold.at(self.now), &self.policy) != plan {
            return Err(self.fail("law 8: a copy of the cluster plans something else"));
        }
        if let Err(violations) = verdict {
            let list: Vec<String> = violations.iter().map(|v| format!("law {}: {v}", v.law())).collect();
            return Err(self.fail(&list.join("; ")));
        }
        Ok(plan)
    }

    /// Applies a plan, has it planned again (law 8), and lets those go whose grace is over. Whether somebody went.
    fn apply(&mut self, plan: &Plan) -> Result<bool, String> {
        for action in &plan.actions {
            see(name_of(action));
            self.note(action)?;
            self.state.apply(action, self.now);
        }
        self.state.planned();
        // On a copy: a recount would also make anew the tables that only save work.
        if let Err(table) = self.state.clone().audit() {
            return Err(self.fail(&format!("audit: {table} was not kept up")));
        }
        if !plan.actions.is_empty() {
            let again = (self.planner)(&self.state.at(self.now), &self.policy);
            if let Some(action) = again.actions.first() {
                let text = render::action(&self.state, action);
                return Err(self.fail(&format!("law 8: planning again changes something: {text}")));
            }
        }
        Ok(self.release())
    }

    fn release(&mut self) -> bool {
        let now = self.now;
        let mut released = false;
        while let Some(entry) = self.due.first_entry().filter(|e| e.key().0 <= now && e.key().1 == 0) {
            let what = entry.remove();
            self.happen(&what);
            released = true;
        }
        released
    }

    /// Keeps the books of one action: when its job will end, what it was promised.
    fn note(&mut self, action: &Action) -> Result<(), String> {
        let row = self.draw_of(action.job());
        let now = self.now;
        let spec = self.state.job(action.job()).expect("checked").spec.clone();
        match action {
            Action::Start { ends, .. } => {
                if let Some(promised) = self.stories[row].promised.take().filter(|p| *p < now) {
                    return Err(self.fail(&format!("law 4: j{row:02} starts after its promise {promised:?}")));
                }
                self.incarnation[row] += 1;
                self.repair[row] = false;
                self.stories[row].started.push(now);
                let end = self.real_end(row, *ends);
                self.schedule(end, Happening::End(row, self.incarnation[row]));
            }
            Action::Reserve { start, .. } => {
                let story = &mut self.stories[row];
                story.promised = Some(story.promised.map_or(*start, |p| p.min(*start)));
            }
            Action::Move { from, to, cause, .. } => {
                let story = &mut self.stories[row];
                let start = to.as_ref().map(|t| t.0);
                story.moved_later += u32::from(start.is_none_or(|s| s > *from));
                story.promised = match (cause, start) {
                    (Some(_), start) => start,
                    (None, Some(start)) => Some(story.promised.map_or(start, |p| p.min(start))),
                    (None, None) => story.promised,
                };
            }
            Action::Stop { cause, .. } => {
                self.repair[row] = *cause == StopCause::NodeLost;
                let late = match self.world.jobs[row].run {
                    Run::Overrun(late) if spec.grace > Span::ZERO => build::secs(late),
                    _ => Span::ZERO,
                };
                self.schedule(now + spec.grace + late, Happening::Gone(row, self.incarnation[row]));
            }
            Action::Resize { .. } => {
                let at = now + spec.grace;
                self.schedule(at, Happening::Shed);
            }
            Action::Replace { .. } | Action::Guarantee { .. } => {}
        }
        Ok(())
    }

    fn real_end(&self, row: usize, ends: Time) -> Time {
        let draw = &self.world.jobs[row];
        let limit = draw.limit.unwrap_or(600);
        let limited = if ends.is_never() { self.now + build::secs(limit) } else { ends };
        match draw.run {
            Run::Early(percent) => self.now + Span(limit * percent * 10_000),
            Run::Limit => limited,
            Run::Overrun(late) => limited + build::secs(late),
        }
    }

    pub fn placement(&self, job: usize) -> Option<Placement> {
        self.state.job(self.row(job)?)?.running().map(|r| r.placement.clone())
    }
}
