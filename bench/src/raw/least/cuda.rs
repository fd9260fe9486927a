//! CUDA: a timeline is a ring of events, and where Vulkan shares it an imported semaphore, too.
#![allow(unsafe_code, reason = "shares the driver's handles between threads")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::{Claims, lock, number};
use crate::lab::{Outcome, Stop};
use crate::raw::cuda::{Calls, Event, Stream};
#[cfg(feature = "vulkan")]
use crate::raw::cuda::{External, SignalParams, WaitParams, signal_params, wait_params};

/// A list is looked through for what is complete when it is so long, or twice as long as the last look has left it.
const CROWDED: usize = 256;

/// An event, destroyed when nobody has it any more. While somebody besides its queue has it, it is not recorded again.
struct Mark {
    calls: Calls,
    event: Event,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Mark {}
// SAFETY: as for sending.
unsafe impl Sync for Mark {}

impl Drop for Mark {
    fn drop(&mut self) {
        self.calls.destroy(self.event);
    }
}

/// Looks at an event until it is complete.
fn poll(calls: &Calls, mark: &Mark, start: Instant, timeout: Duration) -> Outcome<()> {
    while !calls.ask(mark.event)? {
        if start.elapsed() > timeout {
            return Err(Stop::Failed("timed out".into()));
        }
        std::hint::spin_loop();
    }
    Ok(())
}

/// Signals that are with the driver, in rising order, in which they complete.
#[derive(Default)]
struct Ring {
    signals: VecDeque<Signal>,
    /// Queues that hold something until a value is pending.
    waiters: Vec<(u64, Arc<Queue>)>,
    crowded: usize,
}

struct Signal {
    value: u64,
    mark: Arc<Mark>,
    by: usize,
}

/// A timeline. A semaphore that Vulkan shares belongs to the [`Hand`](crate::raw::cuda::Hand) that imported it, and outlives this: an engine
/// destroys semaphores a few frames later, which costs a submission nothing.
pub(crate) struct Timeline {
    calls: Calls,
    claims: Claims,
    /// The highest value known to be reached.
    reached: AtomicU64,
    /// The highest value whose signal is with the driver. Written with the ring locked.
    pending: AtomicU64,
    /// The queue that signals that; 0 if none of these does. Written before `pending`.
    by: AtomicUsize,
    /// A submission that has claimed a value was refused by the driver: the value never comes.
    failed: AtomicBool,
    ring: Mutex<Ring>,
    #[cfg(feature = "vulkan")]
    shared: Option<External>,
}

#[cfg(feature = "vulkan")]
// SAFETY: an imported semaphore may be used from any thread; everything else is of any thread by itself.
unsafe impl Send for Timeline {}
#[cfg(feature = "vulkan")]
// SAFETY: as for sending.
unsafe impl Sync for Timeline {}

/// What a stream has to wait for.
enum Found {
    /// Nothing.
    Reached,
    Event(Arc<Mark>, usize),
    #[cfg(feature = "vulkan")]
    Shared(External),
    /// Its signal is not pending.
    Missing,
}

impl Timeline {
    pub(crate) fn new(calls: &Calls) -> Arc<Self> {
        Arc::new(Self {
            calls: *calls,
            claims: Claims::default(),
            reached: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            by: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            ring: Mutex::default(),
            #[cfg(feature = "vulkan")]
            shared: None,
        })
    }

    /// One that Vulkan shares.
    #[cfg(feature = "vulkan")]
    pub(crate) fn shared(calls: &Calls, semaphore: External) -> Arc<Self> {
        let mut timeline = Self::new(calls);
        if let Some(timeline) = Arc::get_mut(&mut timeline) {
            timeline.shared = Some(semaphore);
        }
        timeline
    }

    #[inline]
    fn find(&self, value: u64) -> Found {
        if self.reached.load(Ordering::Acquire) >= value {
            return Found::Reached;
        }
        #[cfg(feature = "vulkan")]
        if let Some(semaphore) = self.shared {
            return if self.pending.load(Ordering::Acquire) >= value {
                Found::Shared(semaphore)
            } else {
                Found::Missing
            };
        }
        self.event(value)
    }

