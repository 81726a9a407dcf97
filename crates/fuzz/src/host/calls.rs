//! Calls: of sessions and cursors, each with arguments of the input.

use super::*;

impl Host {
    /// The next call of an input.
    pub(super) fn call(&mut self, feed: &mut Feed<'_>) {
        let session = feed.below(SESSIONS);
        let table = feed.below(TABLES.len());
        let kind = feed.byte() % 16;
        if kind < 6 {
            self.tables
                .iter_mut()
                .flatten()
                .for_each(|opened| opened.row = None);
        }
        match kind {
            0 => self.schema_call(table, session, feed),
            1 => self.end(session, feed),
            2 => self.transaction_call(session, feed),
            3 => self.session_call(session, feed),
            4 => self.two_phase_call(session, feed),
            5 if feed.once_in(2) => self.bind_with(table, session, [0; 8].map(|_: u8| feed.byte() % 3)),
            5 => self.bind(table, session, feed.once_in(2)),
            6 => self.look(table, session, feed),
            7 => self.prepare_to_read(table, feed),
            8..=10 => self.read(table, feed),
            _ => self.change(table, feed),
        }
    }

    fn end(&mut self, number: usize, feed: &mut Feed<'_>) {
        let session = self.sessions[number];
        // SAFETY: H1.
        answered(unsafe {
            match feed.byte() % 4 {
                0 | 1 => pbxt_commit(session),
                2 => pbxt_statement_end(session),
                _ => pbxt_rollback(session),
            }
        });
    }

    fn transaction_call(&mut self, number: usize, feed: &mut Feed<'_>) {
        let session = self.sessions[number];
        let savepoint = if feed.once_in(4) {
            feed.number()
        } else {
            self.savepoints[feed.below(2)]
        };
        let place = &raw mut self.savepoints[feed.below(2)];
        // SAFETY: H1; there is a place for the savepoint.
        answered(unsafe {
            match feed.byte() % 9 {
                0 => pbxt_statement_begin(session),
                1 => pbxt_statement_end(session),
                2 => pbxt_statement_rollback(session),
                3 => pbxt_savepoint(session, place),
                4 => pbxt_rollback_to(session, savepoint),
                5 => pbxt_savepoint_release(session, savepoint, i32::from(feed.byte() & 1)),
                6 => pbxt_row_hold(session),
                7 => pbxt_row_release(session, i32::from(feed.byte() & 1)),
                _ => pbxt_take_snapshot(session),
            }
        });
    }

    fn session_call(&mut self, number: usize, feed: &mut Feed<'_>) {
        match feed.byte() % 4 {
            0 => {
                let conflict_mode = i32::from(feed.byte() % 4);
                let isolation = i32::from(feed.byte() % 5);
                self.configure(
                    number,
                    isolation,
                    conflict_mode,
                    [feed.byte(), feed.byte() & 1, feed.byte() & 1],
                );
            }
            // SAFETY: H1.
            1 => unsafe { pbxt_session_kill(self.sessions[number]) },
            2 => {
                self.close_session(number);
                self.open_session(number);
            }
            _ => self.unbind(|_, session| session == number),
        }
    }

    fn two_phase_call(&mut self, number: usize, feed: &mut Feed<'_>) {
        let session = self.sessions[number];
        let xid = if feed.once_in(8) {
            &[7; 300][..feed.number() as usize % 300]
        } else {
            feed.bytes(2)
        };
        let (bytes, len) = (xid.as_ptr(), xid.len());
        let kind = feed.byte() % 6;
        if kind == 3 || kind == 4 {
            // A decision about a vote that a session holds waits for the session, and there is one thread (rule V3).
            self.detach_all();
        }
        // SAFETY: H1; the bytes are there.
        answered(unsafe {
            match kind {
                0 | 1 => pbxt_prepare(session, bytes, len),
                2 => pbxt_commit_ordered(session),
                3 => pbxt_commit_prepared(self.db, bytes, len),
                4 => pbxt_rollback_prepared(self.db, bytes, len),
                _ => {
                    pbxt_detach_prepared(session);
                    Status::Ok
                }
            }
        });
    }

    /// Binds the cursor of a table, if it is open.
    pub(super) fn bind(&mut self, table: usize, number: usize, for_write: bool) {
        self.bind_with(
            table,
            number,
            [u8::from(for_write) * 2, u8::from(for_write), 0, 0, 0, 0, 1, 0],
        );
    }

