//! A queue: what is with the stream, and what is held until it may go there.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::super::{Room, lock, number};
use super::events::Events;
use super::timeline::{Found, Timeline};
use super::{Fence, Mark};
use crate::lab::{Outcome, Stop};
use crate::raw::cuda::{Calls, Stream};
#[cfg(feature = "vulkan")]
use crate::raw::cuda::{External, SignalParams, WaitParams, signal_params, wait_params};

/// What the wait for an external semaphore, or its signal, takes in commands.
#[cfg(feature = "vulkan")]
const EXTERNAL: u64 = 2;

/// Has each of these queues go on. What that makes pending wakes others: in a loop, however long
/// the chain is.
pub(super) fn release(mut woken: Vec<Arc<Queue>>) -> Outcome<()> {
    let mut ended = Ok(());
    while let Some(queue) = woken.pop() {
        ended = ended.and(queue.go_on(&mut woken));
    }
    ended
}

/// What a submission puts into the stream before its work.
#[derive(Default)]
struct Needs {
    marks: SmallVec<[Arc<Mark>; 4]>,
    #[cfg(feature = "vulkan")]
    shared: SmallVec<[(External, u64); 8]>,
}

impl Needs {
    /// True if one of them is not another stream's.
    #[inline]
    fn waits_for_others(&self) -> bool {
        #[cfg(feature = "vulkan")]
        let any = !self.shared.is_empty();
        #[cfg(not(feature = "vulkan"))]
        let any = false;
        any
    }
}

/// Whether a submission may go.
enum Standing<'t> {
    Ready,
    /// This value of this timeline is not pending.
    Lacks(&'t Timeline, u64),
    /// What it waits for never comes.
    Failed,
}

/// A signal, and what was claimed before it.
type Claimed<T> = (T, u64, u64);

/// Puts work into the stream, and tells how many commands that are.
type Work = Box<dyn FnOnce(&Calls, Stream) -> Outcome<u64> + Send>;

/// A submission that waits for a signal to be pending.
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

/// Nobody drives the queue.
const FREE: u8 = 0;
/// A thread does: the stream and the [`Events`] are its alone, without any lock, as it runs the
/// application's work (Q6).
const DRIVEN: u8 = 1;
/// The same, and it has to look at what is held before it leaves.
const NOTED: u8 = 2;

/// A stream, used by one thread at a time.
pub(crate) struct Queue {
    calls: Calls,
    stream: Stream,
    number: usize,
    room: Arc<Room>,
    /// The driver has refused what it should have taken.
    failed: AtomicBool,
    /// Left by who drives, taken with the state locked.
    driving: AtomicU8,
    state: Mutex<State>,
    /// Of who drives.
    events: UnsafeCell<Events>,
}

// SAFETY: streams may be used from any thread; the events are used by one thread at a time;
// everything else is of any thread by itself.
unsafe impl Send for Queue {}
// SAFETY: as for sending.
unsafe impl Sync for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        self.events.get_mut().end(&self.room);
    }
}

impl Queue {
    /// The stream outlives it, and is nobody else's. All queues of a device share `room`.
    pub(crate) fn new(calls: &Calls, stream: Stream, room: &Arc<Room>) -> Arc<Self> {
        Arc::new(Self {
            calls: *calls,
            stream,
            number: number(),
            room: room.clone(),
            failed: AtomicBool::new(false),
            driving: AtomicU8::new(FREE),
            state: Mutex::default(),
            events: UnsafeCell::default(),
        })
    }

