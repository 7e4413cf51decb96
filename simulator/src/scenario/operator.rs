//! The simulated controller's memory: the planner's state, kept up by what happens to the objects, and made anew from
//! nothing but the objects when it restarts.

use super::store::Store;
use crds::TrainingJob;
use k8s_openapi::api::core::v1::{Node, PodSpec, Volume};
use planner::job::{JobSpec, Phase, Placement};
use planner::private::{PrivateEntry, PrivateRules, PrivateSchedules, guarantees_covered, note_starts, private_job};
use planner::resources::Amounts;
use planner::state::{ClusterState, NodeState};
use planner::topology::NodePath;
use planner::{JobIdx, NodeIdx, QueueIdx, Span, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use translate::adopt::Standing;
use translate::job::Inherited;
use translate::{FilterBook, PodAsk, PoolMap, TranslateError};

/// What a controller remembers.
pub struct Operator {
    /// The planner's state.
    pub state: ClusterState,
    /// What each queue would do alone on its guarantee.
    private: PrivateSchedules,
    keeps_private: bool,
    book: FilterBook,
    pools: PoolMap,
}

impl Operator {
    /// A controller that has just started: everything it knows it reads from objects.
    ///
    /// # Errors
    /// If an object cannot be understood.
    pub fn start(store: &Store, now: Time, keeps_private: bool) -> Result<Self, TranslateError> {
        let topologies: Vec<_> = store.topologies.values().collect();
        let pools = PoolMap::of(&topologies)?;
        let mut operator = Self {
            state: ClusterState::new(),
            private: PrivateSchedules::new(),
            keeps_private,
            book: FilterBook::default(),
            pools,
        };
        operator.place_nodes(store, now)?;
        operator.queues_changed(store, now)?;
        let mut jobs: Vec<(&u64, &String)> = store.sequence.iter().map(|(key, n)| (n, key)).collect();
        jobs.sort();
        for (_, key) in jobs {
            operator.adopt(store, key, now)?;
        }
        for (queue, entries) in &store.private_running {
            if let Some(row) = operator.state.find_queue(queue) {
                operator.private.restore(row, entries.clone());
            }
        }
        Ok(operator)
    }

    fn adopt(&mut self, store: &Store, key: &str, now: Time) -> Result<(), TranslateError> {
        let Some(job) = store.jobs.get(key) else { return Ok(()) };
        let standing = translate::adopt::adopt(job, &store.berths_of(job), |name| self.state.find_node(name))?;
        let Standing::Living(adopted) = standing else { return Ok(()) };
        let row = self.add_job(store, key, adopted.queued_at.unwrap_or(now), adopted.phase, now)?;
        self.note_lost(row);
        Ok(())
    }

    /// Nodes were relabelled, came or went: their places are read anew.
    ///
    /// # Errors
    /// If a node cannot be understood.
    pub fn place_nodes(&mut self, store: &Store, now: Time) -> Result<(), TranslateError> {
        let mut nodes: Vec<(NodePath, NodeState)> = Vec::new();
        for node in store.nodes.values() {
            let state = self.node_state(store, node)?;
            nodes.push((self.pools.place(node).path, state));
        }
        self.state.set_nodes(self.pools.pools(), nodes);
        self.book.nodes_replaced(&mut self.state, &store.nodes);
        translate::filters::grant_ports(&mut self.state);
        self.weigh_guarantees(now);
        Ok(())
    }

    /// While the guarantees exceed the usable cluster nobody starts privately.
    fn weigh_guarantees(&mut self, now: Time) {
        if self.keeps_private {
            let frozen = !guarantees_covered(&self.state);
            self.private.set_frozen(frozen, now);
        }
    }

    /// A node's own state changed (cordon, loss, foreign pods), not its place.
    ///
    /// # Errors
    /// If it cannot be understood.
    pub fn node_changed(&mut self, store: &Store, name: &str, now: Time) -> Result<(), TranslateError> {
        let (Some(node), Some(row)) = (store.nodes.get(name), self.state.find_node(name)) else { return Ok(()) };
        let state = self.node_state(store, node)?;
        self.state.set_node(row, state);
        self.book.node_changed(&mut self.state, row, node);
        self.weigh_guarantees(now);
        Ok(())
    }

    fn node_state(&mut self, store: &Store, node: &Node) -> Result<NodeState, TranslateError> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut foreign = Amounts::default();
        for occupant in store.occupants.iter().filter(|o| translate::pod::node_of(&o.pod) == Some(name)) {
            let taken = translate::pod::taken(&occupant.pod)
                .map_err(|f| f.of(format!("Pod {}", translate::key_of(&occupant.pod))))?;
            foreign.add(&translate::amounts::rows(&taken, &mut self.state.resources), 1);
        }
        let mut state = translate::node::state(node, &foreign, &mut self.state.resources)?;
        state.lost |= store.lost.contains(name);
        Ok(state)
    }

    /// Queues were edited.
    ///
    /// # Errors
    /// If one cannot be understood.
    pub fn queues_changed(&mut self, store: &Store, now: Time) -> Result<(), TranslateError> {
        let queues: Vec<_> = store.queues.values().collect();
        let wrong = translate::queue::sync(&mut self.state, &queues).into_iter().next();
        if self.keeps_private {
            let leaves: Vec<QueueIdx> = (1..self.state.queues().len()).map(QueueIdx::of).collect();
            for row in leaves {
                self.private.set_queue(row, PrivateRules::of(self.state.queue(row)), now);
            }
        }
        self.weigh_guarantees(now);
        wrong.map_or(Ok(()), Err)
    }

    /// Lets private time pass; keys of the jobs whose private start has come, with its moment.
    pub fn advance_private(&mut self, now: Time) -> Vec<(Arc<str>, Time)> {
        let starts = self.private.advance(now);
        note_starts(&mut self.state, &starts);
        starts.into_iter().map(|start| (start.key, start.at)).collect()
    }

    /// When a private start may come next although nothing happens.
    #[must_use]
    pub fn next_private(&self) -> Option<Time> {
        self.private.next()
    }

    /// A job is over for good after a run of this length.
    pub fn ended(&mut self, uid: &str, length: Span, now: Time) {
        self.private.ended(&uid.into(), length, now);
    }

    /// A job will not run after all, or not for now.
    pub fn withdrawn(&mut self, uid: &str, now: Time) {
        self.private.withdrawn(&uid.into(), now);
    }

    /// A waiting job was edited.
    pub fn edited(&mut self, row: JobIdx, now: Time) {
        if let Some(told) = private_job(&self.state, row) {
            self.private.edited(told, now);
        }
    }

    /// What `Queue.status.privateRunning` keeps, by queue.
    #[must_use]
    pub fn private_running(&self) -> BTreeMap<String, Vec<PrivateEntry>> {
        let rows = (1..self.state.queues().len()).map(QueueIdx::of);
        rows.map(|row| (self.state.queue(row).name.to_string(), self.private.export(row))).collect()
    }

    /// A job as the planner reads it.
    ///
    /// # Errors
    /// If it cannot be understood.
    pub fn spec(&mut self, store: &Store, job: &TrainingJob) -> Result<JobSpec, TranslateError> {
        let none = PodSpec::default();
        let mut shapes = Vec::new();
        for (ask, role) in translate::job::asks(job)?.into_iter().zip(&job.spec.roles) {
            let pod = role.template.spec.as_ref().unwrap_or(&none);
            let ask = with_volumes(store, job, pod, ask)?;
            shapes.push(self.book.shape(&mut self.state, &ask, &store.nodes));
        }
        let namespace = job.metadata.namespace.as_deref().and_then(|n| store.namespaces.get(n));
        let namespace: Option<&BTreeMap<String, String>> = namespace.and_then(|n| n.metadata.annotations.as_ref());
        let queue = store.queues.get(translate::job::queue_name(job, namespace));
        let inherited = Inherited { namespace, queue, classes: &store.classes };
        translate::job::spec(job, inherited, &shapes, &self.state)
    }

    /// Takes a job in.
    ///
    /// # Errors
    /// If it cannot be understood.
    pub fn add_job(
        &mut self,
        store: &Store,
        key: &str,
        queued_at: Time,
        phase: Phase,
        now: Time,
    ) -> Result<Option<JobIdx>, TranslateError> {
        let Some(job) = store.jobs.get(key) else { return Ok(None) };
        let spec = self.spec(store, job)?;
        let sequence = store.sequence.get(key).copied().unwrap_or(0);
        let row = self.state.add_job(spec, queued_at, sequence, phase);
        if let Some(told) = private_job(&self.state, row).filter(|_| self.keeps_private) {
            self.private.submit(self.queue_of(row), told, now);
        }
        Ok(Some(row))
    }

    fn queue_of(&self, row: JobIdx) -> QueueIdx {
        self.state.job(row).map_or(QueueIdx::ROOT, |j| j.spec.queue)
    }

    /// Notes the members that a running job has lost with their nodes.
    pub fn note_lost(&mut self, row: Option<JobIdx>) {
        let Some(row) = row else { return };
        let Some(job) = self.state.job(row) else { return };
        let Some(running) = job.running() else { return };
        let seats = running.placement.seats.iter().filter(|s| self.state.node(s.node).lost);
        let mut lost: Vec<u32> = seats.map(|s| job.spec.first_rank(usize::from(s.role)) + s.index).collect();
        lost.sort_unstable();
        if lost == running.lost {
            return;
        }
        self.state.update_job(row, Time::NEVER, |j| {
            if let Phase::Running(running) = &mut j.phase {
                running.lost = lost;
            }
        });
    }

    /// All running jobs, for [`Operator::note_lost`].
    #[must_use]
    pub fn holding(&self) -> Vec<JobIdx> {
        self.state.holding().iter().copied().collect()
    }

    /// Names of a placement's nodes, by rank order of its seats.
    #[must_use]
    pub fn node_names(&self, placement: &Placement) -> Vec<String> {
        placement.nodes().iter().map(|n| self.name(*n)).collect()
    }

    /// A node's name.
    #[must_use]
    pub fn name(&self, node: NodeIdx) -> String {
        self.state.topology().node_name(node).to_string()
    }

    /// A job's key.
    #[must_use]
    pub fn key(&self, job: JobIdx) -> Arc<str> {
        self.state.job(job).map_or_else(|| "".into(), |j| j.spec.key.clone())
    }
}

/// Narrows what a pod asks for to the nodes that its bound volumes can be reached from.
fn with_volumes(store: &Store, job: &TrainingJob, pod: &PodSpec, ask: PodAsk) -> Result<PodAsk, TranslateError> {
    let mut ask = ask;
    let namespace = job.metadata.namespace.as_deref().unwrap_or("default");
    for claim in pod.volumes.iter().flatten().filter_map(claim_of) {
        let claim = store.claims.get(&format!("{namespace}/{claim}"));
        let volume = claim.and_then(|c| c.spec.as_ref()?.volume_name.as_ref()).and_then(|name| store.volumes.get(name));
        let affinity = volume.and_then(|v| v.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref());
        if let Some(affinity) = affinity {
            let narrowed = ask.constraints.with_volume(affinity).map_err(|f| f.of("PersistentVolume"))?;
            ask = PodAsk { constraints: narrowed, ..ask };
        }
    }
    Ok(ask)
}

fn claim_of(volume: &Volume) -> Option<&str> {
    volume.persistent_volume_claim.as_ref().map(|c| c.claim_name.as_str())
}
