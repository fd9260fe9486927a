//! A queue: the submissions in its stream, and those that are held.

use std::borrow::Borrow;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::super::{Budget, lock, number};
use super::events::Events;
use super::timeline::{Found, Timeline};
use super::{Fence, Mark};
use crate::raw::cuda::{Calls, Stream};
#[cfg(feature = "vulkan")]
use crate::raw::cuda::{External, SignalParams, WaitParams, signal_params, wait_params};
use crate::side::{Outcome, Stop};

/// Units in flight of a wait for an external semaphore, or of its signal.
#[cfg(feature = "vulkan")]
const EXTERNAL: u64 = 2;

/// Continues each of these queues. A loop, so that a long chain of queues needs no deep stack.
pub(super) fn release(mut woken: Vec<Arc<Queue>>) -> Outcome<()> {
    let mut ended = Ok(());
    while let Some(queue) = woken.pop() {
        ended = ended.and(queue.go_on(&mut woken));
    }
    ended
}

/// A submission that waits for signals of other devices, and what it signals (E3).
#[cfg_attr(
    not(all(test, feature = "vulkan")),
    expect(dead_code, reason = "read after a loss, which only a test makes")
)]
struct Dependent {
    waits: SmallVec<[(Arc<Timeline>, u64); 8]>,
    signals: SmallVec<[(Arc<Timeline>, u64); 8]>,
}

/// Waits that a submission puts into the stream before its work.
#[derive(Default)]
struct Needs {
    marks: SmallVec<[Arc<Mark>; 4]>,
    #[cfg(feature = "vulkan")]
    shared: SmallVec<[(External, u64); 8]>,
    /// The timelines of `shared`.
    others: SmallVec<[(Arc<Timeline>, u64); 8]>,
}

impl Needs {
    /// True if one of them is a wait for something other than a stream of these queues.
    #[inline]
    fn waits_for_others(&self) -> bool {
        !self.others.is_empty()
    }
}

/// Whether a submission may go to the driver.
enum Standing<'t> {
    Ready,
    /// This value of this timeline is not pending.
    Lacks(&'t Timeline, u64),
    /// A value that it waits for never comes.
    Failed,
}

/// A signal with the value claimed before it.
type Claimed<T> = (T, u64, u64);

/// Puts work into the stream and returns the number of commands.
type Work = Box<dyn FnOnce(&Calls, Stream) -> Outcome<u64> + Send>;

/// A submission that waits until a signal is pending.
struct Held {
    waits: Vec<(Arc<Timeline>, u64)>,
    work: Work,
    signals: Vec<Claimed<Arc<Timeline>>>,
}

#[derive(Default)]
struct State {
    position: u64,
    held: VecDeque<Held>,
}

/// No thread drives the queue.
const FREE: u8 = 0;
/// A thread drives the queue. The stream and the [`Events`] are its alone, without a lock, while it
/// runs the application's work (Q6).
const DRIVEN: u8 = 1;
/// As [`DRIVEN`], and the thread must check the held submissions before it stops driving.
const NOTED: u8 = 2;

/// A stream that one thread uses at a time.
pub(crate) struct Queue {
    calls: Calls,
    stream: Stream,
    number: usize,
    budget: Arc<Budget>,
    /// The driver has refused a submission that it should have taken.
    failed: AtomicBool,
    /// Set with the state locked. Only the driving thread sets it back.
    driving: AtomicU8,
    state: Mutex<State>,
    /// The submissions that wait for other devices, by their positions.
    dependents: Mutex<VecDeque<(u64, Dependent)>>,
    /// Used by the driving thread.
    events: UnsafeCell<Events>,
}

// SAFETY: streams may be used from any thread. Only the driving thread uses the events. All other
// fields are `Send` and `Sync` by themselves.
unsafe impl Send for Queue {}
// SAFETY: as for sending.
unsafe impl Sync for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        self.events.get_mut().end(&self.budget);
    }
}

