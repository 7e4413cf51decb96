//! Law 10 on the Philly trace: private schedules driven by a simple pooled loop give the published figures.
//!
//! Fifteen virtual clusters are queues whose guarantees add up to the pool. Each one's private schedule is carried along.
//! At a job's private start: over - nothing; running on lent room - guaranteed from then on; waiting - it starts and
//! stops lent jobs if need be. What is idle is lent to the cluster of least use by guarantee.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // the lints are for code outside tests
#![allow(clippy::needless_range_loop)] // tables of one row a queue, read side by side
use berth_planner::private::{PrivateJob, PrivateRules, PrivateSchedules};
use berth_planner::queue::{Backfill, Order, QuotaKey};
use berth_planner::{QueueIdx, ResourceIdx, Span, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const GPU: QuotaKey = QuotaKey { pool: None, resource: ResourceIdx(1) };

#[derive(Clone, Debug)]
struct Job {
    submit: i64,
    run: i64,
    gpus: i64,
    vc: usize,
}

struct Trace {
    /// Names of the virtual clusters, sorted.
    vcs: Vec<String>,
    /// Jobs by submission, then file row.
    jobs: Vec<Job>,
}

fn traces() -> Option<std::path::PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces");
    let folder = std::env::var("BERTH_TRACES").unwrap_or_else(|_| beside.to_owned());
    let path = std::path::Path::new(&folder).join("philly.csv");
    if path.exists() {
        return Some(path);
    }
    eprintln!("SKIPPED: no {}; set BERTH_TRACES to the folder with the traces", path.display());
    None
}

/// Seconds since 1970 of `2017-10-09 07:01:55`.
fn seconds(stamp: &str) -> i64 {
    let part = |from: usize, to: usize| stamp[from..to].parse::<i64>().expect("a number");
    let (year, month, day) = (part(0, 4), part(5, 7), part(8, 10));
    // Days from civil (Hinnant): March-based years make leap days the last ones.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    days * 86_400 + part(11, 13) * 3_600 + part(14, 16) * 60 + part(17, 19)
}

fn read(path: &std::path::Path) -> Trace {
    let text = std::fs::read_to_string(path).expect("readable trace");
    let rows: Vec<Vec<&str>> = text.lines().skip(1).filter(|l| !l.is_empty()).map(|l| l.split(',').collect()).collect();
    let names: BTreeSet<&str> = rows.iter().map(|r| r[4]).collect();
    let vcs: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let mut jobs: Vec<Job> = rows
        .iter()
        .map(|r| Job {
            submit: seconds(r[0]),
            run: r[1].parse::<f64>().expect("seconds") as i64,
            gpus: r[2].parse().expect("GPUs"),
            vc: vcs.iter().position(|v| v == r[4]).expect("listed"),
        })
        .collect();
    jobs.sort_by_key(|j| j.submit);
    Trace { vcs, jobs }
}

/// Share of GPU time with a floor at the largest job; whole GPUs by largest remainder.
fn quotas(trace: &Trace, capacity: i64) -> Vec<i64> {
    let count = trace.vcs.len();
    let (mut time, mut largest) = (vec![0i64; count], vec![0i64; count]);
    for job in &trace.jobs {
        time[job.vc] += job.run * job.gpus;
        largest[job.vc] = largest[job.vc].max(job.gpus);
    }
    let mut fixed = vec![false; count];
    loop {
        let rest: i64 = capacity - (0..count).filter(|v| fixed[*v]).map(|v| largest[v]).sum::<i64>();
        let total: i64 = (0..count).filter(|v| !fixed[*v]).map(|v| time[v]).sum();
        let small: Vec<usize> = (0..count)
            .filter(|v| {
                !fixed[*v] && i128::from(time[*v]) * i128::from(rest) < i128::from(largest[*v]) * i128::from(total)
            })
            .collect();
        if !small.is_empty() {
            small.into_iter().for_each(|v| fixed[v] = true);
            continue;
        }
        let exact = |v: usize| i128::from(time[v]) * i128::from(rest);
        let total = i128::from(total);
        let mut quota: Vec<i64> =
            (0..count).map(|v| if fixed[v] { largest[v] } else { (exact(v) / total) as i64 }).collect();
        let mut open: Vec<usize> = (0..count).filter(|v| !fixed[*v]).collect();
        open.sort_by_key(|v| Reverse(exact(*v) % total));
        let missing = (capacity - quota.iter().sum::<i64>()) as usize;
        open.into_iter().take(missing).for_each(|v| quota[v] += 1);
        return quota;
    }
}

