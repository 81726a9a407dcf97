//! KeySpec: the parts of an index and how each one orders, as kept in the catalog.
//!
//! Why it exists:    key images must compare with memcmp alike in every process that ever opens the table; all that decides
//!                   about their bytes stands here, none of it in the host's memory.
//! Format / state:   docs/format-rows.md#key-specification; the images themselves: #key-images.
//! Rules:            X20: the image of the first k parts is a byte prefix of the image of all. X21: images of different
//!                   values never are prefixes of each other within a part. X22: NULL sorts before every value, and after
//!                   every value in a descending part. X40: behind the declared parts may stand those of the primary key.
//! After a crash:    comes back with the catalog.

use crate::error::{Error, Result};
use crate::fields::ImageReader;
use crate::schema::{ColumnKind, Schema};
use pbxt_base::codec::{push_u16, push_u32};

const IMAGE: &str = "key specification";
const FORMAT: u8 = 2;
/// Of an index without an extension: does not say how many parts were declared.
const FORMAT_ALL_DECLARED: u8 = 1;
/// Bytes of the ends of keys that a run keeps as numbers, at most.
const SUFFIX_BYTES_MAX: usize = 8;
/// Most parts of an index.
const PARTS_MAX: usize = 64;

/// How the weights of a host-ordered part become bytes of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightScheme {
    /// The weights always have this many bytes.
    FixedLen(u32),
    /// Weights of any length; a proper prefix sorts first.
    NoPad,
    /// Weights of any length, compared as if continued for ever by the weight of one space.
    PadSpace {
        /// The first `len` bytes are the weight of a space.
        weight: [u8; 8],
        /// Its length, 1 to 8; weights have a multiple of this length.
        len: u8,
    },
}

/// How the values of a part order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEncoding {
    /// Unsigned little-endian number of 1 to 8 bytes.
    Uint,
    /// Two's complement little-endian number of 1 to 8 bytes.
    Int,
    /// IEEE single, little-endian; -0 equals 0, NaNs lie outside the infinities.
    F32,
    /// IEEE double, the same.
    F64,
    /// Bytes that compare as they are, always `length` of them.
    Raw,
    /// Bytes that compare as they are, of any length, without padding.
    VarBinary,
    /// By a collation of the host.
    Host {
        /// The host's number of the collation; kept for its checks, not used here.
        collation: u32,
        /// What its weights look like.
        scheme: WeightScheme,
    },
}

impl KeyEncoding {
    /// True if the image of a value may lack something of it, which unpack information then has.
    pub fn loses(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::Host { .. })
    }

    /// Bytes of the image of a value of this length, if all values have as many.
    fn fixed_bytes(self, length: u32) -> Option<usize> {
        match self {
            Self::Uint | Self::Int | Self::F32 | Self::F64 | Self::Raw => Some(length as usize),
            Self::VarBinary | Self::Host { .. } => None,
        }
    }
}

/// One part of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// Column number.
    pub column: u16,
    /// Bytes of the part in a search tuple, without null and length bytes: of a whole column its (longest) length.
    pub length: u32,
    /// Only the first `length` bytes (of host-ordered parts: the characters in them) count.
    pub prefix: bool,
    /// The column may be NULL.
    pub nullable: bool,
    /// Sorts downwards.
    pub descending: bool,
    /// How values order.
    pub encoding: KeyEncoding,
}

/// The parts of one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    parts: Vec<KeyPart>,
    /// Of them, how many the index was declared with; the others are its extension.
    declared: usize,
    unpack: bool,
}

impl KeySpec {
    /// Describes an index. `unpack`: entries also keep what their keys lose, so that an index alone can answer for its columns.
    ///
    /// # Errors
    /// `BadKey` for a part that contradicts itself, no parts, or more than 64.
    pub fn new(parts: Vec<KeyPart>, unpack: bool) -> Result<Self> {
        if parts.is_empty() || parts.len() > PARTS_MAX {
            return Err(Error::BadKey {
                part: parts.len(),
                why: "an index has 1 to 64 parts",
            });
        }
        for (number, part) in parts.iter().enumerate() {
            part.check().map_err(|why| Error::BadKey { part: number, why })?;
        }
        let declared = parts.len();
        Ok(Self {
            parts,
            declared,
            unpack,
        })
    }

