//! What a sweep shows: a table of stages and faults, stories of what broke, and `target/sweep.json`.

use berth_e2e::fake_api::Fault;
use berth_e2e::fake_api::faults::FAULTS;
use berth_e2e::plane::root;
use berth_e2e::world::scenes::{STAGES, Stage};
use berth_e2e::world::sweep::Life;
use std::path::PathBuf;
use std::sync::Mutex;

static FILE: Mutex<()> = Mutex::new(());

fn target() -> PathBuf {
    root().join("target")
}

/// Lives, and those among them that broke a promise, by stage and fault.
pub(crate) fn table(points: &[(Stage, u64, Fault)], lives: &[Life]) {
    let mut text = format!("{:<9}", "");
    for fault in FAULTS {
        text += &format!("{:>13}", fault.name());
    }
    for stage in STAGES {
        text += &format!("\n{:<9}", stage.name());
        for fault in FAULTS {
            let here = points.iter().zip(lives).filter(|((s, _, f), _)| *s == stage && *f == fault);
            let (mut played, mut broken) = (0, 0);
            for (_, life) in here {
                played += 1;
                broken += u32::from(!life.violations.is_empty());
            }
            let cell = if broken == 0 { played.to_string() } else { format!("{played} ({broken} bad)") };
            text += &format!("{cell:>13}");
        }
    }
    println!("{text}");
}

/// Keeps the story of a life that broke a promise in `target/sweep/`.
pub(crate) fn keep_story(name: &str, life: &Life) {
    let folder = target().join("sweep");
    let file = folder.join(format!("{}.txt", name.replace(' ', "-")));
    let text = format!("{}\n\n{}\n", life.story, life.violations.join("\n"));
    if std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, text)).is_err() {
        println!("{} cannot be written", file.display());
    }
}

/// Notes a figure in `target/sweep.json`; `violations` is the sum of what points and seeds broke.
pub(crate) fn note(name: &str, value: u64) {
    let _one_at_a_time = FILE.lock().expect("nobody dies while writing");
    let path = target().join("sweep.json");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap_or_default();
    all.insert(name.to_owned(), value.into());
    let of = |key: &str| all.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let violations = of("point_violations") + of("seed_violations");
    all.insert("violations".to_owned(), violations.into());
    // In a fresh clone whose builds go elsewhere there is no such folder yet.
    std::fs::create_dir_all(target()).expect("the checkout can be written");
    std::fs::write(&path, serde_json::to_string_pretty(&all).expect("figures")).expect("target can be written");
}
