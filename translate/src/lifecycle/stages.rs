//! Which roles may start when: each after the roles it depends on.

use crate::error::{Fault, FieldFault};
use crds::v1alpha1::Role;

/// Rows of roles in stages: all of one stage start together, when every pod of the earlier stages is Ready.
///
/// # Errors
/// If roles depend on each other in a circle or on one that does not exist.
pub fn stages(roles: &[Role]) -> Result<Vec<Vec<usize>>, FieldFault> {
    let at = |row: usize, fault| FieldFault::new(format!("roles[{row}].dependsOn"), fault);
    for (row, role) in roles.iter().enumerate() {
        if let Some(unknown) = role.depends_on.iter().find(|d| !roles.iter().any(|r| r.name == **d)) {
            return Err(at(row, Fault::UnknownRole(unknown.clone())));
        }
    }
    let mut stages: Vec<Vec<usize>> = Vec::new();
    let mut left: Vec<usize> = (0..roles.len()).collect();
    while !left.is_empty() {
        let waits = |row: &usize| left.iter().any(|other| roles[*row].depends_on.contains(&roles[*other].name));
        let (later, now): (Vec<usize>, Vec<usize>) = left.iter().copied().partition(waits);
        if now.is_empty() {
            return Err(at(later[0], Fault::DependencyCycle(roles[later[0]].name.clone())));
        }
        stages.push(now);
        left = later;
    }
    Ok(stages)
}

/// Rows of the roles whose pods may be made: those that depend only on roles of which every pod is Ready (or has
/// succeeded already).
#[must_use]
pub fn startable(roles: &[Role], ready: impl Fn(usize) -> bool) -> Vec<usize> {
    let is_ready = |name: &String| roles.iter().position(|r| r.name == *name).is_some_and(&ready);
    (0..roles.len()).filter(|&row| roles[row].depends_on.iter().all(is_ready)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mk_roles(of: &[(&str, &[&str])]) -> Vec<Role> {
        of.iter()
            .map(|(name, after)| {
                let role =
                    json!({"name": name, "replicas": 1, "dependsOn": after, "template": {"spec": {"containers": []}}});
                serde_json::from_value(role).expect("a role")
            })
            .collect()
    }

    #[test]
    fn roles_start_in_stages() {
        let roles =
            mk_roles(&[("worker", &["store", "launcher"]), ("launcher", &["store"]), ("store", &[]), ("eval", &[])]);
        assert_eq!(stages(&roles), Ok(vec![vec![2, 3], vec![1], vec![0]]));
        assert_eq!(startable(&roles, |_| false), [2, 3]);
        assert_eq!(startable(&roles, |row| row == 2), [1, 2, 3]);
    }

    #[test]
    fn circles_and_unknown_roles_are_named() {
        let fault = stages(&mk_roles(&[("a", &["b"]), ("b", &["a"]), ("c", &[])])).expect_err("a circle");
        assert_eq!((fault.field.as_str(), fault.fault), ("roles[0].dependsOn", Fault::DependencyCycle("a".into())));
        let fault = stages(&mk_roles(&[("a", &["x"])])).expect_err("nobody");
        assert_eq!(fault.fault, Fault::UnknownRole("x".into()));
    }
}
