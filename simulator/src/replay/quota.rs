//! Quotas of a log's queues: their shares of the recorded work, in whole units.

/// What a queue brings to the division.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Unit-seconds of its jobs.
    pub work: f64,
    /// Units of its largest job.
    pub largest: u64,
}

/// Divides `capacity` by work. With `floor`, a queue whose part is below its largest job gets that size and the rest
/// is shared again, until none is below; whole units by largest remainder, ties to the earlier queue.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn divide(capacity: u64, demands: &[Demand], floor: bool) -> Vec<u64> {
    let mut fixed: Vec<Option<u64>> = vec![None; demands.len()];
    loop {
        let taken: u64 = fixed.iter().flatten().sum();
        let rest = capacity.saturating_sub(taken) as f64;
        let open: f64 = demands.iter().zip(&fixed).filter(|(_, f)| f.is_none()).map(|(d, _)| d.work).sum();
        let part = |d: &Demand| if open > 0.0 { rest * d.work / open } else { 0.0 };
        let below: Vec<usize> = (0..demands.len())
            .filter(|&q| floor && fixed[q].is_none() && part(&demands[q]) < demands[q].largest as f64)
            .collect();
        if below.is_empty() {
            let parts: Vec<f64> = demands.iter().map(part).collect();
            return whole_units(&parts, &fixed, rest);
        }
        for q in below {
            fixed[q] = Some(demands[q].largest);
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole_units(parts: &[f64], fixed: &[Option<u64>], rest: f64) -> Vec<u64> {
    let mut units: Vec<u64> = parts.iter().zip(fixed).map(|(p, f)| f.unwrap_or(p.floor() as u64)).collect();
    let open: Vec<usize> = (0..parts.len()).filter(|&q| fixed[q].is_none()).collect();
    let given: u64 = open.iter().map(|&q| units[q]).sum();
    let mut by_remainder = open;
    by_remainder.sort_by(|&a, &b| (parts[b].fract()).total_cmp(&parts[a].fract()).then(a.cmp(&b)));
    for &q in by_remainder.iter().take((rest as u64).saturating_sub(given) as usize) {
        units[q] += 1;
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demands(rows: &[(f64, u64)]) -> Vec<Demand> {
        rows.iter().map(|&(work, largest)| Demand { work, largest }).collect()
    }

    #[test]
    fn parts_follow_work_and_remainders_are_given_out() {
        assert_eq!(divide(10, &demands(&[(1.0, 1), (1.0, 1), (1.0, 1)]), false), [4, 3, 3]);
        assert_eq!(divide(100, &demands(&[(3.0, 1), (1.0, 1)]), false), [75, 25]);
    }

    #[test]
    fn a_queue_gets_its_largest_job_and_the_others_share_the_rest() {
        assert_eq!(divide(100, &demands(&[(98.0, 8), (1.0, 10), (1.0, 1)]), true), [89, 10, 1]);
        assert_eq!(divide(100, &demands(&[(98.0, 8), (1.0, 10), (1.0, 1)]), false), [98, 1, 1]);
    }
}
