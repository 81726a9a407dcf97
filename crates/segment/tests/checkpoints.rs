//! Checkpoints in the manifest: the newest one counts, its image has to be there, hot segments below it go.

mod common;

use common::{begin, first_lsn, mode, names, open, write_sealed};
use pbxt_base::{Lsn, SegmentId};
use pbxt_io::Disk;
use pbxt_segment::{Checkpoint, Codec, OpenMode, PieceWriter, SegmentClass, SegmentStore};
use pbxt_testkit::SimDisk;
use std::sync::Arc;

fn image(store: &Arc<SegmentStore>) -> SegmentId {
    let mut writer = PieceWriter::create(store, SegmentClass::Meta).expect("created");
    writer.begin_section(0, 1);
    writer
        .push_block(b"", 1, b"an image", Codec::Plain)
        .expect("written");
    writer.end_section(b"", b"");
    writer.finish().expect("finished")
}

fn checkpoint(image: SegmentId, start: Lsn, log_start: Lsn) -> Checkpoint {
    Checkpoint {
        image,
        start,
        log_start,
    }
}

#[test]
fn the_newest_checkpoint_counts_after_every_reopening_and_switch() {
    let disk = SimDisk::new();
    let store = Arc::new(open(&disk).expect("created"));
    assert_eq!(store.checkpoint(), None);
    let mut last = None;
    for number in 0..6000_u64 {
        let image = if number == 0 || number == 5999 {
            image(&store)
        } else {
            SegmentId::new(1)
        };
        let note = checkpoint(image, Lsn::new(number * 16), Lsn::new(number * 8));
        store.note_checkpoint(note).expect("noted");
        last = Some(note);
    }
    // Enough other facts for two more switches: the checkpoint is then told by the new generation's image alone.
    for end in 0..6000 {
        store.note_closed(Lsn::new(end)).expect("noted");
    }
    assert_eq!(store.checkpoint(), last);
    drop(store);
    for disk in [disk.kill(), disk.crash(3)] {
        let store = open(&disk).expect("opened");
        assert_eq!(store.checkpoint(), last);
        assert!(
            names(&disk).contains(&"pbxt.manifest.a".to_owned()),
            "generations have changed"
        );
    }
}

#[test]
fn a_missing_image_is_refused_by_name() {
    let disk = SimDisk::new();
    let store = Arc::new(open(&disk).expect("created"));
    let (old, new) = (image(&store), image(&store));
    store
        .note_checkpoint(checkpoint(old, Lsn::new(8), Lsn::new(0)))
        .expect("noted");
    store
        .note_checkpoint(checkpoint(new, Lsn::new(16), Lsn::new(0)))
        .expect("noted");
    store.remove_piece(SegmentClass::Meta, old).expect("removed");
    drop(store);
    let store = Arc::new(open(&disk).expect("an old image may be missing"));
    store.remove_piece(SegmentClass::Meta, new).expect("removed");
    drop(store);
    let refused = open(&disk).expect_err("refused").to_string();
    assert!(
        refused.contains(
            "meta-00000002.seg' is damaged at offset 0: expected the image of the newest checkpoint"
        ),
        "{refused}"
    );
}

#[test]
fn hot_segments_below_the_start_of_the_log_go_and_nobody_misses_them() {
    let disk = SimDisk::new();
    let store = Arc::new(open(&disk).expect("created"));
    for id in 1..=4 {
        write_sealed(&store, id).expect("sealed");
    }
    begin(&store, 5).expect("begun");
    let ids = |store: &SegmentStore| -> Vec<u32> {
        let ids = store.list(SegmentClass::Hot).expect("a listing");
        ids.into_iter().map(SegmentId::raw).collect()
    };
    let log_start = Lsn::new(first_lsn(3).raw() + 5000);
    store
        .note_checkpoint(checkpoint(image(&store), Lsn::new(first_lsn(4).raw()), log_start))
        .expect("noted");
    assert_eq!(ids(&store), [3, 4, 5], "what holds the log's start stays");
    assert!(
        disk.exists("hot-00000001.seg").expect("an answer"),
        "only the record was written"
    );
    assert_eq!(store.sealed(SegmentClass::Hot, SegmentId::new(2)), None);
    let reader = OpenMode {
        read_only: true,
        ..mode()
    };
    let killed = disk.kill();
    let found = SegmentStore::open(Arc::new(killed.clone()), reader).expect("opened");
    assert_eq!(ids(&found), [3, 4, 5]);
    assert!(killed.exists("hot-00000001.seg").expect("an answer"), "read-only");
    drop(found);
    // A life that ended before it removed them, with some of the removals made.
    killed.remove("hot-00000001.seg").expect("removed");
    let found = open(&killed).expect("opened");
    assert_eq!(ids(&found), [3, 4, 5]);
    assert!(
        !killed.exists("hot-00000002.seg").expect("an answer"),
        "the opening removed it"
    );
    assert_eq!(found.incarnation(), 2);
    assert_eq!(
        store.drop_below_log().expect("dropped"),
        [1, 2].map(SegmentId::new)
    );
    assert_eq!(store.drop_below_log().expect("nothing to do"), []);
    drop(store);
    let store = open(&disk).expect("opened without the first segments");
    assert_eq!((ids(&store), store.incarnation()), (vec![3, 4, 5], 2));
    store
        .verify_sealed(SegmentClass::Hot, SegmentId::new(3))
        .expect("intact");
    drop(store);
    disk.remove("hot-00000003.seg").expect("removed");
    let refused = open(&disk).expect_err("a segment the log needs").to_string();
    assert!(refused.contains("hot-00000003.seg"), "{refused}");
}

#[test]
fn a_segment_is_no_longer_listed_when_it_is_sealed_after_the_checkpoint() {
    let disk = SimDisk::new();
    let store = Arc::new(open(&disk).expect("created"));
    let file = begin(&store, 1).expect("begun");
    begin(&store, 2).expect("begun");
    let start = first_lsn(2);
    store
        .note_checkpoint(checkpoint(image(&store), start, start))
        .expect("noted");
    file.sync_data().expect("synced");
    store.seal(SegmentId::new(1), start).expect("sealed");
    assert_eq!(store.drop_below_log().expect("dropped"), [SegmentId::new(1)]);
    drop(store);
    open(&disk).expect("F15: nothing vouches for a segment below the log's start");
}

#[test]
#[should_panic(expected = "F15: the log's start only grows")]
fn the_start_of_the_log_never_goes_back() {
    let disk = SimDisk::new();
    let store = Arc::new(open(&disk).expect("created"));
    let image = image(&store);
    for log_start in [100, 99] {
        let _ = store.note_checkpoint(checkpoint(image, Lsn::new(200), Lsn::new(log_start)));
    }
}
