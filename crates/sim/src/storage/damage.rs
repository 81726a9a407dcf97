//! Damage: what may happen to bytes at rest: a bit flips, a block lands where another one stood, a sector cannot be read.

use crate::storage::life::{Life, Step};
use pbxt::Database;
use pbxt_io::Disk;
use pbxt_testkit::SimDisk;
use std::sync::Arc;

/// Damages of one closed database, each on a copy of its own.
const DAMAGES: u64 = 5;
/// Smallest unit that a medium writes.
const SECTOR: u64 = 512;

impl Life {
    /// Damages copies of the closed database (rule SM8).
    pub(super) fn damage_copies(&mut self) -> Step {
        let sound = self.disk.clone();
        for _ in 0..DAMAGES {
            let copy = sound.kill();
            let Some(what) = self.damage(&copy, &|_| true) else {
                continue;
            };
            let opened = Database::open(Arc::new(copy), &self.options());
            self.examine(opened, &what)?;
        }
        Ok(())
    }

    /// Damages a file of the running engine that is no log and no manifest, and goes on: rows that are read are right, or an error
    /// names a file.
    pub(super) fn live_with_damage(&mut self, steps: u64) -> Step {
        let disk = self.disk.clone();
        let is_piece = |name: &str| {
            ["cold-", "meta-", "blob-"]
                .iter()
                .any(|class| name.starts_with(class))
        };
        let Some(what) = self.damage(&disk, &is_piece) else {
            return Ok(());
        };
        self.note(format!("damage: {what}"));
        self.done.damages += 1;
        self.trouble.damaged = true;
        self.play(steps)?;
        self.look_at_all()
    }

    /// Does something to a file; says what, if there was anything to be done.
    fn damage(&mut self, disk: &SimDisk, may_be: &dyn Fn(&str) -> bool) -> Option<String> {
        let mut names = disk.list().ok()?;
        names.retain(|name| name != "pbxt.lock");
        let targets: Vec<&String> = names.iter().filter(|name| may_be(name)).collect();
        if targets.is_empty() {
            return None;
        }
        let name = targets[self.rng.below(targets.len() as u64) as usize].clone();
        let content = disk.content(&name).ok()?;
        // Behind the last byte that is not zero there is mostly nothing.
        let written = content.iter().rposition(|byte| *byte != 0)? as u64 + 1;
        let offset = self.rng.below(written);
        match self.rng.below(4) {
            0 | 1 => {
                let bit = self.rng.below(8) as u32;
                disk.flip_bit(&name, offset, bit).ok()?;
                Some(format!("bit {bit} of byte {offset} of {name} flips"))
            }
            2 => {
                disk.make_unreadable(&name, offset).ok()?;
                Some(format!("the sector at {offset} of {name} cannot be read"))
            }
            _ => self.misdirect(disk, &names, &name, offset),
        }
    }

    /// A block of some file lands in this one.
    fn misdirect(&mut self, disk: &SimDisk, names: &[String], name: &str, offset: u64) -> Option<String> {
        let from = &names[self.rng.below(names.len() as u64) as usize];
        let source = disk.content(from).ok()?;
        let length = SECTOR << self.rng.below(4);
        let blocks = (source.len() as u64).checked_sub(length)? / SECTOR;
        let at = self.rng.below(blocks + 1) * SECTOR;
        let bytes = &source[at as usize..(at + length) as usize];
        let to = offset / SECTOR * SECTOR;
        let has_changed = disk.overwrite(name, to, bytes).ok()?;
        has_changed.then(|| format!("{length} bytes at {at} of {from} land at {to} of {name}"))
    }
}
