//! A world drawn at random: plain numbers that shrink well, made into a cluster by [`super::build`].

use proptest::prelude::*;

#[derive(Clone, Debug)]
pub struct NodeDraw {
    pub pool: usize,
    pub block: u8,
    pub rack: u8,
    /// Labels known: 2 all, 1 the block only, 0 none.
    pub known: u8,
    pub gpus: i64,
    pub cpus: i64,
    pub closed: bool,
    pub foreign: i64,
    pub tainted: bool,
    /// Announced absence: start and length in seconds.
    pub away: Option<(i64, i64)>,
    pub health: u8,
}

#[derive(Clone, Debug)]
pub struct QueueDraw {
    /// 0 the root, else parent queue `p<n>`.
    pub parent: u8,
    pub guarantee: Option<i64>,
    pub limit: Option<i64>,
    pub weight: u8,
    pub max_running: Option<u32>,
    /// 0 none, else depth.
    pub depth: u32,
    pub min_runtime: i64,
    pub from: u8,
    pub fair: bool,
}

#[derive(Clone, Debug)]
pub struct RoleDraw {
    pub gpus: i64,
    pub cpus: i64,
    pub floor: u32,
    pub extra: u32,
    pub slice: Option<(u32, &'static str)>,
    pub port: bool,
    pub tolerates: bool,
}

/// What becomes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Ends after so many percent of its limit (at most 100).
    Early(i64),
    /// Is killed at its limit and gone within its grace.
    Limit,
    /// Is killed at its limit, and its pods stay so many seconds longer than the grace.
    Overrun(i64),
}

#[derive(Clone, Debug)]
pub struct JobDraw {
    pub at: i64,
    pub queue: usize,
    pub priority: i64,
    pub roles: Vec<RoleDraw>,
    pub required: Option<&'static str>,
    pub preferred: Option<&'static str>,
    pub patience: i64,
    /// Seconds; none: without a limit.
    pub limit: Option<i64>,
    pub grace: i64,
    pub run: Run,
    pub preemptible: bool,
    /// 0 AllReduce, 1 Pipeline, 2 ParameterServer, 3 Independent.
    pub communication: u8,
    pub resizable: bool,
    pub replaces: bool,
    pub checkpoint: Option<i64>,
}

#[derive(Clone, Debug)]
pub enum EventDraw {
    Cordon(usize),
    Uncordon(usize),
    Lose(usize),
    Back(usize),
    Foreign(usize, i64),
    Limit(usize, i64),
    Delete(usize),
    Relabel(usize, u8),
    Away(usize, i64, i64),
}

#[derive(Clone, Debug)]
pub struct World {
    /// 1 or 2.
    pub pools: usize,
    pub nodes: Vec<NodeDraw>,
    pub parents: Vec<QueueDraw>,
    pub queues: Vec<QueueDraw>,
    pub jobs: Vec<JobDraw>,
    pub events: Vec<(i64, EventDraw)>,
    pub half_life: bool,
    pub preemption: bool,
}

impl NodeDraw {
    /// A healthy node of 8 GPUs.
    pub fn plain(block: u8, rack: u8) -> Self {
        Self {
            pool: 0,
            block,
            rack,
            known: 2,
            gpus: 8,
            cpus: 96,
            closed: false,
            foreign: 0,
            tainted: false,
            away: None,
            health: 0,
        }
    }
}

impl QueueDraw {
    /// Without any restriction.
    pub fn open() -> Self {
        Self {
            parent: 0,
            guarantee: None,
            limit: None,
            weight: 1,
            max_running: None,
            depth: 100,
            min_runtime: 0,
            from: 0,
            fair: false,
        }
    }
}

impl JobDraw {
    /// A gang of so many pods of so many GPUs, with a limit of 100 s, in the first queue.
    pub fn gang(pods: u32, gpus: i64) -> Self {
        let role = RoleDraw { gpus, cpus: 1, floor: pods, extra: 0, slice: None, port: false, tolerates: true };
        Self {
            at: 0,
            queue: 0,
            priority: 0,
            roles: vec![role],
            required: None,
            preferred: None,
            patience: 0,
            limit: Some(100),
            grace: 0,
            run: Run::Limit,
            preemptible: true,
            communication: 0,
            resizable: true,
            replaces: false,
            checkpoint: None,
        }
    }
}

impl World {
    /// Two blocks of two racks of two nodes, queues as given, no jobs.
    pub fn plain(queues: Vec<QueueDraw>) -> Self {
        let nodes = (0..8).map(|n| NodeDraw::plain(n / 4, n / 2 % 2)).collect();
        Self {
            pools: 1,
            nodes,
            parents: Vec::new(),
            queues,
            jobs: Vec::new(),
            events: Vec::new(),
            half_life: false,
            preemption: true,
        }
    }
}

