//! Claims and volumes in the picture: what jobs' claims ask of the cluster, who else uses them, and what pods attach to
//! their nodes.

use super::index::{Index, job_of_pod};
use super::world::World;
use crate::watch::Change;
use crds::v1alpha1::{NODE_LEVEL, TrainingJob};
use crds::{Code, v1alpha1::Role};
use k8s_openapi::api::core::v1::{NodeSelector, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use planner::job::{Phase, Placement};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use translate::PodAsk;
use translate::volumes::{self, Storage, VolumeTrouble};

impl Storage for Index {
    fn claim(&self, key: &str) -> Option<&PersistentVolumeClaim> {
        self.claims.get(key).map(AsRef::as_ref)
    }

    fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.volumes.get(name).map(AsRef::as_ref)
    }

    fn class(&self, name: &str) -> Option<&StorageClass> {
        self.storage_classes.get(name).map(AsRef::as_ref)
    }

    /// Of several the newest, as in the API server.
    fn default_class(&self) -> Option<&StorageClass> {
        let defaults = self.storage_classes.values().filter(|c| volumes::is_default(c));
        defaults.max_by_key(|c| c.metadata.creation_timestamp.as_ref().map(|t| t.0)).map(AsRef::as_ref)
    }

    fn is_limited(&self, driver: &str) -> bool {
        self.limited_drivers.contains(driver)
    }
}

/// `namespace/name` of the claims that a role's template names, each with its short name.
pub(crate) fn claims_of_role<'a>(namespace: &str, role: &'a Role) -> BTreeMap<String, &'a str> {
    let spec = role.template.spec.iter();
    spec.flat_map(volumes::claims_of).map(|claim| (format!("{namespace}/{claim}"), claim)).collect()
}

impl World {
    pub(super) fn claims_changed(&mut self, change: Change<PersistentVolumeClaim>) {
        for (key, before, after) in self.index.change_table(|i| &mut i.claims, change) {
            self.claim_moved(&key);
            // Claims made for one pod belong to it.
            for claim in [before, after].into_iter().flatten() {
                let owners = claim.metadata.owner_references.iter().flatten().filter(|o| o.kind == "Pod");
                let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
                let pods = owners.filter_map(|o| self.index.pods.get(&format!("{namespace}/{}", o.name)));
                let jobs: Vec<String> = pods.filter_map(|p| job_of_pod(p)).collect();
                self.dirty_jobs.extend(jobs);
            }
        }
    }

    pub(super) fn volumes_changed(&mut self, change: Change<PersistentVolume>) {
        for (_, before, after) in self.index.change_table(|i| &mut i.volumes, change) {
            for volume in [before, after].into_iter().flatten() {
                let claim = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
                let key = claim.and_then(|c| Some(format!("{}/{}", c.namespace.as_deref()?, c.name.as_deref()?)));
                if let Some(key) = key {
                    self.claim_moved(&key);
                }
            }
        }
    }

    /// What is known of a claim has changed: for the jobs that name it, and on the nodes of the pods that use it.
    fn claim_moved(&mut self, key: &str) {
        self.dirty_jobs.extend(self.index.jobs_of_claim(key).cloned());
        let users: Vec<(String, Arc<Pod>)> =
            self.index.pods_of_claim(key).map(|(key, pod)| (key.clone(), pod.clone())).collect();
        for (key, pod) in users {
            self.note_taken(&key, &pod);
        }
    }

    pub(super) fn classes_changed(&mut self, change: Change<StorageClass>) {
        if !self.index.change_table(|i| &mut i.storage_classes, change).is_empty() {
            self.all_jobs_dirty();
        }
    }

    pub(super) fn csi_nodes_changed(&mut self, change: Change<CSINode>) {
        for (name, ..) in self.index.change_table(|i| &mut i.csi_nodes, change) {
            self.dirty_nodes.insert(name);
        }
        let limited: BTreeSet<String> =
            self.index.csi_nodes.values().flat_map(|n| volumes::limits(n).into_keys()).collect();
        if limited == self.index.limited_drivers {
            return;
        }
        self.index.limited_drivers = limited;
        self.all_jobs_dirty();
        let claims: Vec<String> = self.index.claims_in_use().cloned().collect();
        for claim in claims {
            self.claim_moved(&claim);
        }
    }

