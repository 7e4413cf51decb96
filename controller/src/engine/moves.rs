//! Why promises moved: written in the same write as the move itself, so that no crash can lose a cause, and shown in the
//! Berth's status later.

use crds::Berth;
use crds::names::annotations;
use crds::v1alpha1::Moved;

/// Moves of a Berth that its status does not show yet.
pub(super) fn untold(berth: &Berth) -> Vec<Moved> {
    let noted = berth.metadata.annotations.as_ref().and_then(|a| a.get(annotations::MOVED));
    let noted: Vec<Moved> = noted.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let told = berth.status.as_ref().map_or(&[][..], |s| s.moved.as_slice());
    noted.into_iter().filter(|m| !told.contains(m)).collect()
}

/// Notes one more.
pub(super) fn note(berth: &mut Berth, moved: Moved) {
    if crate::sabotage::is(crate::sabotage::Sabotage::NoCause) {
        return;
    }
    let mut all = untold(berth);
    all.push(moved);
    if let Ok(text) = serde_json::to_string(&all) {
        berth.metadata.annotations.get_or_insert_default().insert(annotations::MOVED.to_owned(), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_move_is_untold_until_the_status_shows_it() {
        let mut berth: Berth = serde_json::from_value(json!({
            "apiVersion": "berth.dev/v1alpha1", "kind": "Berth", "metadata": {"name": "j-1"},
            "spec": {"job": "j", "jobUid": "u", "incarnation": 1, "queue": "q", "state": "Reserved", "assignments": []},
        }))
        .expect("a Berth");
        let moved = |to: &str| Moved { from: "1".into(), to: Some(to.into()), cause: "Overrun(ns/other)".into() };
        note(&mut berth, moved("2"));
        note(&mut berth, moved("3"));
        assert_eq!(untold(&berth), [moved("2"), moved("3")]);
        berth.status.get_or_insert_default().moved.push(moved("2"));
        assert_eq!(untold(&berth), [moved("3")]);
    }
}
