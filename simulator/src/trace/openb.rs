//! Alibaba openb 2023: the pod list (single pods, some on a share of one GPU) and the node list of its cluster.

use super::{Source, Table, TraceError, TraceJob};
use planner::{Span, Time};

/// A node of the openb cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenbNode {
    /// Name.
    pub name: String,
    /// Thousandths of CPUs.
    pub cpu_milli: u64,
    /// MiB of memory.
    pub memory_mib: u64,
    /// GPUs.
    pub gpus: u64,
    /// GPU model.
    pub model: String,
}

/// A pod of the openb list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenbPod {
    /// Name.
    pub name: String,
    /// Thousandths of CPUs.
    pub cpu_milli: u64,
    /// MiB of memory.
    pub memory_mib: u64,
    /// GPUs it touches.
    pub gpus: u64,
    /// Thousandths of each GPU it touches.
    pub gpu_milli: u64,
    /// GPU models it may use; empty: any.
    pub models: Vec<String>,
}

/// Reads the node list.
///
/// # Errors
/// If a column is missing or a value is no number.
pub fn read_nodes(source: &Source) -> Result<Vec<OpenbNode>, TraceError> {
    let table = Table::read(source, None)?;
    let mut nodes = Vec::new();
    for line in table.rows() {
        nodes.push(OpenbNode {
            name: line.text("sn")?.to_owned(),
            cpu_milli: line.count("cpu_milli")?,
            memory_mib: line.count("memory_mib")?,
            gpus: line.count("gpu")?,
            model: line.text("model")?.to_owned(),
        });
    }
    Ok(nodes)
}

/// Reads what the pods ask for, in file order.
///
/// # Errors
/// If a column is missing or a value is no number.
pub fn read_pod_requests(source: &Source) -> Result<Vec<OpenbPod>, TraceError> {
    let table = Table::read(source, None)?;
    let specs = table.has("gpu_spec");
    let mut pods = Vec::new();
    for line in table.rows() {
        let models = if specs { line.text("gpu_spec")? } else { "" };
        pods.push(OpenbPod {
            name: line.text("name")?.to_owned(),
            cpu_milli: line.count("cpu_milli")?,
            memory_mib: line.count("memory_mib")?,
            gpus: line.count("num_gpu")?,
            gpu_milli: line.count("gpu_milli")?,
            models: models.split('|').filter(|m| !m.is_empty()).map(str::to_owned).collect(),
        });
    }
    Ok(pods)
}

/// Reads the pods that used GPUs and have times, as jobs of whole GPUs; ties by row.
///
/// # Errors
/// If a column is missing (the multi-GPU list has no times) or a value is no number.
pub fn read_pods(source: &Source) -> Result<Vec<TraceJob>, TraceError> {
    let table = Table::read(source, None)?;
    let (created, deleted) = (table.column(&["creation_time"])?, table.column(&["deletion_time"])?);
    let mut jobs = Vec::new();
    for (row, line) in table.rows().enumerate() {
        if line.text(deleted)?.is_empty() {
            continue;
        }
        let (submit, end) = (line.micros(created)?, line.micros(deleted)?);
        let start = if line.text("scheduled_time")?.is_empty() { submit } else { line.micros("scheduled_time")? };
        let units = line.count("num_gpu")?;
        if end <= start || units == 0 {
            continue;
        }
        jobs.push(TraceJob {
            id: line.text("name")?.into(),
            submit: Time(submit),
            tie: row as u64,
            run: Span(end - start),
            estimate: None,
            units,
            user: "".into(),
            queue: line.text("qos")?.into(),
        });
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
        scheduled_time\nopenb-pod-0001,6000,12288,1,460,V100M16|V100M32,LS,Running,427061,12902960,427071\n";

    #[test]
    fn pods_are_read_both_ways() {
        let source = Source::of("pods.csv", PODS);
        let pods = read_pod_requests(&source).unwrap();
        assert_eq!((pods[0].gpu_milli, pods[0].models.len()), (460, 2));
        let jobs = read_pods(&source).unwrap();
        assert_eq!((jobs[0].units, jobs[0].run), (1, Span::from_secs(12_902_960 - 427_071)));
    }

    #[test]
    fn nodes_are_read_by_header() {
        let text = "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0000,64000,262144,2,P100\n";
        let nodes = read_nodes(&Source::of("n.csv", text)).unwrap();
        assert_eq!((nodes[0].gpus, &*nodes[0].model), (2, "P100"));
    }
}