    /// Says that the last `count` parts were not declared: they are columns of the primary key (rule X40).
    ///
    /// # Errors
    /// `BadKey` if no part would be left, or for one that a primary key cannot lend: a prefix, or one that may be NULL.
    pub fn with_extension(mut self, count: usize) -> Result<Self> {
        let bad = |part, why| Err(Error::BadKey { part, why });
        let Some(declared) = self.parts.len().checked_sub(count).filter(|&left| left > 0) else {
            return bad(self.parts.len(), "an extended index has parts of its own");
        };
        for (number, part) in self.parts.iter().enumerate().skip(declared) {
            if part.prefix || part.nullable {
                return bad(
                    number,
                    "an index is extended by whole columns that are never NULL",
                );
            }
        }
        self.declared = declared;
        Ok(self)
    }

    /// The parts in order, those of the extension last.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// The parts without the extension.
    pub fn declared(&self) -> &[KeyPart] {
        &self.parts[..self.declared]
    }

    /// True if the primary key's columns stand behind the declared ones.
    pub fn is_extended(&self) -> bool {
        self.declared < self.parts.len()
    }

    /// The index as it would be without an extension.
    #[must_use]
    pub fn bare(&self) -> Self {
        let parts = self.declared().to_vec();
        Self {
            unpack: self.unpack && parts.iter().any(|part| part.encoding.loses()),
            declared: parts.len(),
            parts,
        }
    }

    /// How many bytes at the end of every key are those of the extension's last parts of fixed length, at most 8; 0 if there are
    /// none. Runs keep them apart (rule X43).
    pub fn suffix_bytes(&self) -> usize {
        let extension = self.parts[self.declared..].iter().rev();
        let fixed = extension.map_while(|part| part.encoding.fixed_bytes(part.length));
        fixed.sum::<usize>().min(SUFFIX_BYTES_MAX)
    }

    /// True if entries keep unpack information.
    pub fn unpack(&self) -> bool {
        self.unpack
    }

    /// True if the core can make the keys of this index from stored rows, without the host.
    pub fn derivable(&self, schema: &Schema) -> bool {
        let stored = |part: &KeyPart| {
            schema
                .column(part.column as usize)
                .is_some_and(|column| column.kind != ColumnKind::Virtual)
        };
        self.parts
            .iter()
            .all(|part| !matches!(part.encoding, KeyEncoding::Host { .. }) && stored(part))
    }

    /// Compares the parts with the columns they name.
    ///
    /// # Errors
    /// `BadKey` names the first part that does not fit its column.
    pub fn check(&self, schema: &Schema) -> Result<()> {
        for (number, part) in self.parts.iter().enumerate() {
            let bad = |why| Err(Error::BadKey { part: number, why });
            let Some(column) = schema.column(part.column as usize) else {
                return bad("the table has no column of this number");
            };
            if column.nullable != part.nullable {
                return bad("part and column differ in whether they may be NULL");
            }
            if let Err(why) = part.check_kind(column.kind) {
                return bad(why);
            }
        }
        Ok(())
    }

    /// Appends the catalog image (docs/format-rows.md#key-specification).
    pub fn encode(&self, out: &mut Vec<u8>) {
        let count = self.parts.len() as u8;
        if self.is_extended() {
            out.extend_from_slice(&[FORMAT, u8::from(self.unpack), count, self.declared as u8]);
        } else {
            out.extend_from_slice(&[FORMAT_ALL_DECLARED, u8::from(self.unpack), count]);
        }
        for part in &self.parts {
            push_u16(out, part.column);
            push_u32(out, part.length);
            let flags = [part.prefix, part.nullable, part.descending];
            out.push(
                flags
                    .iter()
                    .rev()
                    .fold(0, |bits, &flag| bits << 1 | u8::from(flag)),
            );
            encode_encoding(part.encoding, out);
        }
    }

    /// Reads a catalog image; `bytes` must be exactly one image.
    ///
    /// # Errors
    /// `Corrupt`, `WrongFormat`, or `BadKey` for parts no index could have.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = ImageReader::new(IMAGE, bytes);
        let format = reader.u8()?;
        if !(FORMAT_ALL_DECLARED..=FORMAT).contains(&format) {
            return Err(Error::WrongFormat {
                image: IMAGE,
                found: format,
                expected: FORMAT,
            });
        }
        let is_extended = format == FORMAT;
        let unpack = reader.flag()?;
        let count = reader.u8()?;
        let declared = if is_extended { reader.u8()? } else { count };
        if is_extended && declared >= count {
            return Err(reader.corrupt("fewer declared parts than parts", declared as u64));
        }
        let parts = (0..count)
            .map(|_| decode_part(&mut reader))
            .collect::<Result<Vec<_>>>()?;
        reader.end()?;
        Self::new(parts, unpack)?.with_extension((count - declared) as usize)
    }
}