/// What a law wants drawn.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub nodes: usize,
    pub jobs: usize,
    /// Nodes come and go, queues are edited, runs outlive their limits.
    pub troubled: bool,
    /// Queues with guarantees, limits, parents; several priorities.
    pub shared: bool,
    /// Levels, slices, patience, several roles, elasticity.
    pub shaped: bool,
}

impl Kind {
    pub const SMALL: Self = Self { nodes: 6, jobs: 8, troubled: true, shared: true, shaped: true };
    pub const MEDIUM: Self = Self { nodes: 24, jobs: 40, troubled: true, shared: true, shaped: true };
    pub const CALM: Self = Self { nodes: 8, jobs: 14, troubled: false, shared: false, shaped: true };
}

fn maybe<T: std::fmt::Debug + Clone>(percent: u32, some: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    (0u32..100, some).prop_map(move |(dice, value)| (dice >= 100 - percent).then_some(value))
}

fn chance(percent: u32) -> impl Strategy<Value = bool> {
    (0u32..100).prop_map(move |dice| dice >= 100 - percent)
}

pub fn node(pools: usize, troubled: bool) -> impl Strategy<Value = NodeDraw> {
    let place = (0..pools, 0u8..2, 0u8..3, prop_oneof![17 => Just(2u8), 2 => Just(1), 1 => Just(0)]);
    let size = (prop_oneof![6 => Just(8i64), 2 => Just(4), 1 => Just(0)], prop_oneof![4 => Just(96i64), 1 => Just(16)]);
    let state = (chance(5), prop_oneof![6 => Just(0i64), 1 => Just(2), 1 => Just(8)], chance(8));
    let rest =
        (maybe(if troubled { 8 } else { 0 }, (0i64..1500, 1i64..600)), prop_oneof![5 => Just(0u8), 1 => Just(1)]);
    (place, size, state, rest).prop_map(
        |((pool, block, rack, known), (gpus, cpus), (closed, foreign, tainted), rest)| NodeDraw {
            pool,
            block,
            rack,
            known,
            gpus,
            cpus,
            closed,
            foreign: foreign.min(gpus),
            tainted,
            away: rest.0,
            health: rest.1,
        },
    )
}

pub fn queue(parents: usize, shared: bool) -> impl Strategy<Value = QueueDraw> {
    let percent = if shared { 60 } else { 0 };
    let quota = (0u8..=u8::try_from(parents).unwrap_or(0), maybe(percent, 0i64..24), maybe(percent / 2, 4i64..48));
    let rest = (
        prop_oneof![3 => Just(1u8), 1 => Just(2)],
        maybe(if shared { 10 } else { 0 }, 1u32..4),
        prop_oneof![4 => Just(100u32), 2 => Just(1), 1 => Just(3), 1 => Just(0)],
        prop_oneof![3 => Just(0i64), 1 => Just(120)],
        prop_oneof![6 => Just(0u8), 1 => Just(1), 1 => Just(2)],
        chance(20),
    );
    (quota, rest).prop_map(|((parent, guarantee, limit), rest)| QueueDraw {
        parent,
        guarantee,
        limit,
        weight: rest.0,
        max_running: rest.1,
        depth: rest.2,
        min_runtime: rest.3,
        from: rest.4,
        fair: rest.5,
    })
}

pub fn role(shaped: bool) -> impl Strategy<Value = RoleDraw> {
    let size = (
        prop_oneof![4 => Just(8i64), 2 => Just(4), 2 => Just(2), 1 => Just(1), 1 => Just(0)],
        prop_oneof![3 => Just(1i64), 1 => Just(12), 1 => Just(40)],
    );
    let slice = maybe(if shaped { 20 } else { 0 }, (2u32..4, prop_oneof![Just("rack"), Just("block"), Just("node")]));
    let extra = prop_oneof![3 => Just(0u32), 1 => 1u32..4].prop_map(move |n| if shaped { n } else { 0 });
    (size, 1u32..5, extra, slice, chance(5), chance(70)).prop_map(
        |((gpus, cpus), floor, extra, slice, port, tolerates)| {
            let step = slice.map_or(1, |(size, _)| size);
            let (floor, extra) = (floor.div_ceil(step) * step, extra.div_ceil(step) * step);
            RoleDraw { gpus, cpus, floor, extra, slice, port, tolerates }
        },
    )
}