    /// The event of the first signal at or past `value`.
    #[inline]
    fn event(&self, value: u64) -> Found {
        let ring = lock(&self.ring);
        let signals = &ring.signals;
        // Mostly it is the last.
        let at = match signals.len() {
            0 => 0,
            1 => usize::from(signals[0].value < value),
            len if signals[len - 2].value < value => {
                len - usize::from(signals[len - 1].value >= value)
            }
            _ => signals.partition_point(|signal| signal.value < value),
        };
        match signals.get(at) {
            Some(signal) => Found::Event(signal.mark.clone(), signal.by),
            // It may have come meanwhile.
            None if self.reached.load(Ordering::Acquire) >= value => Found::Reached,
            None => Found::Missing,
        }
    }

    /// `value` is with the driver, and reached with `mark`.
    #[inline]
    fn submitted(&self, value: u64, mark: Arc<Mark>, by: usize, woken: &mut Vec<Arc<Queue>>) {
        let mut ring = lock(&self.ring);
        ring.signals.push_back(Signal { value, mark, by });
        self.now_pending(&mut ring, value, by, woken);
        let crowded = ring.signals.len() >= ring.crowded.max(CROWDED);
        drop(ring);
        if crowded {
            self.trim();
        }
    }

    #[inline]
    fn now_pending(&self, ring: &mut Ring, value: u64, by: usize, woken: &mut Vec<Arc<Queue>>) {
        self.by.store(by, Ordering::Relaxed);
        self.pending.store(value, Ordering::Release);
        if !ring.waiters.is_empty() {
            let ready = ring.waiters.extract_if(.., |(wanted, _)| *wanted <= value);
            woken.extend(ready.map(|(_, queue)| queue));
        }
    }

    /// Drops the older half, if it is complete.
    #[cold]
    fn trim(&self) {
        let middle = {
            let ring = lock(&self.ring);
            let middle = ring.signals.get(ring.signals.len() / 2);
            middle.map(|signal| (signal.value, signal.mark.clone()))
        };
        // Whoever waits for it is told what the driver says.
        if let Some((value, mark)) = middle
            && self.calls.ask(mark.event) == Ok(true)
        {
            self.advance(value);
        }
        let mut ring = lock(&self.ring);
        ring.crowded = 2 * ring.signals.len();
    }

    /// Everything up to `value` is reached.
    fn advance(&self, value: u64) {
        let mut ring = lock(&self.ring);
        let reached = self.reached.load(Ordering::Relaxed).max(value);
        self.reached.store(reached, Ordering::Release);
        let through = ring
            .signals
            .partition_point(|signal| signal.value <= reached);
        ring.signals.drain(..through);
    }

    /// Blocks until `value` is reached, and looks all the time.
    ///
    /// # Errors
    /// What the driver says; a failed timeline; the end of the time.
    pub(crate) fn wait(&self, value: u64, timeout: Duration) -> Outcome<()> {
        let start = Instant::now();
        loop {
            match self.event(value) {
                Found::Reached => return Ok(()),
                Found::Event(mark, _) => {
                    poll(&self.calls, &mark, start, timeout)?;
                    self.advance(value);
                    return Ok(());
                }
                _ if self.failed.load(Ordering::Acquire) => {
                    return Err(Stop::Failed("the signal was refused".into()));
                }
                _ if start.elapsed() > timeout => {
                    return Err(Stop::Failed("timed out".into()));
                }
                // Nobody has submitted it yet.
                _ => std::thread::yield_now(),
            }
        }
    }

    /// The host signals `value`. Nothing else may be outstanding.
    ///
    /// # Errors
    /// A value that cannot be claimed; what the driver says of what this releases.
    pub(crate) fn signal(&self, value: u64) -> Outcome<()> {
        let before = self.reached.load(Ordering::Acquire);
        self.claims.claim_above(before, value)?;
        let mut woken = Vec::new();
        {
            let mut ring = lock(&self.ring);
            self.reached.store(value, Ordering::Release);
            self.now_pending(&mut ring, value, 0, &mut woken);
        }
        release(woken)
    }

    /// Somebody else signals `value` of a shared timeline, and has submitted that already.
    #[cfg(feature = "vulkan")]
    pub(crate) fn promise(&self, value: u64) -> Outcome<()> {
        let before = self.pending.load(Ordering::Acquire);
        self.claims.claim_above(before, value)?;
        let mut woken = Vec::new();
        self.now_pending(&mut lock(&self.ring), value, 0, &mut woken);
        release(woken)
    }