    fn bind_with(&mut self, table: usize, number: usize, options: [u8; 8]) {
        let session = self.sessions[number];
        let Some(opened) = &mut self.tables[table] else {
            return;
        };
        let [
            lock_mode,
            for_write,
            skip_locked,
            no_wait,
            autonomous,
            newest,
            check_foreign_keys,
            leave_out_damaged,
        ] = options;
        let bind = PbxtBind {
            lock_mode,
            for_write,
            skip_locked,
            no_wait,
            autonomous,
            newest,
            check_foreign_keys,
            leave_out_damaged,
        };
        // SAFETY: H1; the options outlive the call.
        let bound = answered(unsafe { pbxt_cursor_bind(opened.cursor, session, &raw const bind) });
        // What was refused has the session all the same, so it is given up with it.
        opened.bound = Some(number);
        if bound != Status::Ok {
            self.unbind(|_, session| session == number);
        }
    }

    /// Questions that change nothing.
    fn look(&mut self, table: usize, number: usize, feed: &mut Feed<'_>) {
        let Some(opened) = &self.tables[table] else { return };
        let index = feed.below(opened.made.index_count() + 1);
        let parts = feed.below(opened.made.part_count(index) + 1);
        let is_sound = !opened.made.is_wild;
        let (low, high) = (
            opened.made.tuple(index, parts, feed),
            opened.made.tuple(index, parts, feed),
        );
        let (mut one, mut other) = (0, [0; 20]);
        let (session, place) = (self.sessions[number], &raw mut one);
        // SAFETY: H1, H2; there are places for what is answered.
        answered(unsafe {
            match feed.byte() % 7 {
                0 => pbxt_count(opened.cursor, session, place),
                1 => pbxt_rows_per_key(
                    opened.table,
                    index as u32,
                    other.as_mut_ptr(),
                    feed.below(20) as u32,
                ),
                2 if is_sound => {
                    let (low, high, parts) = (low.as_ptr(), high.as_ptr(), parts as u32);
                    pbxt_range_estimate(opened.table, index as u32, low, parts, 1, high, parts, 0, place)
                }
                3 => {
                    let (first, count) = (place, other.as_mut_ptr());
                    pbxt_autoinc_reserve(
                        opened.table,
                        feed.number(),
                        feed.number(),
                        feed.number(),
                        first,
                        count,
                    )
                }
                4 => pbxt_autoinc_raise(opened.table, feed.number()),
                5 => pbxt_table_analyze(opened.table, session, None, null_mut()),
                _ => self.lists(),
            }
        });
    }

    /// Lists for people, and the report.
    fn lists(&self) -> Status {
        unsafe extern "C" fn lock(_: *mut c_void, _: *const PbxtLockInfo) -> i32 {
            0
        }
        unsafe extern "C" fn txn(_: *mut c_void, _: *const PbxtTxnInfo) -> i32 {
            0
        }
        let (mut left_out, mut text, mut len) = (0, null_mut(), 0);
        let mut counters = PbxtCounters::default();
        // SAFETY: H1; there are places for what is answered; the text is given back once.
        unsafe {
            answered(pbxt_list_locks(self.db, lock, null_mut(), &raw mut left_out));
            answered(pbxt_list_txns(self.db, txn, null_mut()));
            answered(pbxt_get_counters(self.db, &raw mut counters));
            answered(pbxt_status_report(self.db, &raw mut text, &raw mut len));
            pbxt_text_free(text);
        }
        Status::Ok
    }

    /// What is said before a scan: columns, conditions, which index.
    fn prepare_to_read(&mut self, table: usize, feed: &mut Feed<'_>) {
        let Some(opened) = &mut self.tables[table] else {
            return;
        };
        let (cursor, columns) = (opened.cursor, opened.made.column_count());
        let (low, high) = (feed.bytes(12), feed.bytes(12));
        let condition = PbxtCondition {
            column: feed.below(columns + 1) as u32,
            kind: feed.byte() % 4,
            low_inclusive: feed.byte() & 1,
            high_inclusive: feed.byte() & 1,
            low: if feed.once_in(3) { null() } else { low.as_ptr() },
            low_len: low.len(),
            high: if feed.once_in(3) { null() } else { high.as_ptr() },
            high_len: high.len(),
        };
        let index = feed.below(opened.made.index_count() + 1);
        // What was read may lack columns (H2).
        opened.row = None;
        opened.record.fill(0);
        // SAFETY: H1; the bytes, and what conditions point to, are there.
        answered(unsafe {
            match feed.byte() % 6 {
                0 => {
                    let bitmap = feed.bytes(3);
                    pbxt_cursor_columns(cursor, bitmap.as_ptr(), bitmap.len())
                }
                1 => pbxt_cursor_columns(cursor, null(), 0),
                2 => pbxt_cursor_filter(cursor, &raw const condition, u32::from(feed.byte() & 1)),
                3 => pbxt_scan_start(cursor),
                4 => {
                    pbxt_try_semi_consistent(cursor, i32::from(feed.byte() & 1));
                    Status::Ok
                }
                _ => {
                    // Whether it is refused or not: search tuples are of this index from now on.
                    opened.index = index;
                    pbxt_index_start(cursor, index as u32)
                }
            }
        });
    }