    /// What a bound pod takes on its node.
    pub(super) fn note_taken(&mut self, key: &str, pod: &Pod) {
        let mut taken = translate::pod::taken(pod).unwrap_or_default();
        if !taken.is_empty() {
            taken.extend(volumes::attached(pod, &self.index));
        }
        let known = self.state.resources.len();
        let rows = translate::amounts::rows(&taken, &mut self.state.resources);
        self.resources_grew(known);
        if self.taken.insert(key.to_owned(), rows.clone()) != Some(rows)
            && let Some(node) = translate::pod::node_of(pod)
        {
            self.dirty_nodes.insert(node.to_owned());
        }
    }

    /// Resources that are new are granted to every node.
    pub(super) fn resources_grew(&mut self, known: usize) {
        if self.state.resources.len() > known {
            translate::filters::grant_ports(&mut self.state);
            self.dirty_nodes.extend(self.index.nodes.keys().cloned());
        }
    }

    /// Jobs that wait until nobody else uses a claim are asked again when somebody begins or ends to.
    pub(super) fn exclusive_claims_moved(&mut self, claims: &[String]) {
        for claim in claims {
            let exclusive = |c: &PersistentVolumeClaim| volumes::is_for_one_pod(c) || volumes::is_for_one_node(c);
            if self.index.claim(claim).is_some_and(exclusive) {
                self.dirty_jobs.extend(self.index.jobs_of_claim(claim).cloned());
            }
        }
    }

    // --- a job's claims ---

    /// Why the volumes of a job that is to start cannot be used, if they cannot.
    #[must_use]
    pub fn volume_trouble(&self, key: &str, job: &TrainingJob) -> Option<VolumeTrouble> {
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        for row in 0..job.spec.roles.len() {
            let spec = self.effective_pod(key, job, row);
            if let Err(trouble) = volumes::ask(namespace, &spec, &self.index) {
                return Some(trouble);
            }
        }
        self.shared_trouble(job).or_else(|| self.use_trouble(key, job))
    }

    /// A claim that cannot serve all pods of the job that use it.
    fn shared_trouble(&self, job: &TrainingJob) -> Option<VolumeTrouble> {
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let mut pods: BTreeMap<String, (&str, i64)> = BTreeMap::new();
        for role in &job.spec.roles {
            for (claim, name) in claims_of_role(namespace, role) {
                pods.entry(claim).or_insert((name, 0)).1 += i64::from(role.replicas);
            }
        }
        let one_node = job.spec.topology.required.as_deref() == Some(NODE_LEVEL);
        pods.into_iter().find_map(|(key, (name, pods))| {
            let claim = self.index.claim(&key)?;
            let modes = volumes::modes(claim);
            if volumes::serves(modes, pods, one_node || volumes::is_local(claim, &self.index)) {
                return None;
            }
            let message = format!(
                "claim \"{name}\" is {} and {pods} pods use it, which may run on several nodes; use one that many nodes can mount (ReadWriteMany, ReadOnlyMany)",
                modes.join(", ")
            );
            Some(VolumeTrouble { code: Code::VolumeUnsupported, message })
        })
    }

    /// A claim for one pod alone that another one uses.
    fn use_trouble(&self, key: &str, job: &TrainingJob) -> Option<VolumeTrouble> {
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let claims = job.spec.roles.iter().flat_map(|role| claims_of_role(namespace, role));
        claims.into_iter().find_map(|(claim, name)| {
            if !volumes::is_for_one_pod(self.index.claim(&claim)?) {
                return None;
            }
            let (user, _) = self.other_users(key, &claim).into_iter().next()?;
            let message = format!("claim \"{name}\" is ReadWriteOncePod and {user} uses it");
            Some(VolumeTrouble { code: Code::VolumeInUse, message })
        })
    }

