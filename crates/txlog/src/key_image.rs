//! Key images: the index events a row record causes, so that nobody but the writer ever needs a collation.
//!
//! Why it exists:    recovery, merges and replicas must rebuild index entries without the host and without reading the
//!                   predecessor's columns (docs/indexes.md); so the record carries each new and each old key.
//! Format / state:   docs/format-log.md#key-images. Per image: varint(index id * 2 + sign bit), varint(key bytes),
//!                   varint(unpack bytes), key, unpack. The section's length stands in the row record.
//! Rules:            F: images are in the order the writer made them; a sign bit of 1 is an anti-entry.
//! Latches and I/O:  none.
//! After a crash:    a section that does not decode in a verified batch is damage.

use crate::record::RecordFault;
use pbxt_base::codec::{self, Reader};
use pbxt_base::ids::IndexId;

/// Whether an index event adds a key or takes it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sign {
    /// Entry: the row has this key from now on.
    Entry,
    /// Anti-entry: the row no longer has this key.
    AntiEntry,
}

/// One index event of a row record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyImage<'a> {
    /// The index.
    pub index: IndexId,
    /// Entry or anti-entry.
    pub sign: Sign,
    /// Order-preserving key bytes without the row id.
    pub key: &'a [u8],
    /// What the key bytes alone cannot give back; often empty.
    pub unpack: &'a [u8],
}

/// Collects the key images of one row record. Keep one per writer and `clear` it: its memory is reused.
#[derive(Debug, Default)]
pub struct KeyImageBuf {
    bytes: Vec<u8>,
}

impl KeyImageBuf {
    /// An empty collection.
    pub fn new() -> KeyImageBuf {
        KeyImageBuf::default()
    }

    /// Forgets all images and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds one image.
    pub fn push(&mut self, image: KeyImage<'_>) {
        let sign_bit = u64::from(image.sign == Sign::AntiEntry);
        codec::put_varint(&mut self.bytes, u64::from(image.index.raw()) << 1 | sign_bit);
        codec::put_varint(&mut self.bytes, image.key.len() as u64);
        codec::put_varint(&mut self.bytes, image.unpack.len() as u64);
        self.bytes.extend_from_slice(image.key);
        self.bytes.extend_from_slice(image.unpack);
    }

    /// The encoded section for `RowRecord::key_images`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// True if no image was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Iterator over an encoded section. Ends after the first fault.
#[derive(Clone)]
pub struct KeyImages<'a> {
    rest: &'a [u8],
}

impl<'a> KeyImages<'a> {
    /// Reads an encoded section.
    pub fn new(section: &'a [u8]) -> KeyImages<'a> {
        KeyImages { rest: section }
    }

    fn take_image(&mut self) -> Result<KeyImage<'a>, RecordFault> {
        let bad = |what| RecordFault::new(what, self.rest.len() as u64);
        let mut reader = Reader::new(self.rest);
        let tag = reader
            .varint()
            .map_err(|_| bad("expected the index id of a key image, found bytes left"))?;
        let key_bytes = reader
            .varint()
            .map_err(|_| bad("expected the length of a key, found bytes left"))?;
        let unpack_bytes = reader
            .varint()
            .map_err(|_| bad("expected the length of unpack bytes, found bytes left"))?;
        let key = reader
            .bytes(to_usize(key_bytes))
            .map_err(|_| bad("expected a whole key, found bytes left"))?;
        let unpack = reader
            .bytes(to_usize(unpack_bytes))
            .map_err(|_| bad("expected whole unpack bytes, found bytes left"))?;
        let index = u32::try_from(tag >> 1)
            .map_err(|_| RecordFault::new("expected an index id of 32 bits", tag >> 1))?;
        self.rest = reader.rest();
        let sign = if tag & 1 == 0 {
            Sign::Entry
        } else {
            Sign::AntiEntry
        };
        Ok(KeyImage {
            index: IndexId::new(index),
            sign,
            key,
            unpack,
        })
    }
}

/// A length no slice has, if the number is too large for this machine.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl<'a> Iterator for KeyImages<'a> {
    type Item = Result<KeyImage<'a>, RecordFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let image = self.take_image();
        if image.is_err() {
            self.rest = &[];
        }
        Some(image)
    }
}
