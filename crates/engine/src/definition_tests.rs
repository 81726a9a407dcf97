//! Golden bytes of table definitions, and what damaged ones say.

use super::*;
use crate::foreign_key::{Action, KeyColumn};
use crate::host_record::RecordColumn;
use pbxt_rows::{Column, ColumnKind, HostColumn, HostKind, KeyEncoding, KeyPart, Origin};

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
        older: Vec::new(),
        indexes: Vec::new(),
        host_image: vec![0xfe],
        host_version: Vec::new(),
        conflict_mode: ConflictMode::Default,
        encrypted: false,
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

#[test]
fn a_table_to_be_created_has_its_columns_and_indexes_and_no_option() {
    let part = KeyPart {
        column: 0,
        length: 4,
        prefix: false,
        nullable: false,
        descending: false,
        encoding: KeyEncoding::Uint,
    };
    let spec = KeySpec::new(vec![part], false).expect("one part");
    let schema = definition().schema;
    let def = TableDef::new("s/new", schema.clone(), vec![IndexDef::primary(spec.clone())]);
    let mut bytes = Vec::new();
    def.encode(&mut bytes);
    let back = TableDef::decode(&bytes).expect("K1: an image");
    assert_eq!(back, def);
    assert_eq!((back.name.as_str(), &back.schema), ("s/new", &schema));
    let primary = &back.indexes[0];
    assert!(back.indexes.len() == 1 && primary.primary && primary.unique && primary.spec == spec);
    assert!(!back.temporary && !back.provisional && !back.encrypted && back.host_record.is_none());
    assert!(back.older.is_empty() && back.foreign_keys.is_empty() && back.host_image.is_empty());
    assert_eq!(
        (back.conflict_mode, back.compression),
        (ConflictMode::Default, Compression::Default)
    );
}

/// What formats 2 to 4 begin with: format, id, time, mode, flags, name, version, image, schema, no indexes, LZ4.
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

/// Format 3, and 4 up to the older schemas.
fn without_older(format: u8) -> Vec<u8> {
    let mut bytes = head(format, 2);
    bytes.extend_from_slice(&[5, 0, 0, 0]);
    bytes.extend_from_slice(b"\x02id\x03int");
    bytes.extend_from_slice(&[0, 4, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
    bytes.extend_from_slice(&[0xff, 7, 0, 0, 0]);
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(b"\x02fk\x03s/p\x04\x01\x01\0\0\x01k");
    bytes
}

fn golden() -> Vec<u8> {
    let mut bytes = without_older(4);
    bytes.extend_from_slice(&[2, 0, 0]);
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
fn a_definition_with_older_schemas_has_these_bytes() {
    let column = Column {
        kind: ColumnKind::Var,
        nullable: true,
    };
    let def = TableDef {
        schema: definition().schema.with_version(2),
        older: vec![OlderSchema {
            schema: Schema::new(1, vec![column]).expect("one column"),
            origins: vec![Origin::Constant(Some(vec![1, 2, 3, 4]))],
        }],
        ..definition()
    };
    let mut bytes = Vec::new();
    def.encode(&mut bytes);
    let mut expected = without_older(4);
    // The version in the schema, which begins behind the name, an empty version and an image of one byte.
    assert_eq!(expected[24], 1);
    expected[24] = 2;
    let older = [1, 0, 10, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 2, 4, 1, 2, 3, 4];
    expected.push(older.len() as u8);
    expected.extend_from_slice(&older);
    assert_eq!(bytes, expected);
    assert_eq!(TableDef::decode(&bytes).expect("decodes"), def);
    let place = bytes.len() - 5;
    assert_eq!(bytes[place], 4);
    let mut short = bytes.clone();
    short.remove(place + 1);
    short[place] = 3;
    short[place - 15] -= 1;
    let told = TableDef::decode(&short)
        .expect_err("AL2: too short for its column")
        .to_string();
    assert!(told.contains("fixed length"), "{told}");
}

#[test]
fn an_encrypted_table_has_a_format_of_its_own_and_the_others_do_not() {
    let def = TableDef {
        encrypted: true,
        ..definition()
    };
    let mut bytes = Vec::new();
    def.encode(&mut bytes);
    let mut expected = golden();
    (expected[0], expected[14]) = (5, 4 | 2);
    assert_eq!(bytes, expected);
    assert_eq!(TableDef::decode(&bytes).expect("decodes"), def);
    // Neither without the other (rule K5).
    for (format, flags) in [(5, 2), (4, 4 | 2), (3, 4)] {
        (expected[0], expected[14]) = (format, flags);
        let told = TableDef::decode(&expected).expect_err("K5").to_string();
        assert!(
            told.contains("the flag of encryption in format 5 alone"),
            "{told}"
        );
    }
}

#[test]
fn a_definition_of_format_3_has_no_older_schemas() {
    assert_eq!(
        TableDef::decode(&without_older(3)).expect("decodes"),
        definition()
    );
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
    let place = bytes.len() - 10;
    assert_eq!(action[place], Action::SetDefault.code());
    action[place] = 5;
    let told = TableDef::decode(&action).expect_err("no such action").to_string();
    assert!(told.contains("an action of a foreign key"), "{told}");
    let mut longer = bytes.clone();
    longer.push(0);
    let told = TableDef::decode(&longer)
        .expect_err("a byte too many")
        .to_string();
    assert!(told.contains("the end of the definition"), "{told}");
    let newer = head(6, 0);
    let told = TableDef::decode(&newer).expect_err("newer format").to_string();
    assert!(told.contains("use a newer PBXT"), "{told}");
}
