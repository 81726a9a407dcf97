//! Testkit: the tools that the tests of all floors share; never part of a program that keeps data.
//!
//! Why it exists: a power cut, a full disk and a rotten bit cannot be waited for. `SimDisk` makes each of them happen at
//! a chosen moment, the same way every time for the same seed.
//! Format and state: none on disk; the fault model stands in `sim_disk`.

mod crash;
mod faults;
mod ranges;
mod rng;
mod sim_clock;
mod sim_disk;
mod sim_file;
mod sparse;
mod sweep;

pub use faults::Fault;
pub use rng::Rng;
pub use sim_clock::SimClock;
pub use sim_disk::SimDisk;
pub use sweep::Sweep;