fn private_of(trace: &Trace, quotas: &[i64]) -> PrivateSchedules {
    let mut schedules = PrivateSchedules::new();
    for vc in 0..trace.vcs.len() {
        let rules = PrivateRules {
            capacity: [(GPU, quotas[vc])].into(),
            max_running_jobs: None,
            order: Order::Priority,
            backfill: Backfill::Depth(1),
            open: true,
        };
        schedules.set_queue(QueueIdx::of(vc), Some(rules), Time::ZERO);
    }
    schedules
}

fn private_job(row: usize, job: &Job) -> PrivateJob {
    let id: Arc<str> = format!("{row:06}").into();
    PrivateJob {
        id: id.clone(),
        key: id,
        user: "".into(),
        priority: 0,
        queued_at: Time::from_secs(job.submit),
        sequence: row as u64,
        demand: [(GPU, job.gpus)].into(),
        // Estimates are exact in this trace, as in the rules the figures were made by.
        limit: Span::from_secs(job.run),
    }
}

/// Each virtual cluster alone: start of every job.
fn private_starts(trace: &Trace, quotas: &[i64]) -> Vec<i64> {
    let mut schedules = private_of(trace, quotas);
    let mut starts = vec![i64::MIN; trace.jobs.len()];
    let mut note = |due: Vec<berth_planner::private::PrivateStart>| {
        for start in due {
            starts[start.id.parse::<usize>().expect("a row")] = start.at.0 / 1_000_000;
        }
    };
    let mut row = 0;
    while row < trace.jobs.len() {
        let now = trace.jobs[row].submit;
        while row < trace.jobs.len() && trace.jobs[row].submit == now {
            let job = &trace.jobs[row];
            schedules.submit(QueueIdx::of(job.vc), private_job(row, job), Time::from_secs(now));
            row += 1;
        }
        note(schedules.advance(Time::from_secs(now)));
    }
    while let Some(next) = schedules.next() {
        note(schedules.advance(next));
    }
    starts
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Waiting,
    Running { since: i64, guaranteed: bool },
    Over(i64),
}

/// What one pooled run came to.
#[derive(Debug)]
struct Outcome {
    ends: Vec<i64>,
    stops: u64,
    lost: i64,
}

/// The pool while it runs.
struct Pool<'t> {
    jobs: &'t [Job],
    quotas: &'t [i64],
    /// Multiples of so many seconds of work are kept; none: a stopped job loses all.
    checkpoint: Option<i64>,
    stand: Vec<Stand>,
    kept: Vec<i64>,
    free: i64,
    used: Vec<i64>,
    /// Waiting rows per cluster and size.
    waiting: Vec<BTreeMap<i64, BTreeSet<usize>>>,
    ends: BTreeSet<(i64, usize)>,
    lent: BTreeSet<usize>,
    stops: u64,
    lost: i64,
}