    /// Who else uses a claim, and on which node: pods that exist, and jobs that were given nodes.
    fn other_users(&self, key: &str, claim: &str) -> Vec<(String, String)> {
        let live = self.index.pods_of_claim(claim).filter(|(_, p)| !crate::commit::is_terminal(p));
        let others = live.filter(|(_, p)| job_of_pod(p).as_deref() != Some(key));
        let mut users: Vec<(String, String)> = others
            .filter_map(|(pod, p)| Some((format!("pod {pod}"), translate::pod::node_of(p)?.to_owned())))
            .collect();
        for other in self.index.jobs_of_claim(claim).filter(|j| *j != key) {
            let Some(Phase::Running(running)) =
                self.state.find_job(other).and_then(|r| self.state.job(r)).map(|j| &j.phase)
            else {
                continue;
            };
            let Some(job) = self.index.jobs.get(other) else { continue };
            let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
            let uses = |role: u8| {
                job.spec.roles.get(usize::from(role)).is_some_and(|r| claims_of_role(namespace, r).contains_key(claim))
            };
            let seats = running.placement.seats.iter().filter(|s| uses(s.role));
            users.extend(seats.map(|s| (format!("job {other}"), self.state.topology().node_name(s.node).to_string())));
        }
        users
    }

    /// The nodes where others hold the disks of a role's claims that one node holds at a time.
    fn pinned(&self, key: &str, job: &TrainingJob, role: &Role) -> BTreeSet<String> {
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let claims = claims_of_role(namespace, role);
        let exclusive = claims.keys().filter(|c| self.index.claim(c).is_some_and(volumes::is_for_one_node));
        exclusive.flat_map(|claim| self.other_users(key, claim)).map(|(_, node)| node).collect()
    }

    /// A role's wishes with those of its volumes; what cannot be read of them is told elsewhere.
    pub(super) fn with_volumes(&self, key: &str, job: &TrainingJob, row: usize, spec: &PodSpec, ask: PodAsk) -> PodAsk {
        if !volumes::has_claims(spec) {
            return ask;
        }
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let mut asked = volumes::ask(namespace, spec, &self.index).unwrap_or_default();
        let pins = self.pinned(key, job, &job.spec.roles[row]).into_iter();
        asked.affinities.extend(pins.map(|node| volumes::only_on([node])));
        asked.added_to(ask.clone()).unwrap_or(ask)
    }

    /// Whether a placement is where others let the job's disks be. A plan is made before all of its own starts are known.
    #[must_use]
    pub fn may_mount(&self, key: &str, job: &TrainingJob, placement: &Placement) -> bool {
        job.spec.roles.iter().enumerate().all(|(row, role)| {
            let pins = self.pinned(key, job, role);
            let mut seats = placement.seats.iter().filter(|s| usize::from(s.role) == row);
            pins.is_empty() || seats.all(|s| pins.iter().all(|pin| **pin == **self.state.topology().node_name(s.node)))
        })
    }

    /// The claims of a job whose node is to be chosen before its pods are made, with that node.
    #[must_use]
    pub fn claims_to_select(
        &self,
        key: &str,
        job: &TrainingJob,
        node_of: impl Fn(usize) -> Option<String>,
    ) -> BTreeMap<String, String> {
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let mut selections = BTreeMap::new();
        for row in 0..job.spec.roles.len() {
            let spec = self.effective_pod(key, job, row);
            let unselected = volumes::ask(namespace, &spec, &self.index).unwrap_or_default().unselected;
            for claim in unselected {
                if let Some(node) = node_of(row) {
                    selections.entry(claim).or_insert(node);
                }
            }
        }
        selections
    }

    /// Where the volumes of a role can be used, by what is bound.
    ///
    /// # Errors
    /// What is still missing.
    pub fn reach_of_role(&self, key: &str, job: &TrainingJob, row: usize) -> Result<Vec<NodeSelector>, VolumeTrouble> {
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let asked = volumes::ask(namespace, &self.effective_pod(key, job, row), &self.index)?;
        match asked.unselected.first() {
            None => Ok(asked.affinities),
            Some(claim) => {
                let message = format!("claim \"{claim}\" waits for a node to be chosen");
                Err(VolumeTrouble { code: Code::VolumeNotBound, message })
            }
        }
    }
}