impl Queue {
    /// `stream` outlives the queue, and only this queue uses it. All queues of a device share
    /// `budget`.
    pub(crate) fn new(calls: &Calls, stream: Stream, budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            calls: *calls,
            stream,
            number: number(),
            budget: budget.clone(),
            failed: AtomicBool::new(false),
            driving: AtomicU8::new(FREE),
            state: Mutex::default(),
            dependents: Mutex::default(),
            events: UnsafeCell::default(),
        })
    }

    /// Submits waits, work and signals.
    ///
    /// The submission and all later ones are held while a signal that it needs is not pending.
    ///
    /// # Errors
    /// A value that cannot be claimed, or a queue that has failed; nothing has changed then. Errors
    /// of the driver, which fail the signals.
    pub(crate) fn submit(
        self: &Arc<Self>,
        waits: &[(&Arc<Timeline>, u64)],
        work: impl FnOnce(&Calls, Stream) -> Outcome<u64> + Send + 'static,
        signals: &[(&Arc<Timeline>, u64)],
    ) -> Outcome<()> {
        self.require_sound()?;
        let _current = self.calls.enter()?;
        let mut woken = Vec::new();
        let done = self.submit_waking(waits, work, signals, &mut woken);
        done.and(release(woken))
    }

    #[inline]
    fn submit_waking(
        self: &Arc<Self>,
        waits: &[(&Arc<Timeline>, u64)],
        work: impl FnOnce(&Calls, Stream) -> Outcome<u64> + Send + 'static,
        signals: &[(&Arc<Timeline>, u64)],
        woken: &mut Vec<Arc<Self>>,
    ) -> Outcome<()> {
        let mut state = lock(&self.state);
        let mut claimed = SmallVec::new();
        claim(signals, &mut claimed, woken)?;
        let mut needs = Needs::default();
        let idle = state.held.is_empty() && self.driving.load(Ordering::Acquire) == FREE;
        if idle && matches!(self.standing(waits, &claimed, &mut needs), Standing::Ready) {
            state.position += 1;
            let position = state.position;
            self.driving.store(DRIVEN, Ordering::Relaxed);
            drop(state);
            let gone = self.hand_over(position, needs, work, &claimed, woken);
            return gone.and(self.leave(woken));
        }
        let first = Self::hold(&mut state, waits, Box::new(work), &claimed);
        drop(state);
        if first || self.driving.load(Ordering::Acquire) != FREE {
            self.go_on(woken)
        } else {
            // An earlier held submission is registered for the value that it lacks.
            Ok(())
        }
    }

    #[inline]
    fn require_sound(&self) -> Outcome<()> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Stop::Failed("the queue has failed".into()));
        }
        Ok(())
    }

    /// Whether the submission may go. Adds to `needs` the waits of the stream.
    #[inline]
    fn standing<'t, T: Borrow<Arc<Timeline>>>(
        &self,
        waits: &'t [(T, u64)],
        signals: &'t [Claimed<T>],
        needs: &mut Needs,
    ) -> Standing<'t> {
        for (timeline, value) in waits {
            let standing = self.add(needs, timeline.borrow(), *value);
            if !matches!(standing, Standing::Ready) {
                return standing;
            }
        }
        for (timeline, _, before) in signals {
            let (timeline, before): (&Arc<_>, _) = (timeline.borrow(), *before);
            // Signals of one timeline complete in order: if this stream makes both, or if it waits
            // for the signal before.
            let in_order = timeline.pending.load(Ordering::Acquire) == before
                && timeline.by.load(Ordering::Relaxed) == self.number;
            let waits_for_it = |(other, value): &(T, u64)| {
                Arc::ptr_eq(other.borrow(), timeline) && *value >= before
            };
            if !in_order && !waits.iter().any(waits_for_it) {
                let standing = self.add(needs, timeline, before);
                if !matches!(standing, Standing::Ready) {
                    return standing;
                }
            }
        }
        Standing::Ready
    }

    /// Adds the waits of the stream.
    #[inline]
    fn add<'t>(&self, needs: &mut Needs, timeline: &'t Arc<Timeline>, value: u64) -> Standing<'t> {
        match timeline.find(value) {
            Found::Missing => return Standing::Lacks(timeline, value),
            Found::Failed => return Standing::Failed,
            Found::Event(mark, by) if by != self.number => needs.marks.push(mark),
            Found::Event(..) | Found::Reached => {}
            #[cfg(feature = "vulkan")]
            Found::Shared(semaphore) => {
                needs.shared.push((semaphore, value));
                needs.others.push((timeline.clone(), value));
            }
        }
        Standing::Ready
    }

    /// The events.
    ///
    /// # Safety
    /// This thread drives the queue, or the state is locked and no thread drives. There is no other
    /// reference to the events.
    #[expect(clippy::mut_from_ref, reason = "only the driving thread uses them")]
    unsafe fn events(&self) -> &mut Events {
        // SAFETY: the caller promises it.
        unsafe { &mut *self.events.get() }
    }

    /// Submits to the driver. This thread drives, and all signals that are waited for are pending.
    #[inline]
    fn hand_over<T: Borrow<Arc<Timeline>>>(
        &self,
        position: u64,
        mut needs: Needs,
        work: impl FnOnce(&Calls, Stream) -> Outcome<u64>,
        signals: &[Claimed<T>],
        woken: &mut Vec<Arc<Self>>,
    ) -> Outcome<()> {
        if needs.waits_for_others() {
            self.depend(position, std::mem::take(&mut needs.others), signals);
        }
        match self.record(position, &needs, work, signals) {
            Ok(Some(mark)) => {
                for (timeline, value, _) in signals {
                    let timeline: &Arc<_> = timeline.borrow();
                    if !timeline.has_failed() {
                        timeline.submitted(*value, mark.clone(), self.number, woken);
                    }
                }
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(stop) => {
                self.failed.store(true, Ordering::Release);
                fail(signals, woken);
                Err(stop)
            }
        }
    }

    /// Notes a submission that waits for other devices. Its signals fail if one of them is lost.
    ///
    /// After an error the queue has failed, and what is noted stays.
    #[inline]
    fn depend<T: Borrow<Arc<Timeline>>>(
        &self,
        position: u64,
        waits: SmallVec<[(Arc<Timeline>, u64); 8]>,
        signals: &[Claimed<T>],
    ) {
        let signals = signals.iter();
        let signals = signals.map(|(timeline, value, _)| (timeline.borrow().clone(), *value));
        let dependent = Dependent {
            waits,
            signals: signals.collect(),
        };
        // SAFETY: this thread drives.
        let finished = unsafe { self.events() }.finished;
        let mut dependents = lock(&self.dependents);
        while dependents.front().is_some_and(|(at, _)| *at <= finished) {
            dependents.pop_front();
        }
        dependents.push_back((position, dependent));
    }

    /// Fails `lost`, and what depends on it.
    ///
    /// The thread that watches the devices would call this for each queue.
    #[cfg(all(test, feature = "vulkan"))]
    pub(super) fn lose(&self, lost: &Arc<Timeline>, woken: &mut Vec<Arc<Self>>) {
        lost.fail(woken);
        let missing = |(timeline, value): &(Arc<Timeline>, u64)| {
            Arc::ptr_eq(timeline, lost) && !matches!(timeline.find(*value), Found::Reached)
        };
        for (_, dependent) in &*lock(&self.dependents) {
            if dependent.waits.iter().any(missing) {
                for (timeline, _) in &dependent.signals {
                    timeline.fail(woken);
                }
            }
        }
    }

    /// Makes the driver's calls. Returns the event that ends the submission, if it needs one.
    ///
    /// A submission that only waits for other streams needs none; a later query of the queue's
    /// position records it. A submission that waits for external signals needs one, because their
    /// signaller may first wait for this queue's position (Q7).
    #[inline]
    fn record<T: Borrow<Arc<Timeline>>>(
        &self,
        position: u64,
        needs: &Needs,
        work: impl FnOnce(&Calls, Stream) -> Outcome<u64>,
        signals: &[Claimed<T>],
    ) -> Outcome<Option<Arc<Mark>>> {
        for mark in &needs.marks {
            self.calls.wait_event(self.stream, mark.event)?;
        }
        #[cfg(feature = "vulkan")]
        if !needs.shared.is_empty() {
            self.wait_shared(&needs.shared)?;
        }
        #[cfg_attr(
            not(feature = "vulkan"),
            expect(unused_mut, reason = "no other commands")
        )]
        let mut units = work(&self.calls, self.stream)?;
        #[cfg(feature = "vulkan")]
        {
            let shared = |(timeline, ..): &&Claimed<T>| timeline.borrow().shared.is_some();
            let count = signals.iter().filter(shared).count();
            if count > 0 {
                self.signal_shared(signals)?;
            }
            units += EXTERNAL * (count + needs.shared.len()) as u64;
        }
        if signals.is_empty() && units == 0 {
            return Ok(None);
        }
        self.mark(position, false, units).map(Some)
    }

    /// Records the event that ends the submission at `position`, with this number of units.
    #[inline]
    fn mark(&self, position: u64, timed: bool, units: u64) -> Outcome<Arc<Mark>> {
        // SAFETY: this thread drives, or has locked the state while no thread drives.
        let events = unsafe { self.events() };
        let mark = events.take(&self.calls, timed, &self.budget)?;
        self.calls.record(mark.event, self.stream)?;
        events.push(position, mark.clone(), timed, units);
        if units > 0 && self.budget.take(units) {
            events.look(&self.calls, &self.budget)?;
        }
        Ok(mark)
    }

    /// Waits in one call for all shared timelines of a submission.
    ///
    /// A function of its own, because the parameters take much room on the stack.
    #[cfg(feature = "vulkan")]
    #[inline(never)]
    fn wait_shared(&self, waits: &[(External, u64)]) -> Outcome<()> {
        let mut semaphores = SmallVec::<[External; 8]>::new();
        let mut params = SmallVec::<[WaitParams; 8]>::new();
        for (semaphore, value) in waits {
            semaphores.push(*semaphore);
            params.push(wait_params(*value));
        }
        self.calls.wait_external(&semaphores, &params, self.stream)
    }

    /// Signals in one call all shared timelines of a submission.
    #[cfg(feature = "vulkan")]
    #[inline(never)]
    fn signal_shared<T: Borrow<Arc<Timeline>>>(&self, signals: &[Claimed<T>]) -> Outcome<()> {
        let mut semaphores = SmallVec::<[External; 8]>::new();
        let mut params = SmallVec::<[SignalParams; 8]>::new();
        for (timeline, value, _) in signals {
            if let Some(semaphore) = timeline.borrow().shared {
                semaphores.push(semaphore);
                params.push(signal_params(*value));
            }
        }
        self.calls
            .signal_external(&semaphores, &params, self.stream)
    }

    /// Adds to the held submissions. Returns true if it is the first of them.
    #[cold]
    fn hold(
        state: &mut State,
        waits: &[(&Arc<Timeline>, u64)],
        work: Work,
        claimed: &[Claimed<&Arc<Timeline>>],
    ) -> bool {
        let waits = waits.iter();
        let signals = claimed.iter();
        state.held.push_back(Held {
            waits: waits
                .map(|(timeline, value)| (Arc::clone(timeline), *value))
                .collect(),
            work,
            signals: signals
                .map(|(timeline, value, before)| (Arc::clone(timeline), *value, *before))
                .collect(),
        });
        state.held.len() == 1
    }

    /// Stops driving, after a check of the submissions that were held in the meantime.
    #[inline]
    fn leave(self: &Arc<Self>, woken: &mut Vec<Arc<Self>>) -> Outcome<()> {
        let left =
            self.driving
                .compare_exchange(DRIVEN, FREE, Ordering::Release, Ordering::Relaxed);
        match left {
            Ok(_) => Ok(()),
            Err(_) => self.drain(woken),
        }
    }

    /// Drives the queue after its first submission was held, or after a value that it lacked is
    /// pending.
    #[cold]
    fn go_on(self: &Arc<Self>, woken: &mut Vec<Arc<Self>>) -> Outcome<()> {
        let _current = self.calls.enter()?;
        {
            let state = lock(&self.state);
            // The lock keeps other threads from beginning to drive. A driving thread sees the note
            // before it stops.
            let noted =
                self.driving
                    .compare_exchange(DRIVEN, NOTED, Ordering::AcqRel, Ordering::Acquire);
            match noted {
                Ok(_) | Err(NOTED) => return Ok(()),
                Err(_) if state.held.is_empty() => return Ok(()),
                Err(_) => self.driving.store(DRIVEN, Ordering::Relaxed),
            }
        }
        self.drain(woken)
    }

    /// Submits what may go, registers for the value that the next submission lacks, and stops
    /// driving.
    #[cold]
    fn drain(self: &Arc<Self>, woken: &mut Vec<Arc<Self>>) -> Outcome<()> {
        let mut ended = Ok(());
        loop {
            let mut state = lock(&self.state);
            self.driving.store(DRIVEN, Ordering::Relaxed);
            let Some(held) = state.held.pop_front() else {
                self.driving.store(FREE, Ordering::Release);
                return ended;
            };
            let mut needs = Needs::default();
            match self.standing(&held.waits, &held.signals, &mut needs) {
                Standing::Lacks(timeline, value) => {
                    let registered = timeline.register(value, self);
                    state.held.push_front(held);
                    if registered {
                        self.driving.store(FREE, Ordering::Release);
                        return ended;
                    }
                }
                Standing::Ready => {
                    state.position += 1;
                    let position = state.position;
                    drop(state);
                    let gone = self.hand_over(position, needs, held.work, &held.signals, woken);
                    ended = ended.and(gone);
                }
                Standing::Failed => {
                    state.position += 1;
                    drop(state);
                    fail(&held.signals, woken);
                }
            }
        }
    }

    /// Records a timed fence. The state stays locked, because no application's work runs here.
    ///
    /// # Errors
    /// If a submission is held, because the record would have to be held as well. Errors of the
    /// driver.
    pub(crate) fn record_timed(&self, fence: &Fence) -> Outcome<()> {
        self.require_sound()?;
        let _current = self.calls.enter()?;
        let mut state = lock(&self.state);
        self.require_idle(&state)?;
        state.position += 1;
        let mark = self.mark(state.position, true, 1)?;
        drop(state);
        // The old event is dropped without the lock.
        let before = lock(&fence.0).replace(mark);
        drop(before);
        Ok(())
    }

    /// Returns an error if a submission is held or a thread drives.
    #[inline]
    fn require_idle(&self, state: &State) -> Outcome<()> {
        if state.held.is_empty() && self.driving.load(Ordering::Acquire) == FREE {
            return Ok(());
        }
        Err(Stop::Failed("something is held".into()))
    }

    /// Spins until all submissions so far have finished.
    ///
    /// # Errors
    /// If a submission is held. Errors of the driver, and the time-out.
    pub(crate) fn idle(&self, timeout: Duration) -> Outcome<()> {
        let _current = self.calls.enter()?;
        let start = Instant::now();
        let (position, mark) = {
            let mut state = lock(&self.state);
            self.require_idle(&state)?;
            state.position += 1;
            (state.position, self.mark(state.position, false, 0)?)
        };
        while !self.calls.ask(mark.event)? {
            if start.elapsed() > timeout {
                return Err(Stop::Failed("timed out".into()));
            }
            std::hint::spin_loop();
        }
        drop(mark);
        let state = lock(&self.state);
        // A driving thread finds out by itself.
        if self.driving.load(Ordering::Acquire) == FREE {
            // SAFETY: no thread drives, and the state is locked.
            unsafe { self.events() }.finished(position, &self.budget);
        }
        drop(state);
        Ok(())
    }

    /// Number of events without timing that are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        let _state = lock(&self.state);
        // SAFETY: tests call this while no thread submits.
        unsafe { self.events() }.free()
    }
}

/// Claims the values of all these signals, or none.
#[inline]
fn claim<'t>(
    signals: &[(&'t Arc<Timeline>, u64)],
    claimed: &mut SmallVec<[Claimed<&'t Arc<Timeline>>; 8]>,
    woken: &mut Vec<Arc<Queue>>,
) -> Outcome<()> {
    for (timeline, value) in signals {
        match timeline.claims.claim(*value) {
            Ok(before) => claimed.push((*timeline, *value, before)),
            Err(stop) => {
                for (timeline, value, before) in claimed {
                    if !timeline.claims.withdraw(*before, *value) {
                        // Another thread has claimed a higher value and would wait for this one
                        // forever.
                        timeline.fail(woken);
                    }
                }
                return Err(stop);
            }
        }
    }
    Ok(())
}

/// Fails all these timelines: their signals never come.
#[cold]
fn fail<T: Borrow<Arc<Timeline>>>(signals: &[Claimed<T>], woken: &mut Vec<Arc<Queue>>) {
    for (timeline, ..) in signals {
        timeline.borrow().fail(woken);
    }
}