impl Pool<'_> {
    fn wait(&mut self, row: usize) {
        let job = &self.jobs[row];
        self.waiting[job.vc].entry(job.gpus).or_default().insert(row);
        self.stand[row] = Stand::Waiting;
    }

    fn start(&mut self, row: usize, guaranteed: bool, now: i64) {
        let job = &self.jobs[row];
        self.waiting[job.vc].get_mut(&job.gpus).expect("it waits").remove(&row);
        self.stand[row] = Stand::Running { since: now, guaranteed };
        self.free -= job.gpus;
        self.used[job.vc] += job.gpus;
        self.ends.insert((now + job.run - self.kept[row], row));
        if !guaranteed {
            self.lent.insert(row);
        }
    }

    fn leave(&mut self, row: usize) {
        let job = &self.jobs[row];
        self.free += job.gpus;
        self.used[job.vc] -= job.gpus;
        self.lent.remove(&row);
    }

    fn lost_if_stopped(&self, row: usize, now: i64) -> i64 {
        let Stand::Running { since, .. } = self.stand[row] else { return 0 };
        let done = now - since;
        self.checkpoint.map_or(done, |every| (self.kept[row] + done) % every)
    }

    fn stop(&mut self, row: usize, now: i64) {
        let Stand::Running { since, .. } = self.stand[row] else { return };
        self.ends.remove(&(since + self.jobs[row].run - self.kept[row], row));
        let lost = self.lost_if_stopped(row, now);
        self.stops += 1;
        self.lost += lost * self.jobs[row].gpus;
        self.kept[row] += now - since - lost;
        if self.checkpoint.is_none() {
            self.kept[row] = 0;
        }
        self.leave(row);
        self.wait(row);
    }

    fn private_start(&mut self, row: usize, now: i64) {
        match self.stand[row] {
            Stand::Over(_) => {}
            Stand::Running { since, .. } => {
                self.stand[row] = Stand::Running { since, guaranteed: true };
                self.lent.remove(&row);
            }
            Stand::Waiting => {
                self.clear(row, now);
                self.start(row, true, now);
            }
        }
    }

    /// Stops lent jobs until the job fits: others' first, least lost seconds, latest start, highest row; then, dearest
    /// first, each that is not needed is spared.
    fn clear(&mut self, row: usize, now: i64) {
        let job = &self.jobs[row];
        if self.free >= job.gpus {
            return;
        }
        let since = |r: usize| if let Stand::Running { since, .. } = self.stand[r] { since } else { 0 };
        let mut lent: Vec<_> = self
            .lent
            .iter()
            .map(|&r| (self.jobs[r].vc == job.vc, self.lost_if_stopped(r, now), Reverse(since(r)), Reverse(r)))
            .collect();
        lent.sort();
        let mut free = self.free;
        let mut victims = Vec::new();
        for (.., Reverse(r)) in lent {
            if free >= job.gpus {
                break;
            }
            free += self.jobs[r].gpus;
            victims.push(r);
        }
        assert!(free >= job.gpus, "guaranteed use never exceeds private use, so lent jobs always suffice");
        for victim in victims.iter().copied().rev().collect::<Vec<_>>() {
            if free - self.jobs[victim].gpus >= job.gpus {
                free -= self.jobs[victim].gpus;
                victims.retain(|v| *v != victim);
            }
        }
        for victim in victims {
            self.stop(victim, now);
        }
    }

    /// Lends what is idle: the cluster of least use by quota, then name; its first waiting job that fits.
    fn lend(&mut self, now: i64) {
        while self.free > 0 {
            let mut best: Option<(i64, i64, usize, usize)> = None;
            for vc in 0..self.quotas.len() {
                let fitting = self.waiting[vc].range(..=self.free).filter_map(|(_, rows)| rows.first());
                let Some(&first) = fitting.min() else { continue };
                let (used, quota) = (self.used[vc], self.quotas[vc]);
                if best.is_none_or(|(u, q, ..)| used * q < u * quota) {
                    best = Some((used, quota, vc, first));
                }
            }
            let Some((.., row)) = best else { return };
            self.start(row, false, now);
        }
    }
}

