//! T30: what was noted is found, nothing of it is found after `remove`, and it has a bound.

use super::*;

const READER: SerialId = SerialId(5);
const TABLE: TableId = TableId::new(1);
const INDEX: IndexId = IndexId::new(9);

fn readers(footprints: &Footprints, row: u64, change: RowChange) -> usize {
    let mut found = Vec::new();
    footprints.readers_of_row(TABLE, RowId::new(row), change, &mut found);
    found.len()
}

fn has_key(footprints: &Footprints, key: &[u8]) -> bool {
    let mut found = Vec::new();
    footprints.readers_of_key(INDEX, key, &mut found);
    !found.is_empty()
}

#[test]
fn a_row_that_was_read_is_found_and_its_neighbours_are_not() {
    let (footprints, mut own) = (Footprints::new(), OwnFootprint::default());
    footprints.note_row(READER, &mut own, TABLE, RowId::new(70));
    let found = |row, change| readers(&footprints, row, change);
    assert_eq!(found(70, RowChange::Update), 1);
    assert_eq!(found(70, RowChange::Delete), 1);
    assert_eq!([69, 71, 6, 134].map(|row| found(row, RowChange::Update)), [0; 4]);
    footprints.remove(READER, &own);
    assert_eq!((found(70, RowChange::Update), footprints.len()), (0, 0));
}

#[test]
fn many_rows_are_kept_by_64_and_very_many_as_the_table() {
    let (footprints, mut own) = (Footprints::new(), OwnFootprint::default());
    let mut note = |rows: u64, step: u64| {
        (0..=rows).for_each(|n| footprints.note_row(READER, &mut own, TABLE, RowId::new(n * step)));
        footprints.len()
    };
    let groups = GROUPS_MAX as u64;
    assert_eq!(note(groups - 1, 64), GROUPS_MAX);
    assert!(note(groups, 64) <= GROUPS_MAX / 64 + 1, "groups of 4096 rows now");
    assert_eq!(
        readers(&footprints, 64 * groups + 1, RowChange::Update),
        1,
        "its 64 rows are one bit"
    );
    assert_eq!(readers(&footprints, 64 * groups + 64, RowChange::Update), 0);
    assert_eq!(note(groups, 4096), 1, "the table now");
    assert_eq!(readers(&footprints, 1 << 40, RowChange::Delete), 1);
    assert_eq!(
        readers(&footprints, 1 << 40, RowChange::Insert),
        0,
        "no row was read that is not there"
    );
    footprints.remove(READER, &own);
    assert_eq!(footprints.len(), 0);
}

#[test]
fn a_whole_table_minds_what_was_asked_of_it() {
    use RowChange::{Delete, Insert, Update};
    for (what, minded) in [
        (WholeTable::ALL, [1, 1, 1]),
        (WholeTable::COUNT, [1, 0, 1]),
        (WholeTable::ROWS, [0, 1, 1]),
    ] {
        let (footprints, mut own) = (Footprints::new(), OwnFootprint::default());
        footprints.note_table(READER, &mut own, TABLE, what);
        assert_eq!(
            [Insert, Update, Delete].map(|change| readers(&footprints, 3, change)),
            minded
        );
    }
}

#[test]
fn a_scan_minds_all_it_may_come_to_until_it_is_closed() {
    let (footprints, mut own) = (Footprints::new(), OwnFootprint::default());
    let from_c = KeyRange::everything().from(b"c");
    let scan = footprints.open_scan(READER, &mut own, INDEX, from_c.clone());
    assert!(has_key(&footprints, b"z") && !has_key(&footprints, b"b"));
    footprints.close_scan(READER, INDEX, scan, from_c.clone().up_to(b"e"));
    assert!(has_key(&footprints, b"e") && !has_key(&footprints, b"z"));
    footprints.close_scan(READER, INDEX, scan, from_c);
    assert!(!has_key(&footprints, b"z"), "it is closed already");
    footprints.remove(READER, &own);
    footprints.close_scan(READER, INDEX, scan, KeyRange::everything());
    assert_eq!(footprints.len(), 0, "its transaction is over");
}

#[test]
fn an_heir_has_read_all_of_it() {
    // T31: rows one by one, by 64, tables, ranges and open scans.
    let footprints = Footprints::new();
    let (mut own, mut heirs) = (OwnFootprint::default(), OwnFootprint::default());
    let heir = SerialId::SUMMARY;
    let other = TableId::new(2);
    footprints.note_row(heir, &mut heirs, TABLE, RowId::new(9));
    (0..=GROUPS_MAX as u64).for_each(|n| footprints.note_row(READER, &mut own, TABLE, RowId::new(n * 64)));
    footprints.note_row(READER, &mut own, other, RowId::new(4));
    footprints.note_range(READER, &mut own, INDEX, KeyRange::of_prefix(b"a"));
    footprints.open_scan(READER, &mut own, INDEX, KeyRange::of_prefix(b"c"));
    footprints.inherit(READER, &own, heir, &mut heirs);
    footprints.remove(READER, &own);
    for row in [9, 64 * GROUPS_MAX as u64, 1] {
        assert_eq!(readers(&footprints, row, RowChange::Update), 1, "row {row}");
    }
    let mut found = Vec::new();
    footprints.readers_of_row(other, RowId::new(4), RowChange::Update, &mut found);
    assert_eq!(found, [heir]);
    assert!(has_key(&footprints, b"a1") && has_key(&footprints, b"c1") && !has_key(&footprints, b"b"));
    footprints.remove(heir, &heirs);
    assert_eq!(footprints.len(), 0);
}
