//! Runs stories: most side by side in one world, those that disturb others one after another, after them.
//!
//! `cargo test -p berth-e2e --test stories -- WORD` runs those whose name contains a word.
#![allow(clippy::print_stdout)] // it is a test runner

use crate::harness::{Settings, World};
use anyhow::{Result, anyhow};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Stories under way at once: they mostly wait.
const AT_ONCE: usize = 8;
/// No story may take longer.
const LIMIT: Duration = Duration::from_secs(240);

/// A story and how it is run.
pub struct Told {
    /// Its name, a sentence.
    pub name: &'static str,
    /// Whether it disturbs others.
    pub alone: bool,
    /// What happens.
    pub run: fn(Arc<World>) -> BoxFuture<'static, Result<()>>,
}

/// Names stories of a module; `alone` before those that disturb others.
#[macro_export]
macro_rules! stories {
    ($($(@$alone:ident)? $name:ident),* $(,)?) => {
        vec![$($crate::runner::Told {
            name: stringify!($name),
            alone: !concat!("" $(, stringify!($alone))?).is_empty(),
            run: |world| Box::pin($name(world)),
        }),*]
    };
}

/// Runs all that the command line asks for.
pub fn main(binary: &str, stories: Vec<Told>) -> ExitCode {
    main_with(binary, &[], stories)
}

/// The same in a world whose components have settings of their own.
pub fn main_with(binary: &str, settings: Settings, stories: Vec<Told>) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|a| a == "--list") {
        stories.iter().for_each(|s| println!("{}: test", s.name));
        return ExitCode::SUCCESS;
    }
    let words: Vec<&String> = args.iter().filter(|a| !a.starts_with('-')).collect();
    let asked = |s: &Told| words.is_empty() || words.iter().any(|w| s.name.contains(w.as_str()));
    let stories: Vec<Told> = stories.into_iter().filter(asked).collect();
    if stories.is_empty() {
        eprintln!("no story by that name");
        return ExitCode::SUCCESS;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(tell(binary, settings, &stories))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn tell(binary: &str, settings: Settings, stories: &[Told]) -> Result<()> {
    let began = Instant::now();
    let world = Arc::new(World::up_with(binary, settings).await?);
    println!("\nrunning {} tests (the world is up after {:.1} s)", stories.len(), began.elapsed().as_secs_f64());
    let _keeper = world.keep_controller();
    let mut failed = Vec::new();
    let mut together =
        stream::iter(stories.iter().filter(|s| !s.alone).map(|s| one(&world, s))).buffer_unordered(AT_ONCE);
    while let Some(outcome) = together.next().await {
        failed.extend(outcome);
    }
    for story in stories.iter().filter(|s| s.alone) {
        failed.extend(one(&world, story).await);
    }
    // In the words of cargo's own runner, so that whoever counts tests counts stories too.
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {} failed; 0 ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        stories.len() - failed.len(),
        failed.len(),
        began.elapsed().as_secs_f64()
    );
    if failed.is_empty() { Ok(()) } else { Err(anyhow!("failed: {}", failed.join(", "))) }
}

/// One story to its end; its name if it failed.
async fn one(world: &Arc<World>, story: &Told) -> Option<&'static str> {
    let began = Instant::now();
    // An assertion's panic is a failure of this story alone.
    let run = AssertUnwindSafe((story.run)(world.clone())).catch_unwind();
    let outcome = match tokio::time::timeout(LIMIT, run).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(anyhow!("{}", panic_text(panic.as_ref()))),
        Err(_) => Err(anyhow!("not at its end after {LIMIT:?}")),
    };
    let seconds = began.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => {
            println!("test {} ... ok <{seconds:.1}s>", story.name);
            None
        }
        Err(error) => {
            let word = story.name.rsplit("::").next().unwrap_or_default().replace('_', "-");
            let word: String = word.chars().take(40).collect();
            println!("test {} ... FAILED <{seconds:.1}s>\n{error:#}\n{}", story.name, world.logs(&word).await);
            Some(story.name)
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned())
}