    /// Has `queue` woken when `value` is pending; false if it is already.
    fn register(&self, value: u64, queue: &Arc<Queue>) -> bool {
        let mut ring = lock(&self.ring);
        let missing = self.pending.load(Ordering::Acquire) < value;
        if missing {
            ring.waiters.push((value, queue.clone()));
        }
        missing
    }
}

/// Has each of these queues go on. What that makes pending wakes others: in a loop, however long the chain is.
fn release(mut woken: Vec<Arc<Queue>>) -> Outcome<()> {
    let mut ended = Ok(());
    while let Some(queue) = woken.pop() {
        ended = ended.and(queue.go_on(&mut woken));
    }
    ended
}

/// Events of one kind of a queue, to be used again.
#[derive(Default)]
struct Events {
    /// With what is in the stream, and their positions.
    recorded: VecDeque<(u64, Arc<Mark>)>,
    /// Complete.
    free: VecDeque<Arc<Mark>>,
    crowded: usize,
}

impl Events {
    /// Everything up to `position` is complete.
    fn finished(&mut self, position: u64) {
        let through = self.recorded.partition_point(|(at, _)| *at <= position);
        let complete = self.recorded.drain(..through);
        self.free.extend(complete.map(|(_, mark)| mark));
    }

    /// One that is complete and that nobody else has, or a new one.
    #[inline]
    fn take(&mut self, calls: &Calls, timed: bool) -> Outcome<Arc<Mark>> {
        /// Timelines keep some until they look what is complete.
        const TRIES: u32 = 2;
        if self.recorded.len() >= self.crowded.max(CROWDED) {
            let (position, mark) = &self.recorded[self.recorded.len() / 2];
            let position = *position;
            if calls.ask(mark.event)? {
                self.finished(position);
            }
            self.crowded = 2 * self.recorded.len();
        }
        for _ in 0..TRIES {
            let Some(mark) = self.free.pop_front() else {
                break;
            };
            // Others get one only from who has one, and now that is nobody but this.
            if Arc::strong_count(&mark) == 1 {
                fence(Ordering::Acquire);
                return Ok(mark);
            }
            self.free.push_back(mark);
        }
        Ok(Arc::new(Mark {
            calls: *calls,
            event: calls.create(timed)?,
        }))
    }
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

/// A signal, and what was claimed before it.
type Claimed<T> = (T, u64, u64);

type Work = Box<dyn FnOnce(&Calls, Stream) -> Outcome<()> + Send>;

/// A submission that waits for a signal to be pending.
struct Held {
    waits: Vec<(Arc<Timeline>, u64)>,
    work: Work,
    signals: Vec<Claimed<Arc<Timeline>>>,
}

#[derive(Default)]
struct State {
    position: u64,
    plain: Events,
    timed: Events,
    held: VecDeque<Held>,
}

/// A stream, used by one thread at a time.
pub(crate) struct Queue {
    calls: Calls,
    stream: Stream,
    number: usize,
    state: Mutex<State>,
}

// SAFETY: streams may be used from any thread; everything else is of any thread by itself.
unsafe impl Send for Queue {}
// SAFETY: as for sending.
unsafe impl Sync for Queue {}

impl Queue {
    /// The stream outlives it, and is nobody else's.
    pub(crate) fn new(calls: &Calls, stream: Stream) -> Arc<Self> {
        Arc::new(Self {
            calls: *calls,
            stream,
            number: number(),
            state: Mutex::default(),
        })
    }

    /// Waits, work and signals. Held, with everything behind it, while a signal that it needs is not pending.
    ///
    /// # Errors
    /// A value that cannot be claimed; nothing has changed then. What the driver says; the signals fail then.
    pub(crate) fn submit(
        self: &Arc<Self>,
        waits: &[(&Arc<Timeline>, u64)],
        work: impl FnOnce(&Calls, Stream) -> Outcome<()> + Send + 'static,
        signals: &[(&Arc<Timeline>, u64)],
    ) -> Outcome<()> {
        let _current = self.calls.enter()?;
        let mut woken = Vec::new();
        let done = {
            let mut state = lock(&self.state);
            let mut claimed = SmallVec::new();
            claim(signals, &mut claimed)?;
            let mut needs = Needs::default();
            if state.held.is_empty() && self.lacks(waits, &claimed, &mut needs).is_none() {
                self.hand_over(&mut state, &needs, work, &claimed, &mut woken)
            } else {
                self.hold(&mut state, waits, Box::new(work), &claimed, &mut woken)
            }
        };
        done.and(release(woken))
    }

