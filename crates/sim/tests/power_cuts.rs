//! Power cuts at every operation of the disk, and the proof that a forgotten sync would be noticed.

use pbxt_sim::crash::power_cuts;
use pbxt_testkit::Fault;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_else_appears() {
    let looked = power_cuts(1, 500, &[]).unwrap_or_else(|difference| panic!("{difference}"));
    assert!(looked.lives >= 4 && looked.cut_again > 20, "{looked:?}");
}

#[test]
fn a_forgotten_sync_of_any_kind_is_caught() {
    let forgotten = [
        Fault::SkipSync {
            prefix: "hot-".into(),
        },
        Fault::SkipSync {
            prefix: "blob-".into(),
        },
        Fault::SkipSync {
            prefix: "pbxt.manifest".into(),
        },
        Fault::SkipDirectorySync,
    ];
    for fault in forgotten {
        let caught = power_cuts(1, 3000, std::slice::from_ref(&fault));
        assert!(caught.is_err(), "{fault:?} was not noticed in 3000 states");
    }
}
