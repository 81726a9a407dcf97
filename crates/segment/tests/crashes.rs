//! Power cuts at every operation of a small life of segments and values; and proof that a missing sync is noticed.

mod common;

use common::{begin, first_lsn, open, write_sealed};
use pbxt_base::{Lsn, Result, SegmentId};
use pbxt_segment::{BlobRef, BlobStore, SegmentClass, StartState};
use pbxt_testkit::{Fault, SimDisk, Sweep};
use std::sync::Arc;

/// What the work was told had happened.
#[derive(Debug, Default)]
struct Acknowledged {
    created: bool,
    sealed: Vec<u32>,
    /// Last piece written to segment 3 and synced.
    synced_body: bool,
    values: Vec<(BlobRef, Vec<u8>)>,
    dropped: bool,
    closed: bool,
}

fn value(number: u8) -> Vec<u8> {
    vec![number; 3000 + 40 * usize::from(number)]
}

fn live(disk: &SimDisk, done: &mut Acknowledged) -> Result<()> {
    let store = Arc::new(open(disk)?);
    done.created = true;
    write_sealed(&store, 1)?;
    done.sealed.push(1);
    let blobs = BlobStore::open(Arc::clone(&store))?;
    let mut pending = Vec::new();
    for number in 1..=30 {
        pending.push((blobs.append(&value(number))?, value(number)));
        if number % 10 == 0 {
            blobs.sync()?;
            done.values.append(&mut pending);
        }
    }
    write_sealed(&store, 2)?;
    done.sealed.push(2);
    store.drop_segment(SegmentClass::Hot, SegmentId::new(1))?;
    done.dropped = true;
    let file = begin(&store, 3)?;
    file.write_at(&[3; 2000], 4096)?;
    file.sync_data()?;
    done.synced_body = true;
    store.note_closed(Lsn::new(first_lsn(3).raw() + 6096))?;
    done.closed = true;
    Ok(())
}

fn work(disk: &SimDisk) -> Acknowledged {
    let mut done = Acknowledged::default();
    // The error is the power cut; what counts is what was acknowledged before.
    drop(live(disk, &mut done));
    done
}

/// What is wrong with a crash image, if anything.
fn complaint(image: &SimDisk, done: &Acknowledged) -> Option<String> {
    let store = match open(image) {
        Ok(store) => Arc::new(store),
        Err(error) => return Some(format!("it does not open: {error}")),
    };
    if done.closed && !matches!(store.start_state(), StartState::Clean(_)) {
        return Some("an orderly close is forgotten".into());
    }
    if done.created && store.incarnation() < 2 {
        return Some("the opening before is forgotten".into());
    }
    for id in done.sealed.iter().copied().filter(|id| *id != 1 || !done.dropped) {
        let segment = SegmentId::new(id);
        let is_known = store.sealed(SegmentClass::Hot, segment).is_some();
        let was_dropped = id == 1 && done.sealed.len() == 2 && !is_known;
        if !was_dropped && (!is_known || store.verify_sealed(SegmentClass::Hot, segment).is_err()) {
            return Some(format!("sealed segment {id} is not as it was"));
        }
    }
    if done.synced_body && !segment_3_is_whole(image) {
        return Some("synced bytes of segment 3 are gone".into());
    }
    let blobs = match BlobStore::open(Arc::clone(&store)) {
        Ok(blobs) => blobs,
        Err(error) => return Some(format!("values do not open: {error}")),
    };
    let mut out = Vec::new();
    for (place, expected) in &done.values {
        if blobs.read(place, &mut out).is_err() || out != *expected {
            return Some(format!("the durable value at {:?} is gone", place.addr));
        }
    }
    goes_on(image, &store, &blobs)
        .err()
        .map(|error| format!("it does not go on: {error}"))
}

fn segment_3_is_whole(image: &SimDisk) -> bool {
    let content = image.content("hot-00000003.seg").unwrap_or_default();
    content.get(..8) == Some(b"PBXTSEG1") && content.get(4096..6096) == Some(&[3; 2000])
}

/// A database after a crash takes new segments and values. The disk refuses a second write to any byte (P1).
fn goes_on(image: &SimDisk, store: &pbxt_segment::SegmentStore, blobs: &BlobStore) -> Result<()> {
    let next = store.list(SegmentClass::Hot)?.last().map_or(1, |id| id.raw() + 1);
    write_sealed(store, next)?;
    let place = blobs.append(&value(99))?;
    blobs.sync()?;
    store.verify_sealed(SegmentClass::Hot, SegmentId::new(next))?;
    let mut out = Vec::new();
    blobs.read(&place, &mut out)?;
    assert_eq!(out, value(99));
    assert!(!image.is_off());
    Ok(())
}

#[test]
fn no_power_cut_loses_what_was_acknowledged() {
    let images = Sweep { seeds: 12, step: 1 }.run(work, |image, done, case| {
        if let Some(complaint) = complaint(image, done) {
            panic!(
                "{case}: {complaint}; acknowledged: {:?} {}",
                done.sealed,
                done.values.len()
            );
        }
    });
    assert!(images > 600, "{images}");
}

#[test]
fn a_killed_process_loses_nothing_it_wrote() {
    let disk = SimDisk::new();
    let done = work(&disk);
    assert!(done.closed);
    assert_eq!(complaint(&disk.kill(), &done), None);
}

#[test]
fn each_forgotten_sync_would_be_noticed() {
    let prefixes = ["hot-", "blob-", "pbxt.manifest"].map(|prefix| Fault::SkipSync {
        prefix: prefix.into(),
    });
    for fault in prefixes.into_iter().chain([Fault::SkipDirectorySync]) {
        let complaints = std::cell::Cell::new(0);
        let plant = |disk: &SimDisk| disk.plant(fault.clone());
        Sweep { seeds: 6, step: 3 }.run_prepared(plant, work, |image, done, _| {
            complaints.set(complaints.get() + u32::from(complaint(image, done).is_some()));
        });
        assert!(complaints.get() > 0, "{fault:?}");
    }
}
