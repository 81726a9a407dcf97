//! Power cuts at every operation of a life of piece files and checkpoints; and proof that a missing sync is noticed.

mod common;

use common::{first_lsn, open, write_sealed};
use pbxt_base::{Lsn, Result, SegmentId};
use pbxt_segment::{Checkpoint, Codec, PieceFile, PieceWriter, SegmentClass, SegmentStore};
use pbxt_testkit::{Fault, SimDisk, Sweep};
use std::cell::Cell;
use std::sync::Arc;

const ROUNDS: u32 = 4;

/// Writes a row piece and an image that names it.
fn pieces(store: &Arc<SegmentStore>, round: u32) -> Result<SegmentId> {
    let mut rows = PieceWriter::create(store, SegmentClass::Cold)?;
    rows.begin_section(7, 1);
    for block in 0..3_u32 {
        let raw = vec![(round + block) as u8; 150_000];
        rows.push_block(&block.to_le_bytes(), 10, &raw, Codec::Plain)?;
    }
    rows.end_section(b"z", b"");
    let rows = rows.finish()?;
    let mut image = PieceWriter::create(store, SegmentClass::Meta)?;
    image.begin_section(u64::from(rows.raw()), 2);
    image.push_block(b"", 1, &round.to_le_bytes(), Codec::Zstd(3))?;
    image.end_section(b"", b"");
    image.finish()
}

/// One checkpoint a round; the number of the last one that was acknowledged.
fn live(disk: &SimDisk, done: &mut u32) -> Result<()> {
    let store = Arc::new(open(disk)?);
    let mut old: Option<(SegmentId, SegmentId)> = None;
    for round in 1..=ROUNDS {
        write_sealed(&store, round)?;
        let image = pieces(&store, round)?;
        let start = first_lsn(round + 1);
        store.note_checkpoint(Checkpoint {
            image,
            start,
            log_start: Lsn::new(start.raw() - 1024),
        })?;
        *done = round;
        store.drop_below_log()?;
        if let Some((rows, image)) = old {
            store.remove_piece(SegmentClass::Cold, rows)?;
            store.remove_piece(SegmentClass::Meta, image)?;
            store.sync_dir()?;
        }
        let newest = store
            .list(SegmentClass::Cold)?
            .last()
            .copied()
            .unwrap_or_default();
        old = Some((newest, image));
    }
    Ok(())
}

fn work(disk: &SimDisk) -> u32 {
    let mut done = 0;
    // The error is the power cut; what counts is what was acknowledged before.
    drop(live(disk, &mut done));
    done
}

/// What is wrong with a crash image, if anything.
fn complaint(disk: &SimDisk, done: u32) -> Option<String> {
    look(disk, done).unwrap_or_else(|error| Some(error.to_string()))
}

fn look(disk: &SimDisk, done: u32) -> Result<Option<String>> {
    let store = Arc::new(open(disk)?);
    let (mut keep, mut image) = (None, None);
    let mut first_hot = 1;
    if let Some(checkpoint) = store.checkpoint() {
        let piece = PieceFile::open(&store, SegmentClass::Meta, checkpoint.image)?;
        piece.verify()?;
        let mut round = Vec::new();
        piece.read_block(0, 0, &mut round)?;
        if u32::from(round[0]) < done {
            return Ok(Some(format!("checkpoint {done} is forgotten for {round:?}")));
        }
        let rows = SegmentId::new(piece.section(0)?.owner as u32);
        PieceFile::open(&store, SegmentClass::Cold, rows)?.verify()?;
        (keep, image) = (Some(rows), Some(checkpoint.image));
        first_hot = u32::from(round[0]);
        store.verify_sealed(SegmentClass::Hot, SegmentId::new(first_hot))?;
    } else if done > 0 {
        return Ok(Some("the checkpoint is forgotten".into()));
    }
    store.remove_orphans(SegmentClass::Cold, &|id| Some(id) == keep)?;
    store.remove_orphans(SegmentClass::Meta, &|id| Some(id) == image)?;
    let files = disk.content("pbxt.manifest.a").is_ok() as usize + 1 + keep.map_or(0, |_| 2);
    let hot = store.list(SegmentClass::Hot)?;
    if hot.first().is_some_and(|id| id.raw() < first_hot) || common::names(disk).len() != files + hot.len() {
        return Ok(Some(format!("left over: {:?}", common::names(disk))));
    }
    // It goes on; the disk refuses a second write to any byte (P1).
    let image = pieces(&store, 90)?;
    PieceFile::open(&store, SegmentClass::Meta, image)?.verify()?;
    Ok(None)
}

#[test]
fn no_power_cut_loses_a_checkpoint_or_a_file_it_names() {
    let images = Sweep { seeds: 8, step: 1 }.run(work, |disk, done, case| {
        if let Some(complaint) = complaint(disk, *done) {
            panic!("{case}: {complaint}; acknowledged: {done}");
        }
    });
    assert!(images > 500, "{images}");
}

#[test]
fn each_forgotten_sync_of_pieces_and_checkpoints_would_be_noticed() {
    let prefixes = ["cold-", "meta-", "pbxt.manifest"].map(|prefix| Fault::SkipSync {
        prefix: prefix.into(),
    });
    for fault in prefixes.into_iter().chain([Fault::SkipDirectorySync]) {
        let complaints = Cell::new(0);
        let plant = |disk: &SimDisk| disk.plant(fault.clone());
        Sweep { seeds: 4, step: 2 }.run_prepared(plant, work, |disk, done, _| {
            complaints.set(complaints.get() + u32::from(complaint(disk, *done).is_some()));
        });
        assert!(complaints.get() > 0, "{fault:?}");
    }
}