fn pooled(trace: &Trace, quotas: &[i64], capacity: i64, checkpoint: Option<i64>) -> Outcome {
    let count = trace.jobs.len();
    let mut schedules = private_of(trace, quotas);
    let mut pool = Pool {
        jobs: &trace.jobs,
        quotas,
        checkpoint,
        stand: vec![Stand::Waiting; count],
        kept: vec![0; count],
        free: capacity,
        used: vec![0; quotas.len()],
        waiting: vec![BTreeMap::new(); quotas.len()],
        ends: BTreeSet::new(),
        lent: BTreeSet::new(),
        stops: 0,
        lost: 0,
    };
    let mut row = 0;
    loop {
        let submit = trace.jobs.get(row).map(|j| j.submit);
        let end = pool.ends.first().map(|e| e.0);
        let private = schedules.next().map(|t| t.0 / 1_000_000);
        let Some(now) = [submit, end, private].into_iter().flatten().min() else { break };
        let at = Time::from_secs(now);
        while pool.ends.first().is_some_and(|e| e.0 == now) {
            let (_, over) = pool.ends.pop_first().expect("just seen");
            pool.leave(over);
            pool.stand[over] = Stand::Over(now);
            schedules.ended(&format!("{over:06}").into(), Span::from_secs(trace.jobs[over].run), at);
        }
        while trace.jobs.get(row).is_some_and(|j| j.submit == now) {
            let job = &trace.jobs[row];
            pool.wait(row);
            schedules.submit(QueueIdx::of(job.vc), private_job(row, job), at);
            row += 1;
        }
        for start in schedules.advance(at) {
            assert_eq!(start.at, at, "nothing private happens between two moments of the loop");
            pool.private_start(start.id.parse().expect("a row"), now);
        }
        pool.lend(now);
    }
    let end = |s: &Stand| if let Stand::Over(end) = s { *end } else { unreachable!("every job ends") };
    Outcome { ends: pool.stand.iter().map(end).collect(), stops: pool.stops, lost: pool.lost }
}

fn delays(trace: &Trace, ends: &[i64], vc: Option<usize>) -> (f64, i64) {
    let mut all: Vec<i64> = trace
        .jobs
        .iter()
        .zip(ends)
        .filter(|(j, _)| vc.is_none_or(|v| v == j.vc))
        .map(|(j, e)| e - j.submit - j.run)
        .collect();
    all.sort_unstable();
    (all.iter().sum::<i64>() as f64 / all.len() as f64, all[all.len() * 99 / 100])
}

fn work(trace: &Trace) -> f64 {
    trace.jobs.iter().map(|j| (j.run * j.gpus) as f64).sum()
}

#[test]
fn quotas_are_those_of_the_table() {
    let Some(path) = traces() else { return };
    let trace = read(&path);
    let by_vc: BTreeMap<&str, i64> = trace.vcs.iter().map(String::as_str).zip(quotas(&trace, 640)).collect();
    let table = [
        ("ee9e8c", 157),
        ("7f04ca", 101),
        ("b436b2", 77),
        ("6214e9", 60),
        ("6c71a0", 50),
        ("2869ce", 49),
        ("0e4a51", 47),
        ("e13805", 32),
        ("103959", 26),
        ("11cb48", 17),
        ("23dbec", 8),
        ("ed69ec", 6),
        ("795a4c", 1),
        ("925e2b", 8),
        ("51b7ef", 1),
    ];
    assert_eq!(by_vc, table.into());
}

/// Mean / p99 delay per virtual cluster at 640 GPUs in 1,000 s: alone, (c), (d).
const TABLE: [(&str, [(f64, f64); 3]); 13] = [
    ("ee9e8c", [(124., 617.), (6.5, 133.), (5.3, 133.)]),
    ("7f04ca", [(602., 1441.), (20.6, 225.), (10.6, 185.)]),
    ("b436b2", [(782., 947.), (8.0, 34.), (6.0, 12.)]),
    ("6214e9", [(150., 434.), (27.9, 156.), (12.7, 84.)]),
    ("6c71a0", [(569., 881.), (8.6, 134.), (2.7, 42.)]),
    ("2869ce", [(277., 904.), (46.5, 599.), (30.0, 599.)]),
    ("0e4a51", [(741., 2782.), (21.4, 458.), (9.5, 175.)]),
    ("e13805", [(1.2, 38.), (0.4, 1.), (0.4, 1.)]),
    ("103959", [(115., 478.), (1.5, 35.), (0.3, 10.)]),
    ("11cb48", [(177., 1359.), (2.7, 98.), (0.8, 34.)]),
    ("23dbec", [(18.8, 53.), (17.9, 50.), (4.1, 14.)]),
    ("ed69ec", [(1014., 1630.), (20.1, 125.), (3.3, 47.)]),
    ("795a4c", [(8.2, 12.), (2.1, 5.), (0.0, 0.)]),
];

