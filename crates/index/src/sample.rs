//! Samples: the entries of one leaf, chosen by how far along the tree it lies.
//!
//! Why it exists:    statistics want to see entries from everywhere in the tree without reading all of it.
//! Format / state:   none. The descent takes at each level the child that lies the given share of the way along, and goes
//!                   on with the share that is left within it; so shares spread evenly reach leaves spread evenly.
//! Rules:            X4, X7 (as every read); X8 what is read lies together in the order of the tree.
//! Latches and I/O:  none.

use crate::batch::{Batch, Stop};
use crate::body::{Body, LeafPos};
use crate::latch::Restart;

impl Body {
    /// Fills `out` with one entry more than the leaf at `share` of the way has, from its first one that is not dead on. The answer is
    /// for how many leaves this one stands: a way through nodes with many children is a narrow one.
    pub(crate) fn try_sample(&self, share: f64, out: &mut Batch) -> Result<f64, Restart> {
        out.places.clear();
        out.tree = Some(self.id);
        out.stop = Stop::default();
        let (mut node, mut version) = self.enter()?;
        let (mut share, mut leaves) = (share.clamp(0.0, 1.0), 1.0);
        while node.level() > 0 {
            let separators = node.counts().count;
            let along = share * (separators + 1) as f64;
            let index = (along as usize).min(separators);
            share = along - index as f64;
            leaves *= (separators + 1) as f64;
            (node, version) = self.step_down(node, version, index)?;
        }
        // Leaves often end where a key does: without the first entry of the next one, neighbours would look more alike than they are.
        let max = node.counts().count + 1;
        let start = LeafPos {
            leaf: node,
            version,
            index: 0,
        };
        self.fill_forward(start, out, max)?;
        Ok(leaves)
    }
}
