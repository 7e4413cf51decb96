//! Chooses the domain and the nodes.

use super::ask::{Ask, Depths, Found, Kind, Loss, NoFit, kinds};
use super::candidates::candidates;
use super::layout::{Load, seats};
use super::pack::{Rest, first_fit};
use super::quality::domains_used;
use crate::ids::{DomainIdx, NodeIdx};
use crate::job::Placement;
use crate::room::Room;

/// The best place of a job in a room.
///
/// # Errors
/// [`NoFit`], and whether that is proved.
pub fn place<R: Room>(room: &R, ask: &Ask<'_>) -> Result<Found, NoFit> {
    let kinds = kinds(ask.spec, ask.sizes);
    let mut best: Option<(u32, Found)> = None;
    for domain in domains(room, ask) {
        let Some(placement) = pack(room, ask, &kinds, domain) else { continue };
        let domains = domains_used(room.topology(), ask.spec, &placement);
        if best.as_ref().is_none_or(|(d, _)| domains < *d) {
            let shared = room.topology().shared_depth(placement.seats.iter().map(|s| s.node));
            let domain = shared.map_or(domain, |(_, d)| d);
            best = Some((domains, Found { placement, domains, domain, loss: Loss::default() }));
        }
    }
    match best {
        None => Err(NoFit::Proved),
        Some((best, _)) if ask.most_domains.is_some_and(|most| best > most) => Err(NoFit::TooManyDomains { best }),
        Some((_, found)) => Ok(found),
    }
}

/// Whether the job fits inside one domain: the same answer as [`place`] within it, without choosing.
///
/// # Errors
/// [`NoFit`], and whether that is proved.
pub fn fits<R: Room>(room: &R, ask: &Ask<'_>, domain: DomainIdx) -> Result<(), NoFit> {
    let ask = Ask { within: Some(domain), most_domains: None, ..*ask };
    place(room, &ask).map(|_| ())
}

fn domains<R: Room>(room: &R, ask: &Ask<'_>) -> Vec<DomainIdx> {
    let topology = room.topology();
    let all = candidates(topology, ask.spec);
    let Some(within) = ask.within else { return all };
    let inside =
        |outer: DomainIdx, inner: DomainIdx| topology.ancestor_at(inner, topology.domain(outer).depth) == Some(outer);
    if all.iter().any(|d| inside(*d, within)) {
        return vec![within];
    }
    all.into_iter().filter(|d| inside(within, *d)).collect()
}

fn pack<R: Room>(room: &R, ask: &Ask<'_>, kinds: &[Kind], domain: DomainIdx) -> Option<Placement> {
    let topology = room.topology();
    let here = topology.domain(domain);
    let pool = topology.pool(here.pool);
    if let Some(node) = here.node_range().find(|n| one_node(room, kinds, *n)) {
        return Some(on(room, kinds, std::iter::once(node)));
    }
    if Depths::of(ask.spec, pool)?.required > here.depth {
        return None;
    }
    let mut want: Vec<u32> = kinds.iter().map(|k| k.pods).collect();
    let mut loads: Vec<Load> = Vec::new();
    for (row, kind) in kinds.iter().enumerate() {
        // Slices first try: one slice domain after the other, whole slices only.
        let Some(level) = &kind.within else { continue };
        let depth = pool.depth_of(level)?;
        let mut cells: Vec<Vec<NodeIdx>> = Vec::new();
        for node in here.node_range() {
            let same = |last: &Vec<NodeIdx>| {
                depth <= pool.narrowest()
                    && topology.domain_at(node, depth).is_some()
                    && topology.domain_at(node, depth) == topology.domain_at(last[0], depth)
            };
            match cells.last_mut() {
                Some(last) if same(last) => last.push(node),
                _ => cells.push(vec![node]),
            }
        }
        for cell in cells {
            let holds: u32 = cell.iter().map(|n| room.pods(*n, kind.shape)).sum();
            let mut pods = vec![0; kinds.len()];
            pods[row] = (holds / kind.slice * kind.slice).min(want[row]);
            want[row] -= pods[row];
            first_fit(room, kinds, cell.into_iter(), &mut pods, &mut loads);
        }
    }
    if !loads.is_empty() && kinds.len() > 1 {
        return None;
    }
    first_fit(room, kinds, here.node_range(), &mut want, &mut loads);
    want.iter().all(|w| *w == 0).then(|| seats(kinds, &mut loads))
}

fn on<R: Room>(room: &R, kinds: &[Kind], nodes: impl Iterator<Item = NodeIdx>) -> Placement {
    let mut want: Vec<u32> = kinds.iter().map(|k| k.pods).collect();
    let mut loads = Vec::new();
    first_fit(room, kinds, nodes, &mut want, &mut loads);
    seats(kinds, &mut loads)
}

/// Whether one node holds every pod.
pub(crate) fn one_node<R: Room>(room: &R, kinds: &[Kind], node: NodeIdx) -> bool {
    let mut rest = Rest::new(room, node);
    kinds.iter().all(|kind| {
        let fits = rest.holds(kind.shape) >= kind.pods;
        if fits {
            rest.take(kind.shape, kind.pods);
        }
        fits
    })
}
