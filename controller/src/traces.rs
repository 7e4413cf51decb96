//! One trace for each job, from first sight to Started, with a child for every operation on the way.

use opentelemetry::trace::{Span, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, global};
use std::time::SystemTime;

/// The trace of one start.
#[derive(Debug)]
pub struct StartTrace {
    context: Context,
}

impl StartTrace {
    /// Begins at first sight of a job.
    #[must_use]
    pub fn begin(job: &str, uid: &str, queue: &str) -> Self {
        let tracer = global::tracer("berth");
        let span = tracer
            .span_builder("job start")
            .with_kind(SpanKind::Internal)
            .with_attributes([
                KeyValue::new("berth.job", job.to_owned()),
                KeyValue::new("berth.job_uid", uid.to_owned()),
                KeyValue::new("berth.queue", queue.to_owned()),
            ])
            .start(&tracer);
        Self { context: Context::new().with_span(span) }
    }

    /// Notes something on the way.
    pub fn event(&self, name: &'static str, detail: String) {
        self.context.span().add_event(name, vec![KeyValue::new("detail", detail)]);
    }

    /// A finished step on the way.
    pub fn step(&self, name: &'static str, began: SystemTime, result: &str, failed: bool) {
        let tracer = global::tracer("berth");
        let mut span = tracer.span_builder(name).with_start_time(began).start_with_context(&tracer, &self.context);
        span.set_attribute(KeyValue::new("berth.result", result.to_owned()));
        if failed {
            span.set_status(Status::error(result.to_owned()));
        }
        span.end();
    }

    /// The job has started.
    pub fn end(self) {
        self.context.span().end();
    }
}
