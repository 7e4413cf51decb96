//! Where: the best place of one job in a [`Room`](crate::room::Room) that does not change meanwhile.
//!
//! Fewest domains of the wanted level, then of the wider ones, then of the narrower ones; among equals the choice that
//! breaks least free room over the job's life. It knows nothing of time beyond the room's window, of queues or of other
//! jobs; a "no" is proved or says that the search stopped at its limit.

mod ask;
mod candidates;
mod descend;
mod grow;
mod independent;
mod layout;
mod leaf;
mod mixed;
mod near;
mod pack;
mod quality;
mod quest;
mod search;
mod single;
mod split;
mod table;
mod uniform;
mod wide;

pub use ask::{Ask, Found, Loss, NoFit};
pub use candidates::{Never, candidates, never_fits};
pub use grow::{extend, replace};
pub(crate) use quality::domains_used;
pub use quality::quality;
pub use search::{fits, place};
