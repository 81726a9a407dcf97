//! A key that has crossed a bridge is the key that the other index makes of the same values.

use super::*;
use crate::key_spec::{KeyEncoding, KeyPart, WeightScheme};
use crate::weights::Weigher;

/// The bytes of a string are its weights.
struct Bytes;

impl Weigher for Bytes {
    fn weights(&self, _part_ctx: usize, src: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(src);
    }
}

fn host(scheme: WeightScheme) -> KeyEncoding {
    KeyEncoding::Host {
        collation: 33,
        scheme,
    }
}

/// An encoding, the columns of both sides, and values that both can have.
type Family = (KeyEncoding, [HostKind; 2], Vec<&'static [u8]>);

fn families() -> Vec<Family> {
    let space = WeightScheme::PadSpace {
        weight: [b' ', 0, 0, 0, 0, 0, 0, 0],
        len: 1,
    };
    let padded = |len| HostKind::Padded { len, pad: b' ' };
    let words: Vec<&[u8]> = vec![b"", b"a", b"a\0b", b"\0", b"a long word of many"];
    vec![
        (
            KeyEncoding::Uint,
            [HostKind::Fixed(4); 2],
            vec![&[1, 0, 0, 0], &[0; 4], &[0xFF; 4]],
        ),
        (
            KeyEncoding::Int,
            [HostKind::Fixed(2); 2],
            vec![&[1, 0], &[0xFF, 0xFF]],
        ),
        (
            KeyEncoding::F64,
            [HostKind::Fixed(8); 2],
            vec![&[0; 8], &[0, 0, 0, 0, 0, 0, 0, 0x80], &[1; 8], &[0x91; 8]],
        ),
        (
            KeyEncoding::Raw,
            [padded(20), padded(30)],
            vec![b"", b"ab", b"a b"],
        ),
        (
            KeyEncoding::VarBinary,
            [HostKind::Var1(40), HostKind::Var2(400)],
            words.clone(),
        ),
        (
            host(WeightScheme::NoPad),
            [HostKind::Var1(40), HostKind::Var2(400)],
            words.clone(),
        ),
        (host(space), [HostKind::Var1(40), HostKind::Var2(400)], words),
        (
            host(WeightScheme::FixedLen(3)),
            [HostKind::Fixed(3); 2],
            vec![b"abc", b"\0\0\0"],
        ),
    ]
}

fn length_of(kind: HostKind) -> u32 {
    match kind {
        HostKind::Fixed(len) | HostKind::Padded { len, .. } | HostKind::Var1(len) | HostKind::Var2(len) => {
            len.into()
        }
        HostKind::Blob(_) => 0,
    }
}

fn spec(encoding: KeyEncoding, kind: HostKind, nullable: bool, descending: bool) -> KeySpec {
    let part = |column| KeyPart {
        column,
        length: length_of(kind),
        prefix: false,
        nullable,
        descending,
        encoding,
    };
    // The last part is none of the constraint's.
    KeySpec::new(vec![part(0), part(1), part(2)], false).expect("parts")
}

/// The image of `values` in an index.
fn image(spec: &KeySpec, kind: HostKind, values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, (part, value)) in spec.parts().iter().zip(values).enumerate() {
        let code = PartCode::new(number, part, kind.column_kind(), 0);
        code.put(*value, &Bytes, &mut out).expect("a fitting value");
    }
    out
}

#[test]
fn a_key_becomes_what_the_other_index_makes_of_its_values() {
    let shapes = [(false, false), (false, true), (true, false), (true, true)];
    for (encoding, kinds, values) in families() {
        for (from_shape, to_shape) in shapes.iter().flat_map(|a| shapes.iter().map(move |b| (*a, *b))) {
            let from = spec(encoding, kinds[0], from_shape.0, from_shape.1);
            let to = spec(encoding, kinds[1], to_shape.0, to_shape.1);
            let bridge = KeyBridge::new(
                BridgeEnd {
                    spec: &from,
                    kinds: &[kinds[0]; 2],
                },
                BridgeEnd {
                    spec: &to,
                    kinds: &[kinds[1]; 2],
                },
            )
            .expect("a bridge");
            let (mut crossed, mut scratch) = (Vec::new(), Vec::new());
            for (first, second) in values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b))) {
                let key = image(&from, kinds[0], &[Some(first), Some(second), Some(first)]);
                crossed.clear();
                let done = bridge.cross(&key, &mut crossed, &mut scratch);
                assert_eq!(done.expect("a key"), Bridged::Prefix);
                assert_eq!(
                    crossed,
                    image(&to, kinds[1], &[Some(first), Some(second)]),
                    "{encoding:?}"
                );
                let prefix = image(&from, kinds[0], &[Some(first), Some(second)]);
                let length = bridge.prefix_length(&key, &mut scratch);
                assert_eq!(length.expect("a key"), prefix.len());
            }
        }
    }
}

#[test]
fn null_and_values_too_long_for_the_other_column_stand_for_nothing() {
    let kinds = [30, 4].map(|len| HostKind::Padded { len, pad: b' ' });
    let [from, to] = kinds.map(|kind| spec(KeyEncoding::Raw, kind, true, false));
    let ends = [(&from, kinds[0]), (&to, kinds[1])];
    let [from_kinds, to_kinds] = ends.map(|(_, kind)| [kind; 2]);
    let bridge = KeyBridge::new(
        BridgeEnd {
            spec: &from,
            kinds: &from_kinds,
        },
        BridgeEnd {
            spec: &to,
            kinds: &to_kinds,
        },
    )
    .expect("a bridge");
    let (mut out, mut scratch) = (Vec::new(), Vec::new());
    let mut cross = |values: [Option<&[u8]>; 3]| {
        bridge
            .cross(&image(&from, kinds[0], &values), &mut out, &mut scratch)
            .expect("a key")
    };
    assert_eq!(cross([Some(b"a"), None, None]), Bridged::Null);
    assert_eq!(cross([Some(b"abcde"), Some(b"b"), None]), Bridged::TooLong);
    assert_eq!(cross([Some(b"abcd"), Some(b"b"), None]), Bridged::Prefix);
}

#[test]
fn bytes_that_are_no_key_are_corrupt() {
    let kind = HostKind::Fixed(4);
    let spec = spec(KeyEncoding::Uint, kind, true, false);
    let kinds = [kind; 2];
    let end = BridgeEnd {
        spec: &spec,
        kinds: &kinds,
    };
    let bridge = KeyBridge::new(end, end).expect("a bridge");
    let (mut out, mut scratch) = (Vec::new(), Vec::new());
    for key in [&[][..], &[7], &[1, 2, 3]] {
        let crossed = bridge.cross(key, &mut out, &mut scratch);
        assert!(matches!(crossed, Err(Error::Corrupt { .. })), "{crossed:?}");
    }
    let too_many = BridgeEnd {
        spec: &spec,
        kinds: &[kind; 4],
    };
    assert!(matches!(
        KeyBridge::new(too_many, too_many),
        Err(Error::BadKey { part: 3, .. })
    ));
}
