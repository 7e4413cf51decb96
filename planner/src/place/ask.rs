//! The question of one placement and its answer.

use crate::ids::{DomainIdx, ShapeIdx};
use crate::job::{JobSpec, Placement};
use crate::time::Time;
use std::sync::Arc;

/// One placement question.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The job.
    pub spec: &'a JobSpec,
    /// Pods wanted of each role; whole slices.
    pub sizes: &'a [u32],
    /// When the job would start.
    pub start: Time,
    /// When it is predicted to end: weighs the loss of free node-time, nothing else.
    pub predicted_end: Time,
    /// Only answers with at most this many domains of the wanted level (patience).
    pub most_domains: Option<u32>,
    /// Steps of the packing search after which it gives up; see [`NoFit::SearchLimit`].
    pub search_limit: u32,
    /// Only inside this domain.
    pub within: Option<DomainIdx>,
}

/// Free node-time that a choice breaks, in squared nodes × microseconds; see [`super`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loss(pub i128);

/// The best place found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Found {
    /// The seats.
    pub placement: Placement,
    /// Domains of the wanted level in use; a node whose path is unknown there counts as one.
    pub domains: u32,
    /// The narrowest domain that holds every seat; the first node's pool root if the seats span pools.
    pub domain: DomainIdx,
    /// Free node-time that it breaks.
    pub loss: Loss,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFit {
    /// It is proved that the job does not fit.
    Proved,
    /// It fits, but not in as few domains as asked.
    TooManyDomains {
        /// Fewest domains of the wanted level found.
        best: u32,
    },
    /// The search stopped at its limit; neither a place nor a proof was found.
    SearchLimit,
}

/// Pods that are alike to the search: one shape, one kind of slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The pod.
    pub(crate) shape: ShapeIdx,
    /// Pods a slice, 1 without slices.
    pub(crate) slice: u32,
    /// Level that holds a slice.
    pub(crate) within: Option<Arc<str>>,
    /// Pods wanted in all.
    pub(crate) pods: u32,
    /// Pods that it may grow to.
    pub(crate) most: u32,
    /// Roles of this kind with their pods, in role order.
    pub(crate) roles: Vec<(u8, u32)>,
}

/// The pods wanted, by kind.
pub(crate) fn kinds(spec: &JobSpec, sizes: &[u32]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::with_capacity(spec.roles.len());
    for (row, (role, &pods)) in (0u8..).zip(spec.roles.iter().zip(sizes)) {
        if pods == 0 {
            continue;
        }
        // A slice of one pod is wherever that pod is.
        let slice = role.slice.as_ref().filter(|s| s.size > 1);
        let (size, within) = (slice.map_or(1, |s| s.size), slice.map(|s| s.within.clone()));
        match kinds.iter_mut().find(|k| k.shape == role.shape && k.slice == size && k.within == within) {
            Some(kind) => {
                kind.pods += pods;
                kind.most += role.replicas.max(pods);
                kind.roles.push((row, pods));
            }
            None => {
                let (most, roles) = (role.replicas.max(pods), vec![(row, pods)]);
                kinds.push(Kind { shape: role.shape, slice: size, within, pods, most, roles });
            }
        }
    }
    kinds
}
