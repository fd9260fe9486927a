//! The hold: submissions that cannot go to the driver yet, and their release.

use std::sync::Arc;

use super::driving::Drive;
use super::entry::{Entry, Job};
use super::graph_entries::GraphEntries;
use super::held_list::SkippedWork;
use super::send::Handed;
use super::state::State;
use super::submission_queue::SubmissionQueue;
use super::verdict::{Missing, Verdict};
use super::waits_and_claims::{fail_all, parts};
use super::work::LargeWork;
use crate::base::error::Failure;
use crate::base::exiting::{DriverCalls, is_exiting};
use crate::base::run::{ForeignWorkScope, Wake, run_contained};
use crate::base::steps;
use crate::base::sync::{MutexGuard, this_thread};
use crate::driver::enqueue::Enqueue;
use crate::driver::keep::Keep;
use crate::held::{Holder, Lists, OwnedClaim, Parts};
use crate::timeline::point::KeptPoint;
use crate::timeline::state::Registered;

impl<E: Enqueue> SubmissionQueue<E> {
    /// Puts a recorded submission back to the front until the driver's queue is unlocked.
    pub(super) fn put_back(
        &self,
        number: u64,
        keep: Keep,
        lists: Option<Box<Lists>>,
        entries: GraphEntries<'_>,
    ) {
        let job = Job::Recorded(Box::new(keep));
        let entry = Entry {
            number,
            lists,
            job,
            entries,
        };
        let mut state = self.lock();
        state.held.push_front(entry);
        let is_unguarded = self.note_held();
        drop(state);
        if is_unguarded {
            self.guard_held();
        }
    }

    /// Releases held submissions until one cannot go.
    pub(super) fn drive(self: &Arc<Self>, drive: Drive<E>) {
        self.drive_with(drive, self.lock());
    }

