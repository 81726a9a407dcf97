//! What encryption costs: a file written in pieces and read back, plain and encrypted, in memory or where one says.
//!
//! `cargo run --release -p pbxt-io --example encryption_speed -- /dev/shm`

use pbxt_base::Result;
use pbxt_io::{Clock, Disk, EncryptedDisk, KeySource, OsDisk, SecretKey, SystemClock};
use std::path::Path;
use std::sync::Arc;

const BYTES: u64 = 512 << 20;

#[derive(Debug)]
struct OneKey;

impl KeySource for OneKey {
    fn latest_version(&self, _: u32) -> Option<u32> {
        Some(1)
    }

    fn key(&self, _: u32, _: u32) -> Option<SecretKey> {
        Some(SecretKey::new(vec![7; 32]))
    }

    fn remedy(&self) -> String {
        String::new()
    }
}

/// Writes and reads a file in pieces of this size; prints how fast.
fn measure(disk: &dyn Disk, way: &str, piece: u64) -> Result<()> {
    let (name, clock) = ("pbxt-encryption-speed", SystemClock::new());
    let file = disk.create(name, 0)?;
    let mut bytes = vec![0x5a; piece as usize];
    let mut seconds = [0.0; 2];
    for (pass, seconds) in seconds.iter_mut().enumerate() {
        let begin = clock.now_millis();
        for at in (0..BYTES / piece).map(|number| number * piece) {
            if pass == 0 {
                file.write_at(&bytes, at)?;
            } else {
                file.read_at(&mut bytes, at)?;
            }
        }
        *seconds = (clock.now_millis() - begin).max(1) as f64 / 1000.0;
    }
    disk.remove(name)?;
    let speed = seconds.map(|seconds| (BYTES >> 20) as f64 / seconds);
    println!(
        "{way:9} pieces of {piece:7}: written {:5.0} MiB/s, read {:5.0} MiB/s",
        speed[0], speed[1]
    );
    Ok(())
}

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".into());
    let plain = Arc::new(OsDisk::open(Path::new(&directory), false)?);
    let inner: Arc<OsDisk> = Arc::clone(&plain);
    let encrypted = EncryptedDisk::new(inner, Arc::new(OneKey), Some(1))?;
    for piece in [512, 4096, 5000, 65_536, 262_152] {
        measure(&*plain, "plain", piece)?;
        measure(&encrypted, "encrypted", piece)?;
    }
    Ok(())
}
