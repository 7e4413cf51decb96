//! Every instrument of the controller, by name `berth_*`: the one place that knows OpenTelemetry's metrics.

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};
use opentelemetry::{KeyValue, global};
use std::time::Duration;

/// The instruments.
#[derive(Clone, Debug)]
pub struct Metrics {
    api_writes: Counter<u64>,
    cycles: Counter<u64>,
    cycle_seconds: Histogram<f64>,
    plan_seconds: Histogram<f64>,
    plans_rejected: Counter<u64>,
    actions: Counter<u64>,
    operations: Counter<u64>,
    operation_seconds: Histogram<f64>,
    start_seconds: Histogram<f64>,
    jobs: Gauge<u64>,
    pending: Gauge<u64>,
    watch_restarts: Counter<u64>,
    watch_last_event: Gauge<f64>,
    queue_depth: Gauge<u64>,
    events_dropped: Counter<u64>,
    undo_failures: Counter<u64>,
    leader: Gauge<u64>,
}

impl Metrics {
    /// The instruments of the global meter.
    #[must_use]
    pub fn global() -> Self {
        Self::new(&global::meter("berth"))
    }

    /// The instruments of a meter.
    #[must_use]
    pub fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str, text: &'static str| {
            meter.f64_histogram(name).with_description(text).with_unit("s").with_boundaries(boundaries()).build()
        };
        let counter = |name: &'static str, text: &'static str| meter.u64_counter(name).with_description(text).build();
        let gauge = |name: &'static str, text: &'static str| meter.u64_gauge(name).with_description(text).build();
        Self {
            api_writes: counter("berth_api_writes", "Writes to the API server by verb, kind and result"),
            cycles: counter("berth_cycles", "Planning cycles"),
            cycle_seconds: seconds(
                "berth_cycle_duration",
                "Time of a cycle, from waking to the last action handed over",
            ),
            plan_seconds: seconds("berth_plan_duration", "Time of the planner alone"),
            plans_rejected: counter("berth_plans_rejected", "Plans that the independent checker refused"),
            actions: counter("berth_plan_actions", "Decisions of plans by kind"),
            operations: counter("berth_operations", "Operations of the commit protocol by kind and result"),
            operation_seconds: seconds("berth_operation_duration", "Time of one operation of the commit protocol"),
            start_seconds: seconds("berth_job_start_delay", "From first sight of a job to Started"),
            jobs: gauge("berth_jobs", "Jobs by phase"),
            pending: gauge("berth_pending_jobs", "Waiting jobs by code"),
            watch_restarts: counter("berth_watch_restarts", "Watches begun anew, by kind"),
            watch_last_event: meter
                .f64_gauge("berth_watch_last_event_timestamp")
                .with_description("Unix time of the last sign of life of a watch, by kind")
                .with_unit("s")
                .build(),
            queue_depth: gauge("berth_channel_depth", "Messages waiting, by channel"),
            events_dropped: counter("berth_events_dropped", "Events not recorded because too many were waiting"),
            undo_failures: counter("berth_undo_failures", "Starts that could not be taken back at once"),
            leader: gauge("berth_leader", "1 while this process is the leader"),
        }
    }

    /// A write to the API server.
    pub fn write(&self, verb: &'static str, kind: &'static str, result: &'static str) {
        let labels = [KeyValue::new("verb", verb), KeyValue::new("kind", kind), KeyValue::new("result", result)];
        self.api_writes.add(1, &labels);
    }

    /// A cycle.
    pub fn cycle(&self, whole: Duration, planning: Duration) {
        self.cycles.add(1, &[]);
        self.cycle_seconds.record(whole.as_secs_f64(), &[]);
        self.plan_seconds.record(planning.as_secs_f64(), &[]);
    }

    /// A plan was refused by the checker.
    pub fn plan_rejected(&self) {
        self.plans_rejected.add(1, &[]);
    }

    /// A decision of a plan.
    pub fn action(&self, kind: &'static str) {
        self.actions.add(1, &[KeyValue::new("action", kind)]);
    }

    /// An operation came to its end.
    pub fn operation(&self, kind: &'static str, result: &'static str, took: Duration) {
        self.operations.add(1, &[KeyValue::new("kind", kind), KeyValue::new("result", result)]);
        self.operation_seconds.record(took.as_secs_f64(), &[KeyValue::new("kind", kind)]);
    }

    /// A job has started.
    pub fn started(&self, after: Duration) {
        self.start_seconds.record(after.as_secs_f64(), &[]);
    }

    /// How many jobs are in a phase.
    pub fn jobs(&self, phase: &'static str, count: u64) {
        self.jobs.record(count, &[KeyValue::new("phase", phase)]);
    }

    /// How many jobs wait for a reason.
    pub fn pending(&self, code: &'static str, count: u64) {
        self.pending.record(count, &[KeyValue::new("code", code)]);
    }

    /// A watch was begun anew.
    pub fn watch_restarted(&self, kind: &'static str) {
        self.watch_restarts.add(1, &[KeyValue::new("kind", kind)]);
    }

    /// A watch showed a sign of life.
    pub fn watch_alive(&self, kind: &'static str, unix_seconds: f64) {
        self.watch_last_event.record(unix_seconds, &[KeyValue::new("kind", kind)]);
    }

    /// Messages waiting in a channel.
    pub fn depth(&self, channel: &'static str, depth: usize) {
        self.queue_depth.record(depth as u64, &[KeyValue::new("channel", channel)]);
    }

    /// An event was dropped.
    pub fn event_dropped(&self) {
        self.events_dropped.add(1, &[]);
    }

    /// A start could not be taken back at once.
    pub fn undo_failed(&self) {
        self.undo_failures.add(1, &[]);
    }

    /// Whether we lead.
    pub fn leader(&self, leading: bool) {
        self.leader.record(u64::from(leading), &[]);
    }
}

/// From a fast cycle to a slow start.
fn boundaries() -> Vec<f64> {
    vec![0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0]
}