impl KeyPart {
    fn check(&self) -> std::result::Result<(), &'static str> {
        match self.encoding {
            KeyEncoding::Uint | KeyEncoding::Int if !(1..=8).contains(&self.length) => {
                Err("a number has 1 to 8 bytes")
            }
            KeyEncoding::F32 if self.length != 4 => Err("a single precision number has 4 bytes"),
            KeyEncoding::F64 if self.length != 8 => Err("a double precision number has 8 bytes"),
            KeyEncoding::Uint | KeyEncoding::Int | KeyEncoding::F32 | KeyEncoding::F64 if self.prefix => {
                Err("a number has no prefix")
            }
            KeyEncoding::Host {
                scheme: WeightScheme::PadSpace { len, .. },
                ..
            } if !(1..=8).contains(&len) => Err("the weight of a space has 1 to 8 bytes"),
            _ if self.prefix && self.length == 0 => Err("a prefix has at least one byte"),
            _ => Ok(()),
        }
    }

    /// Compares the part with how its column is stored; of a virtual column only the host knows.
    pub(crate) fn check_kind(&self, kind: ColumnKind) -> std::result::Result<(), &'static str> {
        match (self.encoding, kind) {
            (_, ColumnKind::Virtual)
            | (KeyEncoding::Host { .. }, _)
            | (KeyEncoding::VarBinary, ColumnKind::Var) => Ok(()),
            (KeyEncoding::VarBinary, _) => Err("the column has a fixed length"),
            (_, ColumnKind::Var) => Err("the column has no fixed length"),
            (KeyEncoding::Raw, ColumnKind::Fixed(len) | ColumnKind::Padded { len, .. }) => {
                let fits = if self.prefix {
                    self.length <= len as u32
                } else {
                    self.length == len as u32
                };
                if fits {
                    Ok(())
                } else {
                    Err("part and column have different lengths")
                }
            }
            (_, ColumnKind::Fixed(len)) if self.length == len as u32 => Ok(()),
            _ => Err("part and column have different lengths"),
        }
    }
}

fn encode_encoding(encoding: KeyEncoding, out: &mut Vec<u8>) {
    out.push(match encoding {
        KeyEncoding::Uint => 0,
        KeyEncoding::Int => 1,
        KeyEncoding::F32 => 2,
        KeyEncoding::F64 => 3,
        KeyEncoding::Raw => 4,
        KeyEncoding::VarBinary => 5,
        KeyEncoding::Host {
            scheme: WeightScheme::FixedLen(_),
            ..
        } => 6,
        KeyEncoding::Host {
            scheme: WeightScheme::NoPad,
            ..
        } => 7,
        KeyEncoding::Host {
            scheme: WeightScheme::PadSpace { .. },
            ..
        } => 8,
    });
    if let KeyEncoding::Host { collation, scheme } = encoding {
        push_u32(out, collation);
        match scheme {
            WeightScheme::FixedLen(bytes) => push_u32(out, bytes),
            WeightScheme::NoPad => {}
            WeightScheme::PadSpace { weight, len } => {
                out.push(len);
                out.extend_from_slice(weight.get(..len as usize).unwrap_or_default());
            }
        }
    }
}

fn decode_part(reader: &mut ImageReader<'_>) -> Result<KeyPart> {
    let column = reader.u16()?;
    let length = reader.u32()?;
    let flags = reader.u8()?;
    if flags > 7 {
        return Err(reader.corrupt("flags of an index part", flags as u64));
    }
    let encoding = decode_encoding(reader)?;
    let (prefix, nullable, descending) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    Ok(KeyPart {
        column,
        length,
        prefix,
        nullable,
        descending,
        encoding,
    })
}

fn decode_encoding(reader: &mut ImageReader<'_>) -> Result<KeyEncoding> {
    let code = reader.u8()?;
    let collation = if (6..=8).contains(&code) { reader.u32()? } else { 0 };
    let scheme = match code {
        0 => return Ok(KeyEncoding::Uint),
        1 => return Ok(KeyEncoding::Int),
        2 => return Ok(KeyEncoding::F32),
        3 => return Ok(KeyEncoding::F64),
        4 => return Ok(KeyEncoding::Raw),
        5 => return Ok(KeyEncoding::VarBinary),
        6 => WeightScheme::FixedLen(reader.u32()?),
        7 => WeightScheme::NoPad,
        8 => {
            let len = reader.u8()?;
            let mut weight = [0; 8];
            let place = weight.get_mut(..len as usize);
            place
                .ok_or_else(|| reader.corrupt("a weight of at most 8 bytes", len as u64))?
                .copy_from_slice(reader.take(len as usize)?);
            WeightScheme::PadSpace { weight, len }
        }
        other => return Err(reader.corrupt("a known key encoding", other as u64)),
    };
    Ok(KeyEncoding::Host { collation, scheme })
}