    fn read(&mut self, table: usize, feed: &mut Feed<'_>) {
        let Some(opened) = self.tables[table].as_mut().filter(|opened| !opened.made.is_wild) else {
            return;
        };
        let (cursor, record) = (opened.cursor, opened.record.as_mut_ptr());
        let parts = feed.below(opened.made.part_count(opened.index) + 1);
        let tuple = opened.made.tuple(opened.index, parts, feed);
        let (tuple, parts) = (tuple.as_ptr(), parts as u32);
        let kind = feed.byte() % 20;
        // SAFETY: H1, H2.
        let read = answered(unsafe {
            match kind {
                0..=3 => pbxt_scan_next(cursor, record),
                4 => pbxt_index_first(cursor, record),
                5 => pbxt_index_last(cursor, record),
                6 | 7 => pbxt_index_next(cursor, record),
                8 => pbxt_index_prev(cursor, record),
                9 => pbxt_index_next_same(cursor, record),
                10 | 11 => pbxt_index_seek(cursor, tuple, parts, i32::from(feed.byte() % 7), record),
                12 => pbxt_bulk_refused(cursor, record),
                13 => pbxt_fetch(cursor, feed.number(), record),
                14 => pbxt_fetch_unjudged(cursor, feed.number(), record),
                15 => pbxt_index_end_range(cursor, tuple, parts, i32::from(feed.byte() & 1)),
                // By the row, so that inputs of before mean what they meant.
                16 if opened.row.is_some_and(|row| row % 2 == 1) => pbxt_hold_row(cursor),
                16 => {
                    pbxt_unlock_row(cursor);
                    Status::Ok
                }
                17 => pbxt_ranges_start(cursor),
                18 => {
                    let left = feed.byte() % 40;
                    let mut given = GivenRanges { tuple, parts, left };
                    let (given, mut tag) = ((&raw mut given).cast(), 0);
                    pbxt_ranges_next(cursor, give_range, given, record, &raw mut tag)
                }
                _ => pbxt_scan_end(cursor),
            }
        });
        if kind < 15 || kind == 18 {
            // SAFETY: H1.
            opened.row = (read == Status::Ok && kind != 12).then(|| unsafe { pbxt_cursor_row_id(cursor) });
        }
        if opened.row.is_none() {
            // What it pointed to was the row before.
            opened.record.fill(0);
        }
    }

    fn change(&mut self, table: usize, feed: &mut Feed<'_>) {
        let Some(opened) = self.tables[table].as_mut().filter(|opened| !opened.made.is_wild) else {
            return;
        };
        let cursor = opened.cursor;
        let mut kind = feed.byte() % 12;
        let row_id = opened.row.unwrap_or(0);
        if kind > 8 && opened.row.is_none() {
            kind = 0;
        }
        let mut record = opened.record.clone();
        opened.made.fill(feed, kind > 6, &mut record, &mut self.kept);
        let (old, new) = (opened.record.as_ptr(), record.as_ptr());
        let mut key = [0; 16];
        // SAFETY: H1, H2; values of records are kept until the input ends, or were read with this cursor.
        let changed = answered(unsafe {
            match kind {
                0..=4 => pbxt_insert(cursor, new),
                5 => pbxt_insert_or_hold(cursor, new),
                6 => pbxt_bulk_begin(cursor, feed.number(), u32::from(feed.byte() % 3)),
                7 => pbxt_bulk_end(cursor, i32::from(feed.byte() & 1)),
                8 => pbxt_cursor_key(cursor, opened.index as u32, new, key.as_mut_ptr(), feed.below(17)),
                9 => pbxt_delete(cursor, row_id, old),
                _ => pbxt_update(cursor, row_id, old, new),
            }
        });
        if kind > 9 && changed == Status::Ok {
            opened.record = record;
        } else if kind == 9 {
            opened.row = None;
        }
    }
}

/// Points at one tuple, with or without borders, as often as is left.
struct GivenRanges {
    tuple: *const u8,
    parts: u32,
    left: u8,
}

unsafe extern "C" fn give_range(context: *mut c_void, range: *mut PbxtRange) -> i32 {
    // SAFETY: what `read` gave, which nobody else uses meanwhile, and a place of the library.
    let (given, range) = unsafe { (&mut *context.cast::<GivenRanges>(), &mut *range) };
    let Some(left) = given.left.checked_sub(1) else {
        return 0;
    };
    given.left = left;
    (range.low, range.low_parts, range.low_inclusive) = (given.tuple, given.parts, left & 1);
    (range.high, range.tag) = (given.tuple, u64::from(left));
    range.high_parts = if left.is_multiple_of(3) { 0 } else { given.parts };
    1
}