    /// Same as [`SubmissionQueue::drive`], for a caller that holds the queue's lock.
    fn drive_with<'l>(self: &'l Arc<Self>, mut drive: Drive<E>, state: MutexGuard<'l, State<E>>) {
        let calls = DriverCalls::begin();
        let mut locked = Some(state);
        // The lists of the last released submission, to be reused.
        let mut spare = None;
        loop {
            let mut state = locked.take().unwrap_or_else(|| self.lock());
            if calls.is_none() || is_exiting() {
                state.driving.stop(drive);
                return;
            }
            state.driving.begin_check();
            if let Some(spare) = spare.take() {
                state.held.recycle(spare);
            }
            let Some(first) = state.held.first() else {
                self.held_guard().note_empty();
                state.driving.stop(drive);
                return;
            };
            if let Some(entry) = self.pop_ready(&mut state, first) {
                drop(state);
                let is_busy = match self.release(&mut drive, entry, &mut spare) {
                    Ok(is_busy) => is_busy,
                    Err(entry) => return self.put_off(drive, entry),
                };
                match self.try_leave_if(is_busy, drive) {
                    Ok(()) => return,
                    Err(again) => drive = again,
                }
                continue;
            }
            let verdict = if state.held.is_front_recorded() {
                Verdict::Ready
            } else {
                let (waits, claims) = state.held.front_lists(self.slot());
                self.judge(first, &self.all_awaited(waits), &self.all_taken(claims))
            };
            if let Verdict::Blocked(missing) = verdict {
                drop(state);
                match self.park(missing, drive) {
                    Ok(()) => return,
                    Err(again) => drive = again,
                }
                continue;
            }
            if matches!(verdict, Verdict::Full) {
                drop(state);
                // This thread still drives, see `park`.
                let this: Arc<dyn Wake> = self.clone();
                let budget = self.budget();
                let waits = budget.is_some_and(|budget| budget.wait_for(&this));
                match self.try_leave_if(waits, drive) {
                    Ok(()) => return,
                    Err(again) => drive = again,
                }
                continue;
            }
            let Some(entry) = state.held.pop_front(self.slot()) else {
                continue;
            };
            drop(state);
            let is_busy = match verdict {
                Verdict::Skip(cause) => {
                    self.skip(entry, &cause);
                    false
                }
                _ => match self.release(&mut drive, entry, &mut spare) {
                    Ok(is_busy) => is_busy,
                    Err(entry) => return self.put_off(drive, entry),
                },
            };
            match self.try_leave_if(is_busy, drive) {
                Ok(()) => return,
                Err(again) => drive = again,
            }
        }
    }

    /// Judges the first submission again, on this thread or on the one that drives.
    fn check<'l>(self: &'l Arc<Self>, mut state: MutexGuard<'l, State<E>>) {
        if state.driving.request_check() {
            return;
        }
        let Some(drive) = state.driving.take(this_thread()) else {
            return;
        };
        state.missing = 0;
        // Dropped at the end, without the lock. Until then these registrations only ask this thread
        // to check again.
        let _registered = std::mem::take(&mut state.registered);
        self.drive_with(drive, state);
    }

    /// Removes the first submission from the list and from the graph if it is known to be able to
    /// go.
    ///
    /// Its waits and claims are moved out of the graph and not copied. Until the driver has the
    /// submission, it has claims but no graph entry, like a submission that was never held.
    fn pop_ready<'l>(&'l self, state: &mut State<E>, first: u64) -> Option<Entry<'l, E>> {
        if !state.held.is_front_untouched() {
            return None;
        }
        let mut lists = state.held.empty_lists();
        let is_ready = |waits: Parts<'_, KeptPoint>, claims: Parts<'_, OwnedClaim>| {
            self.is_plainly_ready(first, waits, claims)
        };
        if !self.slot().leave_if(first, &mut lists, is_ready) {
            state.held.recycle(lists);
            return None;
        }
        let mut entry = state.held.pop_front(self.slot())?;
        // `leave_if` has removed the entry already.
        if let Some(entry) = entry.entries.entry.take() {
            entry.stay();
        }
        entry.lists = Some(lists);
        Some(entry)
    }

    /// Registers for what the first submission lacks, and stops driving.
    ///
    /// This thread drives until it has registered. Until then other threads only ask it to check
    /// again.
    ///
    /// # Errors
    /// The right to drive, if the submission must be judged again.
    pub(super) fn park(
        self: &Arc<Self>,
        missing: Missing,
        drive: Drive<E>,
    ) -> Result<(), Drive<E>> {
        let Some(registered) = self.register(missing) else {
            return Err(drive);
        };
        // After an error the registrations are dropped without the lock.
        let mut state = self.lock();
        state.driving.try_stop(drive)?;
        state.missing = registered.len();
        state.registered = registered;
        Ok(())
    }

    /// Puts a submission back to the front while the driver accepts none.
    ///
    /// The device's watching thread retries.
    pub(super) fn put_off<'l>(self: &'l Arc<Self>, drive: Drive<E>, mut entry: Entry<'l, E>) {
        if entry.entries.entry.is_none() {
            entry.entries.entry = self.enter_again(entry.number, &entry.lists);
        }
        let is_unguarded = {
            let mut state = self.lock();
            state.held.push_front(entry);
            state.driving.stop(drive);
            self.note_held()
        };
        if is_unguarded {
            self.guard_held();
        }
        if let Some(device) = self.own_shared().watch() {
            device.watcher().retry(&**device, self.clone());
        }
    }

    /// Fails the signals of a submission, and leaves its number at the front.
    ///
    /// So a skipped submission counts for [`Enqueue::MAX_IN_FLIGHT`].
    pub(super) fn skip(&self, entry: Entry<'_, E>, cause: &Failure) {
        let Entry {
            number,
            lists,
            job,
            mut entries,
        } = entry;
        // If a pass fails, the whole queue has failed, and its position does not advance any more.
        let is_work = !matches!(job, Job::Pass(_));
        if is_work {
            self.skipped().add(number, cause);
        }
        fail_all(parts(&lists).1, cause);
        if is_work {
            entries.keep_only_entry();
            let pass = Entry::pass(number, None, entries);
            self.lock().held.push_front(pass);
        }
        let out_of_line = self.take_out_of_line(&job);
        run_contained(|| drop(out_of_line));
        run_contained(|| drop(job));
    }

    /// The work of a submission, if it is stored out of line.
    fn take_out_of_line(&self, job: &Job<E>) -> Option<LargeWork<E>> {
        match job {
            Job::OutOfLine(at) => self.lock().held.take_out_of_line(*at),
            _ => None,
        }
    }

    /// Registers the queue for all of `missing`, or for none if one of them is settled.
    fn register(self: &Arc<Self>, missing: Missing) -> Option<Registered> {
        let mut registered = Registered::default();
        for (point, stage) in missing {
            if !registered.add(point.of?, point.value, stage, self.clone()) {
                return None;
            }
        }
        Some(registered)
    }

    /// Sends a held submission.
    ///
    /// True if the driver's queue is locked, so that the submission stays at the front.
    ///
    /// Otherwise its cleared lists go to `spare`.
    ///
    /// # Errors
    /// The submission, if it must be recorded and the driver is not ready.
    pub(super) fn release<'l>(
        self: &'l Arc<Self>,
        drive: &mut Drive<E>,
        entry: Entry<'l, E>,
        spare: &mut Option<Box<Lists>>,
    ) -> Result<bool, Entry<'l, E>> {
        // The releasing thread may be in a call that has nothing to do with this submission.
        let _foreign_work = ForeignWorkScope::new();
        let Entry {
            number,
            lists,
            job,
            mut entries,
        } = entry;
        let (waits, claims) = parts(&lists);
        let taken = self.all_taken(claims);
        let waits = self.all_awaited(waits);
        let mut keep = Keep::default();
        let sent = match job {
            Job::Recorded(kept) => {
                keep = *kept;
                let handed = self.hand_over_recorded(drive.backend());
                self.complete(number, handed, &taken, &mut entries, &mut keep)
            }
            Job::Pass(keep) => {
                let Some(ready) = self.driver().ready() else {
                    drop((taken, waits));
                    return Err(Entry {
                        number,
                        lists,
                        job: Job::Pass(keep),
                        entries,
                    });
                };
                self.pass(
                    drive,
                    ready,
                    number,
                    keep.map_or_else(Keep::default, |keep| *keep),
                    entries,
                );
                return Ok(self.is_front_recorded());
            }
            Job::Tiny(_) | Job::OutOfLine(_) => {
                let Some(ready) = self.driver().ready() else {
                    drop((taken, waits));
                    return Err(Entry {
                        number,
                        lists,
                        job,
                        entries,
                    });
                };
                let mut work = match job {
                    Job::Tiny(tiny) => Some(tiny.resize()),
                    job => self.take_out_of_line(&job),
                };
                let work = move |recorder: &mut E::Recorder<'_>| {
                    work.as_mut().map_or(Ok(()), |work| work.record(recorder))
                };
                self.send(
                    drive,
                    ready,
                    number,
                    &waits,
                    work,
                    &taken,
                    &mut entries,
                    &mut keep,
                )
            }
        };
        match sent {
            Handed::Taken => {}
            Handed::Busy => {
                drop((taken, waits));
                if entries.entry.is_none() {
                    entries.entry = self.enter_again(number, &lists);
                }
                self.put_back(number, keep, lists, entries);
                return Ok(true);
            }
            Handed::Refused(error) => {
                // No caller is left to take the error, so the waiters get it.
                let cause = error.into_cause();
                self.skipped().add(number, &cause);
                fail_all(claims, &cause);
                self.pass_over(drive, number, keep, GraphEntries::default());
                return Ok(self.is_front_recorded());
            }
        }
        drop((taken, waits));
        // The timelines are dropped without the lock.
        *spare = lists.map(|mut lists| {
            lists.clear();
            lists
        });
        Ok(false)
    }

    /// True if the first held submission is recorded, and the driver's queue was locked.
    fn is_front_recorded(&self) -> bool {
        self.lock().held.is_front_recorded()
    }

    /// Stops driving if `leaves` is true.
    ///
    /// # Errors
    /// The right to drive, if the thread goes on.
    fn try_leave_if(&self, leaves: bool, drive: Drive<E>) -> Result<(), Drive<E>> {
        match leaves {
            true => self.try_leave(drive),
            false => Err(drive),
        }
    }
}

