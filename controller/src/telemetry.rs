//! Logs, traces and metrics: structured logs on standard error, Prometheus metrics always, OTLP where
//! `OTEL_EXPORTER_OTLP_ENDPOINT` says so.

use anyhow::Context;
use opentelemetry::global;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use prometheus::Registry;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// How logs look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What must be flushed at the end, and where metrics are read.
pub struct Telemetry {
    /// All metrics in Prometheus' terms.
    pub registry: Registry,
    meters: SdkMeterProvider,
    tracers: Option<SdkTracerProvider>,
}

/// Sets everything up for this process.
///
/// # Errors
/// If the filter or an exporter's settings cannot be read.
pub fn install(format: LogFormat, filter: &str) -> anyhow::Result<Telemetry> {
    let endpoint = std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some();
    let resource = Resource::builder().with_service_name("berth-controller").build();
    let registry = Registry::new();
    let meters = meters(&registry, &resource, endpoint)?;
    global::set_meter_provider(meters.clone());
    let tracers = if endpoint { Some(tracers(resource)?) } else { None };
    let filter = EnvFilter::try_new(filter).context("the log filter cannot be read")?;
    let writer = std::io::stderr;
    let logs = match format {
        LogFormat::Text => {
            tracing_subscriber::fmt::layer().with_writer(writer).with_target(false).with_filter(filter).boxed()
        }
        LogFormat::Json => tracing_subscriber::fmt::layer().json().with_writer(writer).with_filter(filter).boxed(),
    };
    let spans = tracers.as_ref().map(|t| tracing_opentelemetry::layer().with_tracer(t.tracer("berth")));
    tracing_subscriber::registry().with(logs).with(spans).try_init().context("logging was set up twice")?;
    if let Some(tracers) = &tracers {
        global::set_tracer_provider(tracers.clone());
    }
    Ok(Telemetry { registry, meters, tracers })
}

fn meters(registry: &Registry, resource: &Resource, endpoint: bool) -> anyhow::Result<SdkMeterProvider> {
    let prometheus = opentelemetry_prometheus::exporter()
        .with_registry(registry.clone())
        .build()
        .context("the Prometheus exporter cannot be built")?;
    let mut builder = SdkMeterProvider::builder().with_resource(resource.clone()).with_reader(prometheus);
    if endpoint {
        let otlp =
            MetricExporter::builder().with_http().build().context("the OTLP exporter of metrics cannot be built")?;
        builder = builder.with_reader(PeriodicReader::builder(otlp).build());
    }
    Ok(builder.build())
}

fn tracers(resource: Resource) -> anyhow::Result<SdkTracerProvider> {
    let otlp = SpanExporter::builder().with_http().build().context("the OTLP exporter of traces cannot be built")?;
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(otlp).build())
}

impl Telemetry {
    /// Sends what is still waiting.
    pub fn flush(&self) {
        let _ = self.meters.shutdown();
        if let Some(tracers) = &self.tracers {
            let _ = tracers.shutdown();
        }
    }
}
