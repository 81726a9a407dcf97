//! Io: the only floor that touches files, the clock and threads.
//!
//! Why it exists: everything above sees a disk through two small traits, so a simulated disk can lose, tear and refuse
//! whatever a real one can, and a test can hold the clock.

mod block_file;
mod clock;
mod disk;
mod encrypted_disk;
mod encrypted_file;
mod encryption_header;
mod file_cipher;
mod instruments;
mod keys;
mod lane;
mod measured_disk;
mod os_disk;
mod page_buffer;
mod parallel;
mod poison;
mod ring;
mod sector_file;
mod worker;

pub use block_file::DirectIo;
pub use clock::{Clock, SystemClock};
pub use disk::{Disk, DiskFile, DiskLock, GIVE_BACK_BYTES, ReadRequest};
pub use encrypted_disk::EncryptedDisk;
pub use encryption_header::{bears_mark_of_encryption, refuse_encrypted};
pub use instruments::{FileKind, FileWork, Instruments, Place, WaitKind, set_instruments, while_waiting};
pub use keys::{KeyFile, KeySource, NoKeys, SecretKey};
pub use lane::{Answer, Lane};
pub use measured_disk::MeasuredDisk;
pub use os_disk::{OsDisk, is_passing_want, open_to_read};
pub use parallel::{for_each_parallel, map_parallel, memory_bytes, parallelism, random_u128};
pub use poison::Poison;
pub use worker::{Rank, StopSignal, Worker, panic_text};
