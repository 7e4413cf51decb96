//! The virtual clock: one thread, time that jumps when nobody has anything to do.

use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs a world to its end on a clock of its own.
pub(crate) fn run<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O").block_on(story)
}

/// Lives of many worlds, side by side on all cores, in the order of `all`.
pub(crate) fn side_by_side<P: Sync, R: Send>(all: &[P], live: impl Fn(&P) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(all.len()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some((at, point)) = take(all, &next) {
                    let result = live(point);
                    done.lock().expect("a life that fails ends the test").push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("all threads have ended");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, P>(all: &'a [P], next: &AtomicUsize) -> Option<(usize, &'a P)> {
    let at = next.fetch_add(1, Ordering::SeqCst);
    all.get(at).map(|point| (at, point))
}