#[test]
fn every_virtual_cluster_has_the_delays_of_the_table() {
    let Some(path) = traces() else { return };
    let trace = read(&path);
    let quotas = quotas(&trace, 640);
    let starts = private_starts(&trace, &quotas);
    let runs = [
        starts.iter().zip(&trace.jobs).map(|(s, j)| s + j.run).collect(),
        pooled(&trace, &quotas, 640, None).ends,
        pooled(&trace, &quotas, 640, Some(1_800)).ends,
    ];
    for (name, published) in TABLE {
        let vc = trace.vcs.iter().position(|v| v == name).expect("in the trace");
        for (ends, (mean, p99)) in runs.iter().zip(published) {
            let got = delays(&trace, ends, Some(vc));
            let digit = if mean >= 100.0 { 0.5 } else { 0.05 };
            // The table was printed from whole seconds.
            let off = |got: f64, published: f64, digit: f64| (got / 1_000.0 - published).abs() > digit + 0.001;
            assert!(
                !off(got.0, mean, digit) && !off(got.1 as f64, p99, 0.5),
                "{name}: {got:?}, published {mean}/{p99}"
            );
        }
    }
}

#[test]
fn nobody_is_worse_off_than_alone_and_the_mean_is_far_better() {
    let Some(path) = traces() else { return };
    let trace = read(&path);
    // (C, private mean delay, (c) mean, (c) stops, (c) lost %, (d) mean, (d) stops) in seconds
    for (capacity, alone, c, c_stops, d, d_stops) in [
        (640, 287_800.0, 17_500.0, Some(6_889), 7_900.0, Some(4_377)),
        (512, 684_800.0, 104_400.0, None, 39_700.0, None),
        (768, 119_600.0, 690.0, None, 630.0, None),
    ] {
        let quotas = quotas(&trace, capacity);
        let clock = std::time::Instant::now();
        let starts = private_starts(&trace, &quotas);
        let private: Vec<i64> = starts.iter().zip(&trace.jobs).map(|(s, j)| s + j.run).collect();
        let (mean, p99) = delays(&trace, &private, None);
        eprintln!("{capacity}: alone {mean:.1} / {p99} ({:?})", clock.elapsed());
        assert!((mean - alone).abs() <= 50.0, "alone: {mean}, published {alone}");
        for (name, checkpoint, published, stops) in [("c", None, c, c_stops), ("d", Some(1_800), d, d_stops)] {
            let clock = std::time::Instant::now();
            let run = pooled(&trace, &quotas, capacity, checkpoint);
            let (mean, p99) = delays(&trace, &run.ends, None);
            let later = run.ends.iter().zip(&private).filter(|(shared, alone)| shared > alone).count();
            let lost = 100.0 * run.lost as f64 / work(&trace);
            eprintln!(
                "{capacity} ({name}): {mean:.1} / {p99}, {later} later, {} stops, {lost:.2} % lost ({:?})",
                run.stops,
                clock.elapsed()
            );
            assert_eq!(later, 0, "no job ends later than alone");
            for vc in 0..trace.vcs.len() {
                let (shared, alone) = (delays(&trace, &run.ends, Some(vc)), delays(&trace, &private, Some(vc)));
                assert!(shared.0 <= alone.0 && shared.1 <= alone.1, "{} is worse off", trace.vcs[vc]);
            }
            assert!((mean - published).abs() <= 50.0, "({name}) at {capacity}: {mean}, published {published}");
            if let Some(stops) = stops {
                assert_eq!(run.stops, stops, "({name}) at {capacity}");
            }
        }
    }
}
