//! Golden bytes of table definitions, and what damaged ones say.

use super::*;
use crate::foreign_key::{Action, KeyColumn};
use crate::host_record::RecordColumn;
use pbxt_rows::{Column, ColumnKind, HostColumn, HostKind};

fn definition() -> TableDef {
    let column = Column {
        kind: ColumnKind::Fixed(4),
        nullable: false,
    };
    let id = RecordColumn {
        name: "id".into(),
        type_text: "int".into(),
        place: HostColumn {
            offset: 1,
            kind: HostKind::Fixed(4),
            null_offset: 0,
            null_bit: 0,
            stored: true,
        },
        has_default: true,
    };
    TableDef {
        id: TableId::new(3),
        name: "s/c".into(),
        schema: Schema::new(1, vec![column]).expect("one column"),
        indexes: Vec::new(),
        host_image: vec![0xfe],
        host_version: Vec::new(),
        conflict_mode: ConflictMode::Default,
        temporary: false,
        provisional: true,
        host_record: Some(HostRecordDef {
            columns: vec![id],
            defaults: vec![0xff, 7, 0, 0, 0],
        }),
        foreign_keys: vec![ForeignKey {
            name: "fk".into(),
            parent: "s/p".into(),
            columns: vec![KeyColumn {
                child: 0,
                parent: "k".into(),
            }],
            on_delete: Action::SetDefault,
            on_update: Action::Cascade,
        }],
        created: 5,
        compression: Compression::Lz4,
    }
}

/// What formats 2 and 3 begin with: format, id, time, mode, flags, name, version, image, schema, no indexes, LZ4.
fn head(format: u8, flags: u8) -> Vec<u8> {
    let def = definition();
    let mut bytes = vec![format, 3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, flags];
    bytes.extend_from_slice(b"\x03s/c\0\x01\xfe");
    let mut schema = Vec::new();
    def.schema.encode(&mut schema);
    push_bytes(&mut bytes, &schema);
    bytes.extend_from_slice(&[0, 0, 2]);
    bytes
}

fn golden() -> Vec<u8> {
    let mut bytes = head(3, 2);
    bytes.extend_from_slice(&[5, 0, 0, 0]);
    bytes.extend_from_slice(b"\x02id\x03int");
    bytes.extend_from_slice(&[0, 4, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
    bytes.extend_from_slice(&[0xff, 7, 0, 0, 0]);
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(b"\x02fk\x03s/p\x04\x01\x01\0\0\x01k");
    bytes
}

#[test]
fn a_definition_with_record_and_foreign_key_has_these_bytes() {
    let mut bytes = Vec::new();
    definition().encode(&mut bytes);
    assert_eq!(bytes, golden());
    assert_eq!(TableDef::decode(&bytes).expect("decodes"), definition());
}

#[test]
fn a_definition_of_format_2_has_no_foreign_keys() {
    let expected = TableDef {
        provisional: false,
        host_record: None,
        foreign_keys: Vec::new(),
        ..definition()
    };
    assert_eq!(TableDef::decode(&head(2, 0)).expect("decodes"), expected);
}

#[test]
fn every_cut_and_every_wrong_code_is_told() {
    let bytes = golden();
    for len in 0..bytes.len() {
        assert!(TableDef::decode(&bytes[..len]).is_err(), "cut at {len}");
    }
    let mut action = bytes.clone();
    let place = bytes.len() - 7;
    assert_eq!(action[place], Action::SetDefault.code());
    action[place] = 5;
    let told = TableDef::decode(&action).expect_err("no such action").to_string();
    assert!(told.contains("an action of a foreign key"), "{told}");
    let newer = head(4, 0);
    let told = TableDef::decode(&newer).expect_err("newer format").to_string();
    assert!(told.contains("use a newer PBXT"), "{told}");
}
