//! Names: which file holds which segment.
//!
//! Format: docs/format.md#files. `hot-0000000a.seg`, `blob-00000001.seg`; later `cold-`, `meta-`.

use crate::manifest::NAMES as MANIFEST_NAMES;
use pbxt_base::SegmentId;
use pbxt_io::FileKind;

/// What a segment holds; one lifetime per class. The numbers are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SegmentClass {
    /// Log records.
    Hot = 0,
    /// Compressed row blocks.
    Cold = 1,
    /// Index and map runs.
    Meta = 2,
    /// Large values.
    Blob = 3,
}

impl SegmentClass {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Hot, "hot"),
        (Self::Cold, "cold"),
        (Self::Meta, "meta"),
        (Self::Blob, "blob"),
    ];

    /// The class with this number on disk.
    pub fn from_disk(byte: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .map(|(class, _)| class)
            .find(|class| *class as u8 == byte)
    }

    fn prefix(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(class, _)| *class == self)
            .map_or("", |(_, prefix)| prefix)
    }
}

/// File name of a segment.
pub fn segment_name(class: SegmentClass, id: SegmentId) -> String {
    format!("{}-{:08x}.seg", class.prefix(), id.raw())
}

/// Class and id of a segment file's name.
pub(crate) fn parse_segment_name(name: &str) -> Option<(SegmentClass, SegmentId)> {
    let (prefix, number) = name.strip_suffix(".seg")?.split_once('-')?;
    let class = SegmentClass::ALL
        .into_iter()
        .find(|(_, known)| *known == prefix)?
        .0;
    let id = u32::from_str_radix(number, 16)
        .ok()
        .filter(|_| number.len() == 8)?;
    Some((class, SegmentId::new(id)))
}

/// What the file of this name is for, for whoever keeps accounts of files.
pub fn file_kind(name: &str) -> FileKind {
    if MANIFEST_NAMES.contains(&name) {
        return FileKind::Manifest;
    }
    match parse_segment_name(name) {
        Some((SegmentClass::Hot, _)) => FileKind::Log,
        Some((SegmentClass::Cold, _)) => FileKind::Rows,
        Some((SegmentClass::Meta, _)) => FileKind::Indexes,
        Some((SegmentClass::Blob, _)) => FileKind::Blobs,
        None => FileKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_its_kind() {
        let of_class = SegmentClass::ALL.map(|(class, _)| file_kind(&segment_name(class, SegmentId::new(7))));
        let expected = [FileKind::Log, FileKind::Rows, FileKind::Indexes, FileKind::Blobs];
        assert_eq!(of_class, expected);
        assert_eq!(MANIFEST_NAMES.map(file_kind), [FileKind::Manifest; 2]);
        assert_eq!(
            ["pbxt.lock", "hot-7.seg", ""].map(file_kind),
            [FileKind::Other; 3]
        );
    }

    #[test]
    fn names_come_back() {
        let name = segment_name(SegmentClass::Blob, SegmentId::new(0x1a2b));
        assert_eq!(name, "blob-00001a2b.seg");
        assert_eq!(
            parse_segment_name(&name),
            Some((SegmentClass::Blob, SegmentId::new(0x1a2b)))
        );
        for other in ["hot-1.seg", "warm-00000001.seg", "hot-0000000g.seg", "pbxt.lock"] {
            assert_eq!(parse_segment_name(other), None, "{other}");
        }
    }
}
