//! Superseded: parts that others have taken the place of, as long as somebody still reads them.
//!
//! Why it exists: a reader goes on with the parts it has until it returns to its caller, and a walk over entries that nobody wants may
//! take minutes. Who takes something back that only old parts speak of has to know that nobody has them any more.
//! Rules: S23.
//! Latches and I/O: its own, for a look at a short list: what nobody has goes whenever something is added.
//! After a crash: there are no readers.

use parking_lot::Mutex;
use std::any::Any;
use std::sync::{Arc, Weak};

/// One thing that was superseded.
pub(crate) type Former = Weak<dyn Any + Send + Sync>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    former: Mutex<Vec<Former>>,
}

impl Superseded {
    /// Others have taken the place of this.
    pub(crate) fn note<T: Any + Send + Sync>(&self, parts: &Arc<T>) {
        let parts: Former = Arc::downgrade(parts) as Former;
        let mut former = self.former.lock();
        former.retain(is_held);
        former.push(parts);
    }

    /// Adds what somebody still has.
    pub(crate) fn held(&self, out: &mut Vec<Former>) {
        let former = self.former.lock();
        out.extend(former.iter().filter(|former| is_held(former)).cloned());
    }
}

/// True as long as somebody has it.
pub(crate) fn is_held(former: &Former) -> bool {
    former.strong_count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_is_not_kept() {
        let superseded = Superseded::default();
        let (first, second) = (Arc::new(1_u32), Arc::new(String::from("second")));
        superseded.note(&first);
        superseded.note(&second);
        let mut held = Vec::new();
        superseded.held(&mut held);
        assert_eq!(held.len(), 2);
        drop(first);
        assert_eq!(held.iter().filter(|former| is_held(former)).count(), 1, "S23");
        superseded.note(&Arc::new(3_u64));
        assert_eq!(superseded.former.lock().len(), 2, "the first has gone");
        held.clear();
        superseded.held(&mut held);
        assert_eq!(held.len(), 1, "nobody has the third");
    }
}
