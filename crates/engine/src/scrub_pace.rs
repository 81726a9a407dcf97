//! Pace of a scrub: when the next stretch of a pass is read, so that all of it is read evenly over the time there is.
//!
//! Why it exists: read at once, the files of a database take the medium for hours; read evenly over a week they are felt by nobody.
//! Rules: SC2 what stands at a part of all bytes is read at that part of the time. A pass that is late is never read more than twice as
//! fast as one that is not, so that a machine that slept does not wake to a burst.
//! Latches and I/O: none; numbers in, a number out.

/// Milliseconds of an hour.
const HOUR_MILLIS: u64 = 3_600_000;
/// How many times faster than on time a pass is read at most.
const HASTE: u64 = 2;

/// How far a pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// When it began, in milliseconds.
    pub began: u64,
    /// Milliseconds it is to take.
    pub period: u64,
    /// Bytes of all files when it began.
    pub total: u64,
    /// Those of the files, and parts of files, that it has passed.
    pub done: u64,
}

/// Milliseconds of so many hours.
pub(crate) fn period_of(hours: u64) -> u64 {
    hours.saturating_mul(HOUR_MILLIS)
}

impl Course {
    /// Milliseconds from now, when so many bytes were read, until the next ones are.
    pub(crate) fn pause(&self, bytes: u64, now: u64) -> u64 {
        let due = self.began + share(self.done, self.period, self.total);
        let even = due.saturating_sub(now);
        let least = share(bytes, self.period, self.total.saturating_mul(HASTE));
        even.max(least)
    }

    /// Percent of the bytes.
    pub(crate) fn percent(&self) -> u64 {
        match self.total {
            0 => 0,
            total => (u128::from(self.done.min(total)) * 100 / u128::from(total)) as u64,
        }
    }
}

/// So much of the time as `part` is of `whole`, all of it at most; nothing if there is no whole.
fn share(part: u64, millis: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    let share = u128::from(part) * u128::from(millis) / u128::from(whole);
    u64::try_from(share).unwrap_or(u64::MAX).min(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Reads a pass in stretches of 1 MiB, with a clock that stands still for so long at one time: when each began.
    fn played(total: u64, hours: u64, sleeps: Option<(u64, u64)>) -> Vec<u64> {
        let period = period_of(hours);
        let (mut now, mut done, mut at) = (1_000, 0, Vec::new());
        while done < total {
            at.push(now);
            let bytes = MIB.min(total - done);
            done += bytes;
            let course = Course {
                began: 1_000,
                period,
                total,
                done,
            };
            now += course.pause(bytes, now);
            if let Some((from, millis)) = sleeps
                && at.len() as u64 == from
            {
                now += millis;
            }
        }
        at
    }

    #[test]
    fn a_pass_is_read_evenly_and_ends_in_time() {
        for (total, hours) in [(1000 * MIB, 168), (50_000 * MIB, 1), (3 * MIB + 5, 24)] {
            let at = played(total, hours, None);
            let (stretches, period) = (at.len() as u64, period_of(hours));
            let even = period / total.div_ceil(MIB);
            for pair in at.windows(2) {
                let pause = pair[1] - pair[0];
                assert!(
                    pause + 1 >= even / 2 && pause <= 2 * even + 1,
                    "SC2: {pause} of {even}"
                );
            }
            let last = at.last().expect("there were some") - 1_000;
            assert!(last <= period, "SC2: {last} of {period}, {stretches} stretches");
            assert!(
                last >= period / 2,
                "SC2: {last} of {period}, {stretches} stretches"
            );
        }
    }

    #[test]
    fn a_machine_that_slept_does_not_wake_to_a_burst() {
        let at = played(1000 * MIB, 10, Some((500, period_of(40))));
        let even = period_of(10) / 1000;
        let fastest = at.windows(2).map(|pair| pair[1] - pair[0]).min();
        assert!(fastest >= Some(even / HASTE - 1), "SC2: {fastest:?} of {even}");
    }

    #[test]
    fn percents_come_to_their_end_and_nothing_divides_by_nothing() {
        let course = |total, done| Course {
            began: 0,
            period: 1000,
            total,
            done,
        };
        assert_eq!(course(0, 0).percent(), 0);
        assert_eq!(course(200, 50).percent(), 25);
        assert_eq!(course(200, 300).percent(), 100);
        assert_eq!(course(u64::MAX, u64::MAX).percent(), 100);
        assert_eq!(course(0, 0).pause(100, 10), 0);
        assert_eq!(course(100, 100).pause(10, 10), 990, "the end of the time");
        assert_eq!(course(100, 100).pause(10, 1000), 50, "late, and no burst");
        assert_eq!(course(100, 10).pause(u64::MAX, 10), 1000, "no longer than a pass");
    }
}