pub fn job(queues: usize, kind: Kind) -> impl Strategy<Value = JobDraw> {
    let level =
        maybe(if kind.shaped { 40 } else { 0 }, prop_oneof![3 => Just("rack"), 2 => Just("block"), 1 => Just("node")]);
    let narrower = maybe(if kind.shaped { 40 } else { 0 }, prop_oneof![2 => Just("rack"), 1 => Just("block")]);
    let roles = prop::collection::vec(role(kind.shaped), if kind.shaped { 1..3 } else { 1..2 });
    let priority = prop_oneof![5 => Just(0i64), 2 => Just(10), 1 => Just(-5)];
    let run = if kind.troubled {
        prop_oneof![3 => (5i64..=100).prop_map(Run::Early), 2 => Just(Run::Limit), 1 => (1i64..400).prop_map(Run::Overrun)]
            .boxed()
    } else {
        prop_oneof![3 => (5i64..=100).prop_map(Run::Early), 1 => Just(Run::Limit)].boxed()
    };
    let unlimited = if kind.troubled { 1 } else { 0 };
    let times = (
        prop_oneof![2 => Just(0i64), 3 => 0i64..1200],
        prop_oneof![9 - unlimited => (30i64..900).prop_map(Some), unlimited => Just(None::<i64>)],
        prop_oneof![3 => Just(0i64), 1 => Just(30)],
        prop_oneof![2 => Just(0i64), 1 => Just(60), 1 => Just(900)],
        run,
    );
    let flags =
        (chance(85), prop_oneof![4 => Just(0u8), 1 => Just(1), 1 => Just(2), 1 => Just(3)], chance(80), chance(50));
    (times, (0..queues, priority), roles, (level, narrower), flags, maybe(30, 30i64..300)).prop_map(
        move |(
            (at, limit, grace, patience, run),
            (queue, priority),
            mut roles,
            (required, preferred),
            flags,
            checkpoint,
        )| {
            let independent = flags.1 == 3;
            let required = required.filter(|_| !independent);
            let preferred = preferred.filter(|p| !independent && narrower_than(p, required));
            for role in &mut roles {
                role.slice = role.slice.filter(|(_, within)| !independent && !wider_than(within, required));
            }
            JobDraw {
                at,
                queue,
                priority: if kind.shared { priority } else { 0 },
                roles,
                required,
                preferred,
                patience: if preferred.is_some() { patience } else { 0 },
                limit,
                grace,
                run,
                preemptible: flags.0,
                communication: flags.1,
                resizable: flags.2,
                replaces: flags.3,
                checkpoint,
            }
        },
    )
}

fn width(level: &str) -> u8 {
    match level {
        "block" => 2,
        "rack" => 1,
        _ => 0,
    }
}

fn narrower_than(level: &str, required: Option<&str>) -> bool {
    required.is_none_or(|r| width(level) < width(r))
}

fn wider_than(level: &str, required: Option<&str>) -> bool {
    required.is_some_and(|r| width(level) > width(r))
}

fn event(nodes: usize, queues: usize, jobs: usize) -> impl Strategy<Value = EventDraw> {
    prop_oneof![
        2 => (0..nodes).prop_map(EventDraw::Cordon),
        2 => (0..nodes).prop_map(EventDraw::Uncordon),
        3 => (0..nodes).prop_map(EventDraw::Lose),
        3 => (0..nodes).prop_map(EventDraw::Back),
        1 => (0..nodes, 0i64..9).prop_map(|(n, g)| EventDraw::Foreign(n, g)),
        1 => (0..queues, 0i64..32).prop_map(|(q, l)| EventDraw::Limit(q, l)),
        1 => (0..jobs).prop_map(EventDraw::Delete),
        1 => (0..nodes, 0u8..3).prop_map(|(n, r)| EventDraw::Relabel(n, r)),
        1 => (0..nodes, 0i64..600, 1i64..600).prop_map(|(n, at, len)| EventDraw::Away(n, at, len)),
    ]
}

pub fn world(kind: Kind) -> impl Strategy<Value = World> {
    let shape = (1usize..3, 0usize..3, 1usize..4).prop_map(move |(pools, parents, queues)| {
        let (parents, queues) = if kind.shared { (parents, queues) } else { (0, 1) };
        (if kind.shaped { pools } else { 1 }, parents, queues)
    });
    (shape, any::<bool>(), chance(80)).prop_flat_map(move |((pools, parents, queues), half_life, preemption)| {
        let events = if kind.troubled { 0..5usize } else { 0..1 };
        (
            prop::collection::vec(node(pools, kind.troubled), 1..=kind.nodes),
            prop::collection::vec(queue(0, kind.shared), parents),
            prop::collection::vec(queue(parents, kind.shared), queues),
            prop::collection::vec(job(queues, kind), 1..=kind.jobs),
            prop::collection::vec((0i64..1500, event(kind.nodes, queues, kind.jobs)), events),
        )
            .prop_map(move |(nodes, parents, queues, jobs, events)| World {
                pools,
                nodes,
                parents,
                queues,
                jobs,
                events,
                half_life,
                preemption,
            })
    })
}
