//! Gangs of alike pods: counts of whole pods answer exactly whether and in how few domains they fit.

use super::descend::{best_part, carry_out};
use super::quest::{Part, Quest};
use super::search::{Area, Best};
use super::table::wanted_domains;
use super::wide::plan_wide;
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
    quest.keep_roomiest(&mut parts);
    if !parts.is_empty() {
        best.offer(1, best_part(quest, parts.into_iter(), 0, pods));
        return best;
    }
    let wide = areas.iter().filter(|a| quest.domain(a.domain).depth < quest.wanted);
    let fitting = wide.filter(|a| quest.cap(a.domain, 0) >= u64::from(pods));
    let planned = fitting.filter_map(|area| {
        let plan = plan_wide(quest, area.domain, 0, pods)?;
        Some(((plan.cost, quest.part_free(Part::Domain(area.domain), 0), area.domain), plan))
    });
    if let Some((_, plan)) = planned.min_by_key(|p| p.0) {
        best.offer(wanted_domains(plan.cost), carry_out(quest, &plan, 0));
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