    /// The first point of which the signal is not pending; if there is none, `needs` has what the stream waits for.
    #[inline]
    fn lacks<'t, T: AsRef<Timeline>>(
        &self,
        waits: &'t [(T, u64)],
        signals: &'t [Claimed<T>],
        needs: &mut Needs,
    ) -> Option<(&'t Timeline, u64)> {
        for (timeline, value) in waits {
            let (timeline, value) = (timeline.as_ref(), *value);
            if !self.add(needs, timeline, value) {
                return Some((timeline, value));
            }
        }
        for (timeline, _, before) in signals {
            let (timeline, before) = (timeline.as_ref(), *before);
            // Signals of one timeline complete in order: by itself, if this stream makes both, or if it waits for the one before.
            let in_order = timeline.pending.load(Ordering::Acquire) == before
                && timeline.by.load(Ordering::Relaxed) == self.number;
            let waits_for_it = |(other, value): &(T, u64)| {
                std::ptr::eq(other.as_ref(), timeline) && *value >= before
            };
            if !in_order && !waits.iter().any(waits_for_it) && !self.add(needs, timeline, before) {
                return Some((timeline, before));
            }
        }
        None
    }

    /// Adds what makes the stream wait; false if it may not yet.
    #[inline]
    fn add(&self, needs: &mut Needs, timeline: &Timeline, value: u64) -> bool {
        match timeline.find(value) {
            Found::Missing => return false,
            Found::Event(mark, by) if by != self.number => needs.marks.push(mark),
            Found::Event(..) | Found::Reached => {}
            #[cfg(feature = "vulkan")]
            Found::Shared(semaphore) => {
                needs.shared.push((semaphore, value));
            }
        }
        true
    }

