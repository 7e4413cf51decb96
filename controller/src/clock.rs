//! What time it is on the cluster's clock, for everything that writes or compares times. Given from outside, so that the
//! whole controller can run on a virtual clock. How long something takes is measured by the runtime's own clock.

use k8s_openapi::jiff::Timestamp;
use planner::Time;
use std::sync::Arc;

/// A clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's own.
    #[must_use]
    pub fn wall() -> Self {
        Self::of(Timestamp::now)
    }

    /// Any other.
    #[must_use]
    pub fn of(read: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Now.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        (self.0)()
    }

    /// Now, as the planner counts.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(self.timestamp().as_microsecond())
    }
}
