//! Gangs of alike pods: counts of whole pods answer exactly whether and in how few domains they fit.

use super::descend::{best_part, descend};
use super::leaf::count_down;
use super::quest::{Part, Quest};
use super::search::{Area, Best};
use super::table::{Cost, Tables, wanted_domains};
use crate::ids::DomainIdx;
use crate::room::Room;

/// The best place over these areas of one pool.
pub(crate) fn best_uniform<R: Room>(quest: &Quest<'_, R>, areas: &[Area]) -> Best {
    let pods = quest.kinds[0].pods;
    let mut parts = Vec::new();
    for area in areas {
        gather(quest, area.domain, u64::from(pods), &mut parts);
    }
    let mut best = Best::default();
    if !parts.is_empty() {
        best.offer(1, best_part(quest, parts.into_iter(), 0, pods));
        return best;
    }
    let wide = areas.iter().filter(|a| quest.domain(a.domain).depth < quest.wanted);
    let fitting = wide.filter(|a| quest.cap(a.domain, 0) >= u64::from(pods));
    let cost = |domain: DomainIdx| Some((least_cost(quest, domain)?, quest.part_free(Part::Domain(domain), 0), domain));
    if let Some((cost, _, domain)) = fitting.filter_map(|a| cost(a.domain)).min() {
        best.offer(wanted_domains(cost), descend(quest, domain, 0, pods));
    }
    best
}

/// Domains of the wanted level, and nodes outside them, that hold all pods.
fn gather<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx, pods: u64, out: &mut Vec<Part>) {
    if quest.part_free(Part::Domain(domain), 0) < pods {
        return;
    }
    if quest.domain(domain).depth >= quest.wanted {
        if quest.cap(domain, 0) >= pods {
            out.push(Part::Domain(domain));
        }
        return;
    }
    for part in quest.parts(domain) {
        match part {
            Part::Domain(child) => gather(quest, child, pods, out),
            Part::Node(_) if quest.part_cap(part, 0) >= pods => out.push(part),
            Part::Node(_) => {}
        }
    }
}

/// The least cost of holding all pods in a domain above the wanted level.
fn least_cost<R: Room>(quest: &Quest<'_, R>, domain: DomainIdx) -> Option<Cost> {
    let mut tables = Tables::new(quest, vec![quest.kinds[0].pods], true);
    if quest.domain(domain).depth.0 + 1 < quest.wanted.0 {
        return tables.least_cost(domain).ok()?;
    }
    // Each part is one domain of the wanted level: the largest ones are the fewest.
    let clip = |cap: u64| u32::try_from(cap).unwrap_or(u32::MAX);
    let mut caps: Vec<u32> = quest.parts(domain).map(|p| clip(quest.part_cap(p, 0))).filter(|c| *c > 0).collect();
    caps.sort_unstable_by(|a, b| b.cmp(a));
    let count = count_down(&caps, quest.kinds[0].pods);
    Some(tables.flat_cost(domain, count as u64))
}