    /// Everything that this needs is pending: it goes to the driver.
    #[inline]
    fn hand_over<T: AsRef<Timeline>>(
        &self,
        state: &mut State,
        needs: &Needs,
        work: impl FnOnce(&Calls, Stream) -> Outcome<()>,
        signals: &[Claimed<T>],
        woken: &mut Vec<Arc<Queue>>,
    ) -> Outcome<()> {
        let gone = self.record(state, needs, work, signals);
        match gone {
            Ok(Some(mark)) => {
                for (timeline, value, _) in signals {
                    let timeline = timeline.as_ref();
                    timeline.submitted(*value, mark.clone(), self.number, woken);
                }
                state.plain.recorded.push_back((state.position, mark));
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(stop) => {
                let all = signals.iter();
                all.for_each(|(timeline, ..)| {
                    timeline.as_ref().failed.store(true, Ordering::Release)
                });
                Err(stop)
            }
        }
    }

    /// The driver's calls; the event behind them, if there is one. A submission that only waits for other streams needs none: whoever asks where
    /// the queue is records it then. One that waits for what others signal needs it: they may first wait for the queue to be there (Q7).
    #[inline]
    fn record<T: AsRef<Timeline>>(
        &self,
        state: &mut State,
        needs: &Needs,
        work: impl FnOnce(&Calls, Stream) -> Outcome<()>,
        signals: &[Claimed<T>],
    ) -> Outcome<Option<Arc<Mark>>> {
        for mark in &needs.marks {
            self.calls.wait_event(self.stream, mark.event)?;
        }
        #[cfg(feature = "vulkan")]
        if !needs.shared.is_empty() {
            self.wait_shared(&needs.shared)?;
        }
        work(&self.calls, self.stream)?;
        #[cfg(feature = "vulkan")]
        if signals
            .iter()
            .any(|(timeline, ..)| timeline.as_ref().shared.is_some())
        {
            self.signal_shared(signals)?;
        }
        state.position += 1;
        if signals.is_empty() && !needs.waits_for_others() {
            return Ok(None);
        }
        let mark = state.plain.take(&self.calls, false)?;
        self.calls.record(mark.event, self.stream)?;
        Ok(Some(mark))
    }

    /// One call for all shared timelines that a submission waits for. The parameters are large: who needs none makes no room for them.
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

    #[cold]
    fn hold(
        self: &Arc<Self>,
        state: &mut State,
        waits: &[(&Arc<Timeline>, u64)],
        work: Work,
        claimed: &[Claimed<&Arc<Timeline>>],
        woken: &mut Vec<Arc<Queue>>,
    ) -> Outcome<()> {
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
        if state.held.len() > 1 {
            // The first is registered for what it lacks.
            return Ok(());
        }
        self.drain(state, woken)
    }

    /// Something that the first held submission lacked is pending.
    fn go_on(self: &Arc<Self>, woken: &mut Vec<Arc<Queue>>) -> Outcome<()> {
        let _current = self.calls.enter()?;
        self.drain(&mut lock(&self.state), woken)
    }

    /// Hands over what can go, and registers for what the next lacks.
    fn drain(self: &Arc<Self>, state: &mut State, woken: &mut Vec<Arc<Queue>>) -> Outcome<()> {
        while let Some(held) = state.held.pop_front() {
            let mut needs = Needs::default();
            match self.lacks(&held.waits, &held.signals, &mut needs) {
                None => self.hand_over(state, &needs, held.work, &held.signals, woken)?,
                Some((timeline, value)) => {
                    let registered = timeline.register(value, self);
                    state.held.push_front(held);
                    if registered {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Records a timed fence.
    ///
    /// # Errors
    /// Something is held, so that the record would have to be, too. What the driver says.
    pub(crate) fn record_timed(&self, fence: &Fence) -> Outcome<()> {
        let _current = self.calls.enter()?;
        let mut state = lock(&self.state);
        if !state.held.is_empty() {
            return Err(Stop::Failed("something is held".into()));
        }
        let mark = state.timed.take(&self.calls, true)?;
        self.calls.record(mark.event, self.stream)?;
        state.position += 1;
        let position = state.position;
        state.timed.recorded.push_back((position, mark.clone()));
        drop(state);
        // What it stood for goes without the lock.
        let before = lock(&fence.0).replace(mark);
        drop(before);
        Ok(())
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
            if !state.held.is_empty() {
                return Err(Stop::Failed("something is held".into()));
            }
            let mark = state.plain.take(&self.calls, false)?;
            self.calls.record(mark.event, self.stream)?;
            state.position += 1;
            let position = state.position;
            state.plain.recorded.push_back((position, mark.clone()));
            (position, mark)
        };
        poll(&self.calls, &mark, start, timeout)?;
        drop(mark);
        let mut state = lock(&self.state);
        state.plain.finished(position);
        state.timed.finished(position);
        Ok(())
    }
}

/// Claims what these signal, all or nothing.
#[inline]
fn claim<'t>(
    signals: &[(&'t Arc<Timeline>, u64)],
    claimed: &mut SmallVec<[Claimed<&'t Arc<Timeline>>; 8]>,
) -> Outcome<()> {
    for (timeline, value) in signals {
        match timeline.claims.claim(*value) {
            Ok(before) => claimed.push((*timeline, *value, before)),
            Err(stop) => {
                for (timeline, value, before) in claimed {
                    if !timeline.claims.withdraw(*before, *value) {
                        // Somebody has claimed above it, and waits for what never comes.
                        timeline.failed.store(true, Ordering::Release);
                    }
                }
                return Err(stop);
            }
        }
    }
    Ok(())
}

/// A cell for a record of a timed event.
#[derive(Default)]
pub(crate) struct Fence(Mutex<Option<Arc<Mark>>>);

const _: () = {
    const fn of_any_thread<T: Send + Sync>() {}
    of_any_thread::<Timeline>();
    of_any_thread::<Queue>();
    of_any_thread::<Fence>();
};

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::raw::cuda::emulated::{calls, driver, stream};

    const LONG: Duration = Duration::from_secs(60);

    /// Does `what` while the driver goes on.
    fn going_on<T>(what: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    if !driver().step() {
                        thread::yield_now();
                    }
                }
            });
            let done = what();
            over.store(true, Ordering::Release);
            done
        })
    }

    #[test]
    fn an_event_that_somebody_may_wait_for_is_not_recorded_again() {
        let (calls, stream) = (calls(), stream(100));
        let (queue, timeline) = (Queue::new(&calls, stream), Timeline::new(&calls));
        let signal = |value| {
            let submitted = queue.submit(&[], |_, _| Ok(()), &[(&timeline, value)]);
            assert_eq!(submitted, Ok(()));
            match timeline.event(value) {
                Found::Event(mark, _) => mark,
                _ => panic!("{value} is not pending"),
            }
        };
        // Nobody has asked for the value: the ring has the event of 1, which is complete, as the queue knows.
        let first = Arc::as_ptr(&signal(1));
        assert_eq!(going_on(|| queue.idle(LONG)), Ok(()));
        assert_eq!(lock(&queue.state).plain.free.len(), 2);
        let second = signal(2);
        assert_ne!(
            Arc::as_ptr(&second),
            first,
            "the event of 1 is still in the ring"
        );
        // Now nobody has, but the queue.
        assert_eq!(going_on(|| timeline.wait(2, LONG)), Ok(()));
        assert_eq!(going_on(|| queue.idle(LONG)), Ok(()));
        assert_eq!(Arc::as_ptr(&signal(3)), first);
    }

    #[test]
    fn what_cannot_be_claimed_changes_nothing() {
        let (calls, stream) = (calls(), stream(101));
        let queue = Queue::new(&calls, stream);
        let (one, other) = (Timeline::new(&calls), Timeline::new(&calls));
        let submit = |signals: &[(&Arc<Timeline>, u64)]| queue.submit(&[], |_, _| Ok(()), signals);
        assert_eq!(submit(&[(&one, 3)]), Ok(()));
        assert!(submit(&[(&other, 1), (&one, 3)]).is_err());
        assert!(submit(&[(&other, 1), (&one, u64::MAX)]).is_err());
        assert!(one.signal(4).is_err(), "a queue's signal is outstanding");
        assert_eq!(submit(&[(&other, 1), (&one, 4)]), Ok(()));
        assert_eq!(
            going_on(|| one.wait(4, LONG).and(other.wait(1, LONG))),
            Ok(())
        );
        assert_eq!(one.signal(5), Ok(()));
        let missing = one.wait(6, Duration::from_millis(5));
        assert!(missing.is_err_and(|stop| stop.to_string() == "timed out"));
    }

    /// Queues in a circle, each with a thread of its own: each step of one waits for that of the one before it, mostly before
    /// that is submitted.
    #[test]
    fn threads_that_wait_for_each_other_go_in_order_and_share_events() {
        const QUEUES: u64 = 4;
        const STEPS: u64 = 3000;
        let calls = calls();
        let queues: Vec<_> = (1..=QUEUES)
            .map(|number| Queue::new(&calls, stream(number as usize)))
            .collect();
        let timelines: Vec<_> = (0..QUEUES).map(|_| Timeline::new(&calls)).collect();
        let go = Timeline::new(&calls);
        let threads = || {
            thread::scope(|scope| {
                let submitting: Vec<_> = (0..QUEUES)
                    .map(|number| {
                        let (queues, timelines, go) = (&queues, &timelines, &go);
                        scope.spawn(move || -> Outcome<()> {
                            let before = (number + QUEUES - 1) % QUEUES;
                            for step in 1..=STEPS {
                                let wait = match (number, step) {
                                    (0, 1) => (go, 1),
                                    (0, _) => (&timelines[before as usize], step - 1),
                                    _ => (&timelines[before as usize], step),
                                };
                                let mark = step * QUEUES + number;
                                queues[number as usize].submit(
                                    &[wait],
                                    move |_, stream| {
                                        driver().work(stream, mark);
                                        Ok(())
                                    },
                                    &[(&timelines[number as usize], step)],
                                )?;
                                if step.is_multiple_of(100) {
                                    // Others go on meanwhile, and nobody is more than 160 steps ahead of the driver, however slow
                                    // that is.
                                    timelines[number as usize].wait(step - 60, LONG)?;
                                }
                            }
                            timelines[number as usize].wait(STEPS, LONG)
                        })
                    })
                    .collect();
                thread::sleep(Duration::from_millis(5));
                let opened = go.signal(1);
                let ended = submitting
                    .into_iter()
                    .map(|thread| thread.join().expect("no panic"))
                    .fold(opened, Outcome::and);
                ended.and(queues.iter().try_for_each(|queue| queue.idle(LONG)))
            })
        };
        assert_eq!(going_on(threads), Ok(()));
        let driver = driver();
        assert_eq!(driver.misuse, Vec::<String>::new());
        // Each waits for the one before: there is one order.
        let expected: Vec<u64> = (QUEUES..QUEUES * (STEPS + 1)).collect();
        assert!(driver.log == expected, "{:?}", &driver.log[..20]);
        let most = QUEUES * STEPS / 2;
        let events = driver.events() as u64;
        assert!(events < most, "events are used again: {events}");
    }
}
