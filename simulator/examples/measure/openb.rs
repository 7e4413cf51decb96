//! openb packing: pods of the Alibaba trace, GPU shares included, come one by one until 130 % of the GPUs are asked for;
//! how much of the GPUs is then given away. Nodes are chosen by the production placement; the room knows each GPU.

use crate::figure::Figures;
use crate::traces::Traces;
use anyhow::Result;
use berth_simulator::replay::cluster::SplitMix;
use berth_simulator::trace::Source;
use berth_simulator::trace::openb::{OpenbNode, OpenbPod, read_nodes, read_pod_requests};
use planner::job::{Communication, JobSpec, Locality, Role};
use planner::place::{Ask, place};
use planner::resources::Amounts;
use planner::room::Room;
use planner::shape::{NodeSet, Shape, ShapeTable};
use planner::topology::{NodePath, PoolSpec, Topology};
use planner::{DomainIdx, NodeIdx, QueueIdx, ShapeIdx, Span, Time};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Demand over capacity at which packers are compared.
const INFLATION: f64 = 1.3;
/// Shuffles that the mean is taken over.
const SEEDS: u64 = 10;
/// A whole GPU.
const WHOLE: i64 = 1000;

/// Adds the allocation of both pod lists.
pub(crate) fn measure(traces: &Traces, figures: &mut Figures) -> Result<()> {
    let nodes = read_nodes(&Source::open(&traces.file("openb/openb_node_list_gpu_node.csv"))?)?;
    let lists = [
        ("default", 93.08, "BestFit 93.08, FGD 95.39, random 87.47"),
        ("multigpu50", 95.74, "BestFit 95.74, FGD 97.18, random 90.28"),
    ];
    for (list, mark, peer) in lists {
        let pods = read_pod_requests(&Source::open(&traces.file(&format!("openb/openb_pod_list_{list}.csv")))?)?;
        eprintln!("openb packing, {list}, {SEEDS} shuffles …");
        let mut sum = 0.0;
        for seed in 0..SEEDS {
            sum += allocation(&nodes, &pods, seed);
        }
        #[allow(clippy::cast_precision_loss)]
        let mean = sum / SEEDS as f64;
        figures.higher(format!("openb, {list} pods, 130 % demand: GPUs allocated"), mean, "%", mark, peer);
    }
    Ok(())
}

/// Per cent of the GPUs given away when all pods of one shuffled list have been offered.
#[allow(clippy::cast_precision_loss)]
fn allocation(nodes: &[OpenbNode], pods: &[OpenbPod], seed: u64) -> f64 {
    let paths: Vec<NodePath> =
        nodes.iter().map(|n| NodePath { pool: 0, path: Vec::new(), name: n.name.as_str().into() }).collect();
    let topology = Topology::build(&[PoolSpec { name: "".into(), levels: Vec::new(), growable: false }], &paths);
    let mut room = Devices::new(&topology, nodes);
    let total: i64 = nodes.iter().map(|n| signed(n.gpus) * WHOLE).sum();
    let mut given = 0;
    for pod in stream(pods, total, seed) {
        given += room.offer(&pod);
    }
    given as f64 / total as f64 * 100.0
}

/// The list in random order, cut or filled up with random pods of it until it asks for 130 %.
#[allow(clippy::cast_precision_loss)]
fn stream(pods: &[OpenbPod], total: i64, seed: u64) -> Vec<OpenbPod> {
    let mut dice = SplitMix(seed.wrapping_mul(7919).wrapping_add(42));
    let mut shuffled = pods.to_vec();
    dice.shuffle(&mut shuffled);
    let mut stream = Vec::new();
    let mut asked = 0;
    while (asked as f64) < total as f64 * INFLATION {
        let next = match shuffled.pop() {
            Some(pod) => pod,
            None => pods[usize::try_from(dice.draw() % pods.len() as u64).unwrap_or(0)].clone(),
        };
        asked += signed(next.gpus) * signed(next.gpu_milli);
        stream.push(next);
    }
    stream
}

/// What tells pods apart for placement.
type Kind = (u64, u64, u64, u64, Vec<String>);

/// A room that knows every GPU of its nodes: a share must lie on one of them.
struct Devices<'t> {
    topology: &'t Topology,
    shapes: ShapeTable,
    kinds: BTreeMap<Kind, ShapeIdx>,
    /// GPUs and thousandths of each that a pod of a shape takes.
    asks: Vec<(i64, i64)>,
    models: Vec<String>,
    free: Vec<[i64; 4]>,
    gpus: Vec<Vec<i64>>,
    busy: Vec<bool>,
    /// Pods of the shape asked for last, by node: a placement asks again and again.
    counts: RefCell<(Option<ShapeIdx>, Vec<u32>)>,
}

