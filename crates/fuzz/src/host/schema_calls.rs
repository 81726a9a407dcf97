//! Schema calls: tables made, opened, altered, renamed and dropped.
//!
//! Rules: H1: the table has let go of its session, and nobody has changes, when its definition is replaced.

use super::*;

/// Where a table is renamed to, and back from.
const ASIDE: &[u8] = b"./f/aside";

impl Host {
    pub(super) fn schema_call(&mut self, table: usize, session: usize, feed: &mut Feed<'_>) {
        match feed.byte() % 8 {
            0 | 1 => self.create(table, feed),
            2 => self.reopen(table),
            3 => self.alter(table, session, feed),
            4 => self.refuse_names(feed),
            _ => self.remove(table, session, feed),
        }
    }

    /// Makes a table and opens it.
    pub(super) fn create(&mut self, number: usize, feed: &mut Feed<'_>) {
        let made = Made::new(TABLES[number], feed);
        let (db, session) = (self.db, self.sessions[0]);
        // SAFETY: H1; the definition and all that it points to outlive the call.
        let created = made.with_def(TABLES[0], |def| unsafe { pbxt_table_create(db, session, def) });
        if answered(created) == Status::Ok {
            self.open_table(number, made);
        }
    }

    fn open_table(&mut self, number: usize, made: Made) {
        let (mut table, mut cursor) = (null_mut(), null_mut());
        let (db, place) = (self.db, &raw mut table);
        // SAFETY: H1; the definition outlives the call, and there is a place for the handle.
        let opened = answered(made.with_def(TABLES[0], |def| unsafe { pbxt_table_open(db, def, place) }));
        if opened != Status::Ok {
            return;
        }
        // SAFETY: H1; there is a place for the handle.
        answered(unsafe { pbxt_cursor_open(table, &raw mut cursor) });
        // Of a definition that is wild nobody makes records.
        let bytes = if made.is_wild { 0 } else { made.record_bytes() };
        self.tables[number] = Some(Opened {
            made,
            table,
            cursor,
            bound: None,
            record: vec![0; bytes],
            row: None,
            index: 0,
        });
    }

    fn reopen(&mut self, number: usize) {
        let Some(opened) = self.tables[number].take() else {
            return;
        };
        // SAFETY: H1; cursor and table are not used again.
        unsafe {
            pbxt_cursor_close(opened.cursor);
            pbxt_table_close(opened.table);
        }
        self.open_table(number, opened.made);
    }

    /// Another definition in place of that of a table that is open, with indexes that are built.
    fn alter(&mut self, number: usize, session: usize, feed: &mut Feed<'_>) {
        let Some(opened) = &self.tables[number] else {
            return;
        };
        let (columns, indexes) = (opened.made.column_count(), opened.made.index_count());
        let made = Made::new(TABLES[number], feed);
        let origins = |count: usize, there: usize, feed: &mut Feed<'_>| -> Vec<i32> {
            let origin = |at| {
                // One more than a number, so that 0 is none.
                let number = if feed.once_in(4) {
                    feed.below(there + 2)
                } else {
                    at
                };
                i32::try_from(number).unwrap_or(0) - 1
            };
            (1..=count).map(origin).collect()
        };
        let columns = origins(made.column_count(), columns, feed);
        let indexes = origins(made.index_count(), indexes, feed);
        self.end_all();
        let change = PbxtAlteration {
            columns: columns.as_ptr(),
            indexes: indexes.as_ptr(),
        };
        let done = self.alter_to(&made, session, &raw const change, feed.once_in(4));
        self.close_table(number);
        if done == Status::Ok {
            self.open_table(number, made);
        }
    }

    fn alter_to(
        &self,
        made: &Made,
        session: usize,
        change: *const PbxtAlteration,
        only_asks: bool,
    ) -> Status {
        let (db, session) = (self.db, self.sessions[session]);
        let (mut adds, mut build) = (0, null_mut());
        made.with_def(TABLES[0], |def| {
            // SAFETY: H1; definition, change and names outlive the calls, and there are places for what is answered; the build is
            // handed over or closed, once.
            unsafe {
                let checked = answered(pbxt_table_check_alter(db, def, change, &raw mut adds));
                if checked != Status::Ok || only_asks {
                    return Status::NeedsCopy;
                }
                if adds != 0 {
                    let opened = answered(pbxt_index_build_open(db, session, def, change, &raw mut build));
                    if opened != Status::Ok {
                        return opened;
                    }
                    let built = answered(pbxt_index_build_run(build, None, null_mut()));
                    if built != Status::Ok {
                        pbxt_index_build_close(build);
                        return built;
                    }
                }
                let builds = [build];
                let name = made::c_text(&made.name);
                let count = u32::from(adds != 0);
                answered(pbxt_tables_alter(
                    db,
                    session,
                    def,
                    change,
                    &raw const name,
                    1,
                    builds.as_ptr(),
                    count,
                ))
            }
        })
    }

    /// Names that are none, and tables that are not there.
    fn refuse_names(&self, feed: &mut Feed<'_>) {
        let name = feed.bytes(20);
        if TABLES.contains(&name) || name == ASIDE {
            return;
        }
        let (bytes, len) = (name.as_ptr().cast(), name.len());
        let (db, mut version, mut room) = (self.db, [0; 8], feed.below(9));
        // SAFETY: H1; names outlive the call, and there is room for the version.
        unsafe {
            pbxt_table_exists(db, bytes, len);
            let dropped = answered(pbxt_table_drop(db, null_mut(), bytes, len, feed.number() as u32));
            assert_ne!(
                dropped,
                Status::Ok,
                "FZ5: a table that is not there is not dropped"
            );
            answered(pbxt_table_rename(
                db,
                null_mut(),
                bytes,
                len,
                bytes,
                len,
                feed.number() as u32,
            ));
            answered(pbxt_table_host_version(
                db,
                bytes,
                len,
                version.as_mut_ptr(),
                &raw mut room,
            ));
        }
    }

    /// Truncates, renames there and back, or drops.
    fn remove(&mut self, number: usize, session: usize, feed: &mut Feed<'_>) {
        let name = TABLES[number];
        let (bytes, len) = (name.as_ptr().cast(), name.len());
        let (aside, aside_len) = (ASIDE.as_ptr().cast(), ASIDE.len());
        let (db, flags) = (self.db, u32::from(feed.byte() % 16));
        if feed.once_in(2) {
            self.end_all();
        }
        self.unbind(|table, _| table == number);
        let session = self.sessions[session];
        let kind = feed.byte() % 3;
        if kind == 2 {
            self.close_table(number);
        }
        // SAFETY: H1; names outlive the calls.
        unsafe {
            match kind {
                0 => {
                    answered(pbxt_table_truncate(db, session, bytes, len));
                }
                1 => {
                    answered(pbxt_table_rename(
                        db, session, bytes, len, aside, aside_len, flags,
                    ));
                    answered(pbxt_table_rename(
                        db, session, aside, aside_len, bytes, len, flags,
                    ));
                }
                _ => {
                    answered(pbxt_table_drop(db, session, bytes, len, flags & 1));
                }
            }
        }
    }
}