    /// Waits, work and signals. Held, with everything behind it, while a signal that it needs is
    /// not pending.
    ///
    /// # Errors
    /// A value that cannot be claimed, or a queue that has failed; nothing has changed then. What
    /// the driver says; the signals fail then.
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
            let gone = self.hand_over(position, &needs, work, &claimed, woken);
            return gone.and(self.leave(woken));
        }
        let first = Self::hold(&mut state, waits, Box::new(work), &claimed);
        drop(state);
        if first || self.driving.load(Ordering::Acquire) != FREE {
            self.go_on(woken)
        } else {
            // What stands before it is registered for what it lacks.
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

    /// Whether this may go, with what the stream waits for.
    #[inline]
    fn standing<'t, T: AsRef<Timeline>>(
        &self,
        waits: &'t [(T, u64)],
        signals: &'t [Claimed<T>],
        needs: &mut Needs,
    ) -> Standing<'t> {
        for (timeline, value) in waits {
            let standing = self.add(needs, timeline.as_ref(), *value);
            if !matches!(standing, Standing::Ready) {
                return standing;
            }
        }
        for (timeline, _, before) in signals {
            let (timeline, before) = (timeline.as_ref(), *before);
            // Signals of one timeline complete in order: by itself, if this stream makes both, or
            // if it waits for the one before.
            let in_order = timeline.pending.load(Ordering::Acquire) == before
                && timeline.by.load(Ordering::Relaxed) == self.number;
            let waits_for_it = |(other, value): &(T, u64)| {
                std::ptr::eq(other.as_ref(), timeline) && *value >= before
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

    /// Adds what makes the stream wait.
    #[inline]
    fn add<'t>(&self, needs: &mut Needs, timeline: &'t Timeline, value: u64) -> Standing<'t> {
        match timeline.find(value) {
            Found::Missing => return Standing::Lacks(timeline, value),
            Found::Failed => return Standing::Failed,
            Found::Event(mark, by) if by != self.number => needs.marks.push(mark),
            Found::Event(..) | Found::Reached => {}
            #[cfg(feature = "vulkan")]
            Found::Shared(semaphore) => {
                needs.shared.push((semaphore, value));
            }
        }
        Standing::Ready
    }

    /// The events.
    ///
    /// # Safety
    /// This thread drives the queue, or nobody does and the state is locked; and it has no other
    /// reference to them.
    #[expect(clippy::mut_from_ref, reason = "who drives is alone")]
    unsafe fn events(&self) -> &mut Events {
        // SAFETY: as promised.
        unsafe { &mut *self.events.get() }
    }

    /// Everything that this needs is pending, and this thread drives: it goes to the driver.
    #[inline]
    fn hand_over<T: AsRef<Timeline>>(
        &self,
        position: u64,
        needs: &Needs,
        work: impl FnOnce(&Calls, Stream) -> Outcome<u64>,
        signals: &[Claimed<T>],
        woken: &mut Vec<Arc<Self>>,
    ) -> Outcome<()> {
        match self.record(position, needs, work, signals) {
            Ok(Some(mark)) => {
                for (timeline, value, _) in signals {
                    let timeline = timeline.as_ref();
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

    /// The driver's calls; the event behind them, if there is one. A submission that only waits for
    /// other streams needs none: whoever asks where the queue is records it then. One that waits
    /// for what others signal needs it: they may first wait for the queue to be there (Q7).
    #[inline]
    fn record<T: AsRef<Timeline>>(
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
            let shared = |(timeline, ..): &&Claimed<T>| timeline.as_ref().shared.is_some();
            let count = signals.iter().filter(shared).count();
            if count > 0 {
                self.signal_shared(signals)?;
            }
            units += EXTERNAL * (count + needs.shared.len()) as u64;
        }
        if signals.is_empty() && !needs.waits_for_others() && units == 0 {
            return Ok(None);
        }
        self.mark(position, false, units).map(Some)
    }

    /// Records the event that ends the submission at `position`, which has put so many commands
    /// into the stream.
    #[inline]
    fn mark(&self, position: u64, timed: bool, units: u64) -> Outcome<Arc<Mark>> {
        // SAFETY: this thread drives, or has locked the state while nobody does.
        let events = unsafe { self.events() };
        let mark = events.take(&self.calls, timed, &self.room)?;
        self.calls.record(mark.event, self.stream)?;
        events.push(position, mark.clone(), timed, units);
        if units > 0 && self.room.take(units) {
            events.look(&self.calls, &self.room)?;
        }
        Ok(mark)
    }

    /// One call for all shared timelines that a submission waits for. The parameters are large: who
    /// needs none makes no room for them.
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

    /// One call for all shared timelines that a submission signals.
    #[cfg(feature = "vulkan")]
    #[inline(never)]
    fn signal_shared<T: AsRef<Timeline>>(&self, signals: &[Claimed<T>]) -> Outcome<()> {
        let mut semaphores = SmallVec::<[External; 8]>::new();
        let mut params = SmallVec::<[SignalParams; 8]>::new();
        for (timeline, value, _) in signals {
            if let Some(semaphore) = timeline.as_ref().shared {
                semaphores.push(semaphore);
                params.push(signal_params(*value));
            }
        }
        self.calls
            .signal_external(&semaphores, &params, self.stream)
    }

    /// True if nothing is held before it.
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

    /// This thread drives no more, and looks at what has come to be held meanwhile.
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

    /// Something is held that was not, or something that the first of it lacked is pending.
    #[cold]
    fn go_on(self: &Arc<Self>, woken: &mut Vec<Arc<Self>>) -> Outcome<()> {
        let _current = self.calls.enter()?;
        {
            let state = lock(&self.state);
            // With the lock nobody begins to drive, and who does cannot leave without this one's
            // note.
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

    /// Hands over what can go, registers for what the next lacks, and drives no more.
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
                    let gone = self.hand_over(position, &needs, held.work, &held.signals, woken);
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

    /// Records a timed fence: with the lock, as no work of the application's runs meanwhile.
    ///
    /// # Errors
    /// Something is held, so that the record would have to be, too. What the driver says.
    pub(crate) fn record_timed(&self, fence: &Fence) -> Outcome<()> {
        self.require_sound()?;
        let _current = self.calls.enter()?;
        let mut state = lock(&self.state);
        self.require_idle(&state)?;
        state.position += 1;
        let mark = self.mark(state.position, true, 1)?;
        drop(state);
        // What it stood for goes without the lock.
        let before = lock(&fence.0).replace(mark);
        drop(before);
        Ok(())
    }

    /// Nothing is held, and nobody drives.
    #[inline]
    fn require_idle(&self, state: &State) -> Outcome<()> {
        if state.held.is_empty() && self.driving.load(Ordering::Acquire) == FREE {
            return Ok(());
        }
        Err(Stop::Failed("something is held".into()))
    }

    /// Blocks until everything submitted so far is finished, and looks all the time.
    ///
    /// # Errors
    /// Something is held. What the driver says; the end of the time.
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
        // Who drives meanwhile finds out by itself.
        if self.driving.load(Ordering::Acquire) == FREE {
            // SAFETY: nobody drives, and the state is locked.
            unsafe { self.events() }.finished(position, &self.room);
        }
        drop(state);
        Ok(())
    }

    /// How many events without timing wait to be recorded again.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        let _state = lock(&self.state);
        // SAFETY: tests ask while nobody submits.
        unsafe { self.events() }.free()
    }
}

/// Claims what these signal, all or nothing.
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
                        // Somebody has claimed above it, and waits for what never comes.
                        timeline.fail(woken);
                    }
                }
                return Err(stop);
            }
        }
    }
    Ok(())
}

/// None of these ever comes.
#[cold]
fn fail<T: AsRef<Timeline>>(signals: &[Claimed<T>], woken: &mut Vec<Arc<Queue>>) {
    for (timeline, ..) in signals {
        timeline.as_ref().fail(woken);
    }
}