impl<E: Enqueue> Holder for SubmissionQueue<E> {
    /// Fails the signals of a held submission as soon as it can never run (E2).
    ///
    /// That may be before the submissions in front of it are released.
    ///
    /// The first submission is left to the driving thread.
    fn reconsider(self: Arc<Self>, number: u64) {
        // Dropped without the lock.
        let mut lists = Lists::default();
        let mut taken = Lists::default();
        let (cause, skipped);
        {
            let mut state = self.lock();
            if state.held.first() == Some(number) {
                if state.held.has_work(number) {
                    self.check(state);
                }
                return;
            }
            if !state.held.contains(number) {
                return;
            }
            self.slot().copy_lists(number, &mut lists);
            steps::count(lists.waits.len() + lists.claims.len());
            let waits = lists.waits.iter().find_map(|wait| {
                let of = wait.of.as_ref()?;
                of.unreachable_cause(wait.value)
            });
            // A signal waits for its predecessor, unless the host makes it.
            let order = || {
                let mut claims = lists.claims.iter();
                claims.find_map(|(of, claim)| {
                    let of = of.as_ref()?;
                    of.port_on(self.device())?;
                    of.unreachable_cause(claim.above)
                })
            };
            let lost = || self.loss().cloned();
            let Some(found) = waits.or_else(order).or_else(lost) else {
                return;
            };
            cause = found;
            skipped = state.held.take_work(number);
            self.slot().reduce(number, &mut taken);
        }
        let SkippedWork {
            inline,
            out_of_line,
            relayed,
        } = skipped;
        drop(relayed);
        if inline.is_some() {
            self.skipped().add(number, &cause);
        }
        fail_all(&lists.claims, &cause);
        run_contained(|| drop(out_of_line));
        run_contained(|| drop(inline));
    }
}

impl<E: Enqueue> Wake for SubmissionQueue<E> {
    /// Judges the first submission again, unless it still lacks something.
    ///
    /// A submission with many waits is judged once and not once for each wait. If one of them ends
    /// before its value has come, the graph calls [`Holder::reconsider`] as well.
    fn wake(self: Arc<Self>) {
        let mut state = self.lock();
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 {
            self.check(state);
        }
    }
}
