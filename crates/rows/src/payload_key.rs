//! PayloadKeyMaker: key images of one index from stored rows and from single values, without a host.
//!
//! Why it exists:    recovery, merges, replicas and programs without a record buffer make keys where no collation is needed
//!                   (`KeySpec::derivable`); all other keys are in the log (design rule 23).
//! Format / state:   docs/format-rows.md#key-images, #unpack-information.
//! Rules:            X26: the key and unpack information of a stored row equal those `KeyMaker` made from its record.
//! Latches and I/O:  none; the `BlobSink` may read blob files.

use crate::blob::{BlobSink, NoBlobs};
use crate::error::{Error, Result};
use crate::image::PartCode;
use crate::key_spec::KeySpec;
use crate::payload::{Payload, corrupt};
use crate::restore::put_unpack;
use crate::schema::{Place, Schema, Shape};
use crate::weights::NoWeigher;

#[derive(Clone, Debug)]
struct Part {
    code: PartCode,
    place: Place,
    null_ordinal: Option<u16>,
}

/// Makes the keys of one derivable index from payloads of one schema.
#[derive(Clone, Debug)]
pub struct PayloadKeyMaker {
    parts: Vec<Part>,
    unpack: bool,
    shape: Shape,
}

impl PayloadKeyMaker {
    /// Compiles the key maker of an index.
    ///
    /// # Errors
    /// `BadKey` if a part does not fit its column or the index is not derivable.
    pub fn new(spec: &KeySpec, schema: &Schema) -> Result<Self> {
        spec.check(schema)?;
        if !spec.derivable(schema) {
            return Err(Error::BadKey {
                part: 0,
                why: "keys of this index need the host",
            });
        }
        let mut parts = Vec::with_capacity(spec.parts().len());
        for (number, part) in spec.parts().iter().enumerate() {
            let column = part.column as usize;
            if let (Some(placed), Some(description)) = (schema.placed(column), schema.column(column)) {
                let code = PartCode::new(number, part, description.kind, 0);
                parts.push(Part {
                    code,
                    place: placed.place,
                    null_ordinal: placed.null_ordinal,
                });
            }
        }
        Ok(Self {
            parts,
            unpack: spec.unpack(),
            shape: schema.shape(),
        })
    }

    /// Appends the key of a stored row.
    ///
    /// # Errors
    /// `Corrupt`, and what `sink` gives for an external value; `out` is then as before.
    pub fn key_from_payload(&self, payload: &[u8], sink: &mut dyn BlobSink, out: &mut Vec<u8>) -> Result<()> {
        let payload = Payload::parse(self.shape, payload)?;
        let start = out.len();
        for part in &self.parts {
            let put = part
                .value(&payload, sink)
                .and_then(|value| part.code.put(value, &NoWeigher, out));
            if put.is_err() {
                out.truncate(start);
                return put;
            }
        }
        Ok(())
    }

    /// True if this is the whole key of a stored row. `scratch` is overwritten.
    ///
    /// # Errors
    /// As `key_from_payload`; of a key in values that are kept outside the row `NoBlobs` says so.
    #[inline]
    pub fn is_key_of(&self, payload: &[u8], key: &[u8], scratch: &mut Vec<u8>) -> Result<bool> {
        let row = Payload::parse(self.shape, payload)?;
        let mut rest = key;
        for part in &self.parts {
            let Some(value) = part.plain(&row) else {
                scratch.clear();
                self.key_from_payload(payload, &mut NoBlobs, scratch)?;
                return Ok(scratch == key);
            };
            let Some(behind) = rest.strip_prefix(value) else {
                return Ok(false);
            };
            rest = behind;
        }
        Ok(rest.is_empty())
    }

    /// Appends the unpack information of a stored row; nothing if the index keeps none.
    ///
    /// # Errors
    /// As `key_from_payload`; `out` may then hold a part of it.
    pub fn unpack_from_payload(
        &self,
        payload: &[u8],
        sink: &mut dyn BlobSink,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if self.unpack {
            let payload = Payload::parse(self.shape, payload)?;
            for part in &self.parts {
                if let Some(value) = part.value(&payload, sink)? {
                    put_unpack(&part.code, value, out);
                }
            }
        }
        Ok(())
    }

    /// Appends the key of the first parts, one value each: a whole key, or a prefix of every key that matches.
    ///
    /// # Errors
    /// `BadKey` for more values than parts, `BadValue` for one that does not fit; `out` is then as before.
    pub fn key_from_values(&self, values: &[Option<&[u8]>], out: &mut Vec<u8>) -> Result<()> {
        if values.len() > self.parts.len() {
            return Err(Error::BadKey {
                part: values.len(),
                why: "the index has fewer parts",
            });
        }
        let start = out.len();
        for (part, value) in self.parts.iter().zip(values) {
            let put = part.code.put(*value, &NoWeigher, out);
            if put.is_err() {
                out.truncate(start);
                return put;
            }
        }
        Ok(())
    }

    /// True if any part is NULL: such a row is no duplicate of any other.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn has_null(&self, payload: &[u8]) -> Result<bool> {
        let payload = Payload::parse(self.shape, payload)?;
        Ok(self.parts.iter().any(|part| part.is_null(&payload)))
    }
}

impl Part {
    /// The value, if keys have it as rows do.
    #[inline]
    fn plain<'a>(&self, payload: &Payload<'a>) -> Option<&'a [u8]> {
        match self.place {
            Place::Fixed { offset, len } if self.code.is_plain(len as usize) => {
                Some(payload.fixed(offset as usize, len as usize))
            }
            _ => None,
        }
    }

    fn is_null(&self, payload: &Payload<'_>) -> bool {
        self.null_ordinal
            .is_some_and(|ordinal| payload.is_null(ordinal as usize))
    }

    /// The value of the column, None if it is NULL.
    fn value<'a>(&self, payload: &Payload<'a>, sink: &'a mut dyn BlobSink) -> Result<Option<&'a [u8]>> {
        if self.is_null(payload) {
            return Ok(None);
        }
        match self.place {
            Place::Nowhere => Ok(None),
            Place::Fixed { offset, len } => Ok(Some(payload.fixed(offset as usize, len as usize))),
            Place::Var { ordinal } if payload.is_external(ordinal as usize) => {
                let blob = payload.blob(ordinal as usize)?;
                let value = sink.load(self.code.column, &blob)?;
                if value.len() as u64 == blob.len {
                    Ok(Some(value))
                } else {
                    Err(corrupt(
                        0,
                        "an external value of the length its reference says",
                        value.len() as u64,
                    ))
                }
            }
            Place::Var { ordinal } => Ok(Some(payload.var(ordinal as usize)?)),
        }
    }
}
