//! Full and failing disks: what is refused, what still works, what is there afterwards.

use pbxt_sim::crash::{failing_disk, full_disk};
use pbxt_testkit::Fault;

#[test]
fn a_full_disk_refuses_rows_and_nothing_else() {
    let mut refused = 0;
    for life in 0..40 {
        for budget in [0, 1 << 10, 20 << 10, 40 << 10, 70 << 10, 130 << 10, 300 << 10] {
            refused += full_disk(life, budget)
                .unwrap_or_else(|difference| panic!("life {life}, {budget} bytes free: {difference}"));
        }
    }
    assert!(refused > 500, "the disk was full for {refused} operations only");
}

#[test]
fn a_failed_write_or_sync_is_said_and_loses_nothing_acknowledged() {
    let mut met = 0;
    for life in 0..10 {
        for nth in [1, 2, 3, 5, 8, 13, 21, 34] {
            for prefix in ["hot-", "blob-", "pbxt.manifest"].map(String::from) {
                let faults = [
                    Fault::FailWrite {
                        prefix: prefix.clone(),
                        nth,
                    },
                    Fault::FailSync { prefix, nth },
                ];
                for fault in faults {
                    for power_fails_too in [false, true] {
                        let broken = failing_disk(life, fault.clone(), power_fails_too);
                        let broken = broken.unwrap_or_else(|difference| {
                            panic!("life {life}, {fault:?}, power cut {power_fails_too}: {difference}")
                        });
                        met += u32::from(broken);
                    }
                }
            }
        }
    }
    assert!(met > 100, "only {met} lives met their fault");
}
