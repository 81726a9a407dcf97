//! A model of the tree: an ordered set of events, searched with the definitions in words.

use std::collections::BTreeSet;

use pbxt_base::{Lsn, RowId, TxnId};
use pbxt_index::{Batch, EntryRef, EntryView, Sign, Tree};

/// What orders an entry: key, row id, LSN, sign.
pub(crate) type Event = (Vec<u8>, u64, u64, Sign);

/// The event of an entry.
pub(crate) fn event_of(entry: EntryView<'_>) -> Event {
    (
        entry.key().to_vec(),
        entry.row().raw(),
        entry.lsn().raw(),
        entry.sign(),
    )
}

/// Puts an event into the tree; transaction and unpack bytes are derived from it, so that they can be checked.
pub(crate) fn insert(tree: &Tree, event: &Event) -> EntryRef {
    let (key, row, lsn, sign) = event;
    tree.insert(
        key,
        RowId::new(*row),
        TxnId::new(row ^ lsn),
        Lsn::new(*lsn),
        *sign,
        &unpack_of(key),
    )
    .expect("an entry this small fits")
}

/// The unpack bytes `insert` gives to a key.
pub(crate) fn unpack_of(key: &[u8]) -> Vec<u8> {
    key.iter().rev().take(3).copied().collect()
}

/// Events of a batch, each checked for what the order does not show.
pub(crate) fn events(tree: &Tree, batch: &Batch) -> Vec<Event> {
    let check = |entry: EntryView<'_>| {
        assert_eq!(entry.txn().raw(), entry.row().raw() ^ entry.lsn().raw());
        assert_eq!(entry.unpack(), unpack_of(entry.key()));
        event_of(entry)
    };
    batch.entries(tree).map(check).collect()
}

/// All events of the model a read should give, in its order.
pub(crate) fn expected(
    model: &BTreeSet<Event>,
    is_left: impl Fn(&Event) -> bool,
    forward: bool,
) -> Vec<Event> {
    if forward {
        model.iter().filter(|event| !is_left(event)).cloned().collect()
    } else {
        model
            .iter()
            .rev()
            .filter(|event| is_left(event))
            .cloned()
            .collect()
    }
}
