//! Names of everything made for a job. Deterministic, so that a retry finds what it made before.

/// Host name of a pod: the same for every attempt and incarnation.
#[must_use]
pub fn host_name(job: &str, role: &str, index: i32) -> String {
    format!("{job}-{role}-{index}")
}

/// Name of a pod: its host name for the first attempt, with `-r<k>` from the second on, so that a pod stuck on a dead
/// node keeps no name from its successor.
#[must_use]
pub fn pod_name(job: &str, role: &str, index: i32, attempt: u32) -> String {
    let host = host_name(job, role, index);
    if attempt <= 1 { host } else { format!("{host}-r{attempt}") }
}

/// The attempt that a pod's name tells; none if it is no pod of that seat.
#[must_use]
pub fn attempt_of(pod: &str, job: &str, role: &str, index: i32) -> Option<u32> {
    match pod.strip_prefix(&host_name(job, role, index))? {
        "" => Some(1),
        rest => rest.strip_prefix("-r")?.parse().ok().filter(|k| *k >= 2),
    }
}

/// Name under which other pods of the namespace reach a pod.
#[must_use]
pub fn address(job: &str, role: &str, index: i32) -> String {
    format!("{}.{job}", host_name(job, role, index))
}

/// Name of a Berth.
#[must_use]
pub fn berth_name(job: &str, incarnation: i64) -> String {
    format!("{job}-{incarnation}")
}

/// Name of the ConfigMap with the host file of an Mpi job.
#[must_use]
pub fn hosts_name(job: &str) -> String {
    format!("{job}-hosts")
}

/// Name of the Secret with the keys of an Mpi job.
#[must_use]
pub fn ssh_name(job: &str) -> String {
    format!("{job}-ssh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_has_the_plain_name_and_later_ones_tell_theirs() {
        assert_eq!(pod_name("llama", "worker", 3, 1), "llama-worker-3");
        assert_eq!(pod_name("llama", "worker", 3, 2), "llama-worker-3-r2");
        for attempt in [1, 2, 17] {
            assert_eq!(attempt_of(&pod_name("llama", "worker", 3, attempt), "llama", "worker", 3), Some(attempt));
        }
        for other in ["llama-worker-33", "llama-worker-3-r1", "llama-worker-3-rx", "llama-worker-30-r2"] {
            assert_eq!(attempt_of(other, "llama", "worker", 3), None, "{other}");
        }
    }
}