impl<'t> Devices<'t> {
    fn new(topology: &'t Topology, nodes: &[OpenbNode]) -> Self {
        let by_name: BTreeMap<&str, &OpenbNode> = nodes.iter().map(|n| (n.name.as_str(), n)).collect();
        let rows: Vec<&OpenbNode> =
            (0..topology.node_count()).map(|row| by_name[&**topology.node_name(NodeIdx::of(row))]).collect();
        Self {
            topology,
            shapes: ShapeTable::default(),
            kinds: BTreeMap::new(),
            asks: Vec::new(),
            models: rows.iter().map(|n| n.model.clone()).collect(),
            free: rows
                .iter()
                .map(|n| [1 << 30, signed(n.cpu_milli), signed(n.memory_mib), signed(n.gpus) * WHOLE])
                .collect(),
            gpus: rows.iter().map(|n| vec![WHOLE; usize::try_from(n.gpus).unwrap_or(0)]).collect(),
            busy: vec![false; rows.len()],
            counts: RefCell::new((None, vec![0; rows.len()])),
        }
    }

    /// Places a pod if it fits anywhere; thousandths of GPUs given.
    fn offer(&mut self, pod: &OpenbPod) -> i64 {
        let shape = self.shape(pod);
        self.count(shape);
        let spec = job(shape);
        let ask = Ask {
            spec: &spec,
            sizes: &[1],
            start: Time::ZERO,
            predicted_end: Time::from_secs(24 * 3600),
            most_domains: None,
            search_limit: 20_000,
            within: None,
        };
        match place(self, &ask) {
            Ok(found) => self.take(found.placement.seats[0].node, shape),
            Err(_) => 0,
        }
    }

    fn shape(&mut self, pod: &OpenbPod) -> ShapeIdx {
        let kind = (pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, pod.models.clone());
        if let Some(known) = self.kinds.get(&kind) {
            return *known;
        }
        let (gpus, each) = (signed(pod.gpus), signed(pod.gpu_milli));
        let requests = Amounts(vec![1, signed(pod.cpu_milli), signed(pod.memory_mib), gpus * each]);
        let eligible =
            NodeSet::of(self.models.len(), |n| pod.models.is_empty() || pod.models.contains(&self.models[n.row()]));
        let filter = format!("{}|{gpus}x{each}", pod.models.join("|")).into();
        let shape = self.shapes.intern(Shape { requests, filter, eligible });
        self.asks.push((gpus, each));
        self.kinds.insert(kind, shape);
        shape
    }

    fn count(&self, shape: ShapeIdx) {
        let mut counts = self.counts.borrow_mut();
        counts.0 = Some(shape);
        for row in 0..counts.1.len() {
            counts.1[row] = self.fit(NodeIdx::of(row), shape);
        }
    }

    fn fit(&self, node: NodeIdx, shape: ShapeIdx) -> u32 {
        let asked = self.shapes.get(shape);
        if !asked.eligible.contains(node) {
            return 0;
        }
        let by_sum = asked.requests.times_in(&self.free[node.row()]);
        let (gpus, each) = self.asks[shape.row()];
        if gpus == 0 {
            return by_sum;
        }
        let by_gpu: i64 = self.gpus[node.row()].iter().map(|free| free / each).sum::<i64>() / gpus;
        by_sum.min(u32::try_from(by_gpu).unwrap_or(0))
    }

    /// The fullest GPUs that have room take it.
    fn take(&mut self, node: NodeIdx, shape: ShapeIdx) -> i64 {
        let row = node.row();
        let (gpus, each) = self.asks[shape.row()];
        for (cell, need) in self.free[row].iter_mut().zip(&self.shapes.get(shape).requests.0) {
            *cell -= need;
        }
        for _ in 0..gpus {
            let fullest = self.gpus[row].iter_mut().filter(|free| **free >= each).min();
            if let Some(free) = fullest {
                *free -= each;
            }
        }
        self.busy[row] = true;
        gpus * each
    }
}

impl Room for Devices<'_> {
    fn topology(&self) -> &Topology {
        self.topology
    }

    fn shapes(&self) -> &ShapeTable {
        &self.shapes
    }

    fn free(&self, node: NodeIdx) -> &[i64] {
        &self.free[node.row()]
    }

    fn pods(&self, node: NodeIdx, shape: ShapeIdx) -> u32 {
        let counts = self.counts.borrow();
        if counts.0 == Some(shape) { counts.1[node.row()] } else { self.fit(node, shape) }
    }

    fn pods_in(&self, domain: DomainIdx, shape: ShapeIdx) -> u64 {
        self.topology.domain(domain).node_range().map(|n| u64::from(self.pods(n, shape))).sum()
    }

    /// Pods of this list never end.
    fn wholly_free_at(&self, node: NodeIdx) -> Time {
        if self.busy[node.row()] { Time::NEVER } else { Time(i64::MIN) }
    }

    fn promised(&self, _node: NodeIdx) -> bool {
        false
    }

    fn health(&self, _node: NodeIdx) -> u8 {
        0
    }

    fn devices(&self, node: NodeIdx) -> i64 {
        self.gpus[node.row()].iter().sum()
    }
}

fn job(shape: ShapeIdx) -> JobSpec {
    JobSpec {
        key: "default/pod".into(),
        uid: "1".into(),
        user: "".into(),
        queue: QueueIdx(1),
        priority: 0,
        preemptible: true,
        max_runtime: Span::FOREVER,
        grace: Span::ZERO,
        expected_runtime: None,
        checkpoint_every: None,
        locality: Locality::default(),
        communication: Communication::AllReduce,
        resizable: false,
        replaces_members: false,
        roles: vec![Role { name: "worker".into(), shape, replicas: 1, floor: 1, slice: None }],
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
