//! Weigher: the host's collations, asked for the weights of one value.
//!
//! Why it exists:    the core knows no collation; hosts that order strings by one give bytes that compare as the strings do.
//! Rules:            F25: equal strings (under the collation) give equal weights; weights never depend on anything but the value,
//!                   the part and the collation version kept in the catalog.
//! Latches and I/O:  called on foreground threads only, never during recovery or in background work.

/// Computes collation weights. Given by the host when it opens a table.
pub trait Weigher {
    /// Appends the weights of `src` to `out`; never touches what `out` held before.
    ///
    /// `part_ctx` is the context the host gave for this part when the `KeyMaker` was made. `src` is the whole value: of a
    /// prefix part the host cuts it at a character border itself. A `Padded` column comes without its trailing padding;
    /// a host that cuts a prefix of one and uses a scheme other than `PadSpace` must strip padding again after the cut.
    fn weights(&self, part_ctx: usize, src: &[u8], out: &mut Vec<u8>);

    /// A context for a part that no host has opened: of this collation and this many bytes, a prefix or not, of a column of fixed length
    /// (`is_char`) or not. The host keeps it as long as it is there itself. None if it has no such collation.
    fn context(&self, _collation: u32, _length: u32, _is_prefix: bool, _is_char: bool) -> Option<usize> {
        None
    }
}

/// For tables whose keys need no collation. Gives no weights, which `FixedLen` parts then refuse.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWeigher;

impl Weigher for NoWeigher {
    fn weights(&self, _part_ctx: usize, _src: &[u8], _out: &mut Vec<u8>) {}
}
