//! What both ends of an endpoint's life share: its handles, and the thread that watches over it.

use std::borrow::Cow;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use syncline_core::{Error, Object, PeerLoss, Result};

use super::LossObserver;
use super::closing::Closer;
use super::control::Received;
use super::inbox::Inbox;
use super::message::{HEADER, Message};
use super::peer::Peer;
use super::socket::{Deadline, Socket, WakeFd, native, wait};
use super::wire::{Malformed, TooMuch};

/// Longer than the guard takes to find out how the other process was lost.
const LOSS_TIMEOUT: Duration = Duration::from_secs(1);

/// Messages that one thread takes from the socket in a row, before others have their turn.
const MESSAGES_PER_LOCK: u32 = 16;

/// Messages that are taken in one turn for nobody in particular.
const MESSAGES_PER_PUMP: u32 = 64;

/// Messages that it takes once its time is over, for one that was there in time. Whoever goes on
/// sending keeps nobody for longer.
const MESSAGES_AFTER_DEADLINE: u32 = 1024;

/// Between two looks at a message for whose descriptors there was no room: nothing tells when there
/// is.
const NO_ROOM_RETRY: Duration = Duration::from_millis(10);

/// What the other side was to do while such a message is the next.
pub(super) const BEHIND_DESCRIPTORS: &str = "send what was waited for, which may be behind an object for whose descriptors there is no \
     room (64 of one peer and 256 of all may be open here, and no more than this process may open),";

/// What the other side was to do while its points fill the inbox.
const BEHIND_POINTS: &str =
    "send what was waited for, or that is behind 1024 points which nobody has received,";

/// One end, and everything that is known of the other.
pub(super) struct Connection {
    pub(super) object: Object,
    pub(super) socket: Socket,
    /// Closes the socket and what came through it.
    closer: Arc<Closer>,
    pub(super) peer: Peer,
    /// The number of the next message to the other side.
    sending: Mutex<u64>,
    receiving: Mutex<Receiving>,
    /// Held on the way to `receiving`: who comes out and in again lets those in first who stand
    /// there, as the lock alone does not.
    entry: Mutex<()>,
    /// Something has been put into the inbox, or there is room for points again, or who read the
    /// socket does so no more.
    arrived: Condvar,
    /// The first thing that ended it.
    ended: OnceLock<Error>,
    /// Rings for good once it has ended.
    ended_wake: WakeFd,
    /// Wakes who sleeps at the socket: another has taken something out of it.
    poller_wake: WakeFd,
    /// Wakes the guard.
    pub(super) guard_wake: WakeFd,
    /// Nobody has the endpoint any more.
    pub(super) is_dropped: AtomicBool,
    /// The other side said that it goes, or was shut out.
    is_closed: AtomicBool,
    loss_observers: Mutex<LossObservers>,
    pub(super) is_trusted: AtomicBool,
    pub(super) next_number: AtomicU32,
    /// The round of the last negotiation.
    pub(super) rounds: Mutex<u32>,
}

struct Receiving {
    inbox: Inbox,
    /// Somebody sleeps at the socket, and wakes the others.
    has_poller: bool,
    /// He was woken by one of them.
    is_poller_woken: bool,
    /// So many wait until there is room for points.
    waiting_for_room: u32,
    /// Nothing comes out of the socket any more.
    at_end: bool,
    /// Something came that cannot be.
    broken: Option<Error>,
}

#[derive(Default)]
struct LossObservers {
    all: Vec<Arc<dyn LossObserver>>,
    /// How it was lost, as they have been told: once, and once more if it dies later.
    reported: Vec<PeerLoss>,
}

/// What one look into the socket gave.
enum ReadResult {
    /// It has a message fewer.
    Message,
    /// There is none.
    Nothing,
    /// The next one has descriptors for which there is no room.
    NoRoom,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// After the greetings.
    pub(super) fn new(
        object: Object,
        socket: Socket,
        closer: Arc<Closer>,
        peer: Peer,
        wakes: [WakeFd; 3],
    ) -> Self {
        let [ended_wake, poller_wake, guard_wake] = wakes;
        Self {
            object,
            socket,
            closer,
            peer,
            sending: Mutex::new(1),
            receiving: Mutex::new(Receiving {
                inbox: Inbox::new(),
                has_poller: false,
                is_poller_woken: false,
                waiting_for_room: 0,
                at_end: false,
                broken: None,
            }),
            entry: Mutex::default(),
            arrived: Condvar::new(),
            ended: OnceLock::new(),
            ended_wake,
            poller_wake,
            guard_wake,
            is_dropped: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            loss_observers: Mutex::default(),
            is_trusted: AtomicBool::new(false),
            next_number: AtomicU32::new(1),
            rounds: Mutex::new(0),
        }
    }

    /// What ended it, once something has.
    pub(super) fn check(&self) -> Result<()> {
        self.ended.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn lost_error(&self, how: PeerLoss) -> Error {
        Error::PeerLost {
            endpoint: self.object.clone(),
            process: self.peer.process.id,
            how,
        }
    }

    pub(super) fn unexpected(
        &self,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        Error::Message {
            endpoint: self.object.clone(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(super) fn silent(
        &self,
        awaited: impl Into<Cow<'static, str>>,
        deadline: Deadline,
    ) -> Error {
        Error::PeerSilent {
            endpoint: self.object.clone(),
            process: self.peer.process.id,
            awaited: awaited.into(),
            waited: deadline.waited(),
        }
    }

    pub(super) fn unsendable(&self, what: TooMuch) -> Error {
        let TooMuch { what, most } = what;
        Error::Unsupported {
            object: self.object.clone(),
            asked: format!("send so many {what}"),
            reason: match most {
                0 => "no message carries them".into(),
                most => format!("{most} is the most"),
            },
        }
    }

    /// Writes a message into `buffer` and sends it.
    pub(super) fn send(
        &self,
        message: &Message,
        fds: &[BorrowedFd<'_>],
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<()> {
        loop {
            self.check()?;
            let sent = {
                let mut sequence = locked(&self.sending);
                let length = message
                    .encode(*sequence, buffer)
                    .map_err(|e| self.unsendable(e))?;
                let sent = self
                    .socket
                    .send(buffer.get(..length).unwrap_or_default(), fds);
                if sent.is_ok() {
                    *sequence = sequence.wrapping_add(1);
                }
                sent
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN) if deadline.has_passed() => {
                    return Err(self.silent("make room for a message", deadline));
                }
                Err(Errno::AGAIN) => {
                    let mut asked = [self.socket.writable(), self.ended_wake.readable()];
                    self.sleep(&mut asked, deadline)?;
                }
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                    return Err(self.loss_error());
                }
                Err(errno) => return Err(native(&self.object, "sendmsg", errno)),
            }
        }
    }

    /// Says goodbye, if that can be done at once. Who does not hear it sees that the socket is
    /// closed.
    pub(super) fn send_goodbye(&self) {
        if self.check().is_err() {
            return;
        }
        let sequence = locked(&self.sending);
        let mut buffer = [0; HEADER];
        if Message::Bye.encode(*sequence, &mut buffer).is_ok() {
            let _ = self.socket.send(&buffer, &[]);
        }
    }

    /// How the other side was lost whose end is closed: the guard finds out.
    fn loss_error(&self) -> Error {
        let deadline = Deadline::after(LOSS_TIMEOUT);
        loop {
            if let Err(error) = self.check() {
                return error;
            }
            if deadline.has_passed()
                || self
                    .sleep(&mut [self.ended_wake.readable()], deadline)
                    .is_err()
            {
                return self.lost_error(PeerLoss::HungUp);
            }
        }
    }

    fn sleep(&self, asked: &mut [rustix::event::PollFd<'_>], deadline: Deadline) -> Result<()> {
        wait(asked, deadline).map_err(|errno| native(&self.object, "poll", errno))
    }

    /// What has arrived, behind everybody who waits for it already.
    fn lock_receiving(&self) -> MutexGuard<'_, Receiving> {
        let _entry = locked(&self.entry);
        locked(&self.receiving)
    }

    /// Waits until `take` finds what it looks for among what has arrived.
    ///
    /// Takes messages from the socket as long as there is room for points: behind that, who looks
    /// for something else waits until some are received, and the other side until there is room in
    /// the socket.
    ///
    /// # Errors
    /// [`Error::PeerSilent`] if that has not come in time, and what has ended the endpoint once
    /// nothing is left in the socket, or nothing more can be taken from it.
    pub(super) fn receive<T>(
        &self,
        awaited: &'static str,
        deadline: Deadline,
        mut take: impl FnMut(&mut Inbox) -> Option<T>,
    ) -> Result<T> {
        let mut state = self.lock_receiving();
        let (mut reads, mut overdue) = (0_u32, 0);
        loop {
            if let Some(error) = &state.broken {
                return Err(error.clone());
            }
            if let Some(found) = take(&mut state.inbox) {
                if state.waiting_for_room > 0 && state.inbox.has_room_for_points() {
                    self.arrived.notify_all();
                }
                return Ok(found);
            }
            if overdue >= MESSAGES_AFTER_DEADLINE {
                return Err(self.silent(awaited, deadline));
            }
            // Before the look: what it sent before it went is in the socket then.
            let ended = self.check();
            // Not so for who looks for points, as there is none.
            let is_full = !state.inbox.has_room_for_points();
            let read = match is_full {
                true => ReadResult::Nothing,
                false => self.read_message(&mut state),
            };
            if let ReadResult::Message = read {
                reads = reads.wrapping_add(1);
                if reads.is_multiple_of(MESSAGES_PER_LOCK) {
                    drop(state);
                    state = self.lock_receiving();
                    if deadline.has_passed() {
                        overdue += MESSAGES_PER_LOCK;
                    }
                }
                continue;
            }
            ended?;
            let has_no_room = matches!(read, ReadResult::NoRoom);
            if deadline.has_passed() {
                let awaited = match (is_full, has_no_room) {
                    (true, _) => BEHIND_POINTS,
                    (_, true) => BEHIND_DESCRIPTORS,
                    _ => awaited,
                };
                return Err(self.silent(awaited, deadline));
            }
            if has_no_room {
                drop(state);
                self.sleep(
                    &mut [self.ended_wake.readable()],
                    deadline.at_most(NO_ROOM_RETRY),
                )?;
                state = self.lock_receiving();
                continue;
            }
            if state.has_poller || is_full {
                state.waiting_for_room += u32::from(is_full);
                state = match deadline.remaining() {
                    None => {
                        let woken = self.arrived.wait(state);
                        woken.unwrap_or_else(PoisonError::into_inner)
                    }
                    Some(left) => {
                        let woken = self.arrived.wait_timeout(state, left);
                        woken.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
                state.waiting_for_room -= u32::from(is_full);
                continue;
            }
            state.has_poller = true;
            let at_end = state.at_end;
            drop(state);
            let mut asked = [
                self.ended_wake.readable(),
                self.poller_wake.readable(),
                self.socket.readable(),
            ];
            // The end of the stream is readable for ever.
            let asked = if at_end {
                &mut asked[..2]
            } else {
                &mut asked[..]
            };
            let slept = self.sleep(asked, deadline);
            state = self.lock_receiving();
            state.has_poller = false;
            if std::mem::take(&mut state.is_poller_woken) {
                self.poller_wake.clear();
            }
            // One of the others sleeps there next, if this one has got what it wants.
            self.arrived.notify_all();
            slept?;
        }
    }

    pub(super) fn with_inbox(&self, act: impl FnOnce(&mut Inbox)) {
        act(&mut self.lock_receiving().inbox);
    }

    /// Takes a message from the socket, if there is one.
    fn read_message(&self, state: &mut Receiving) -> ReadResult {
        if state.at_end || state.broken.is_some() {
            return ReadResult::Nothing;
        }
        match self
            .socket
            .peek(&mut state.inbox.buffer, Some(&self.closer))
        {
            Err(Errno::AGAIN) => return ReadResult::Nothing,
            Err(errno) => {
                let error = native(&self.object, "recvmsg", errno);
                self.shut_out(state, error);
            }
            Ok(end) if end.bytes == 0 && end.from.is_none() && end.descriptors.is_empty() => {
                state.at_end = true;
                return ReadResult::Nothing;
            }
            Ok(received) => match self.store(state, received) {
                Ok(false) => return ReadResult::NoRoom,
                Ok(true) => {
                    self.socket.consume();
                    if state.inbox.is_closed() {
                        self.is_closed.store(true, Ordering::Release);
                        self.guard_wake.wake();
                    }
                }
                // It stays in the socket, which may hold descriptors for which there is no room,
                // and is closed with it.
                Err(Malformed { expected, found }) => {
                    self.shut_out(state, self.unexpected(expected, found));
                }
            },
        }
        self.arrived.notify_all();
        if state.has_poller && !state.is_poller_woken {
            state.is_poller_woken = true;
            self.poller_wake.wake();
        }
        ReadResult::Message
    }

    fn store(&self, state: &mut Receiving, received: Received) -> Result<bool, Malformed> {
        let sender = received.from.map_or(0, |sender| sender.process);
        if sender != self.peer.process.id {
            let found = match sender {
                0 => "one whose sender is not known".into(),
                id => format!("one from process {id}"),
            };
            return Err(Malformed::new(
                "messages from the process that greeted",
                found,
            ));
        }
        state.inbox.store(received)
    }

    /// After something that cannot be: nothing more is taken from the other side, nor sent to it.
    fn shut_out(&self, state: &mut Receiving, error: Error) {
        state.inbox.clear();
        state.at_end = true;
        state.broken = Some(self.ended.get_or_init(|| error).clone());
        self.is_closed.store(true, Ordering::Release);
        self.socket.shut_down();
        self.ended_wake.wake();
        self.guard_wake.wake();
    }

    /// How the other side is known to be lost without looking at it: it said that it goes, or was
    /// shut out.
    pub(super) fn closed(&self) -> Option<PeerLoss> {
        if !self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        match self.lock_receiving().broken {
            None => Some(PeerLoss::Left),
            Some(_) => Some(PeerLoss::ShutOut),
        }
    }

    /// Takes in what is in the socket, as far as there is room: at most 64 messages, however many
    /// the other side sends. True if there may be more. Blocks no longer than others hold the lock,
    /// for as many messages.
    pub(super) fn pump(&self) -> bool {
        let mut state = self.lock_receiving();
        for _ in 0..MESSAGES_PER_PUMP {
            if state.inbox.is_full() {
                return false;
            }
            let ReadResult::Message = self.read_message(&mut state) else {
                return false;
            };
        }
        true
    }

    /// As [`pump`](Self::pump), in several turns, for what a process sent that is gone. One that
    /// goes on sending is not followed for ever.
    pub(super) fn pump_all(&self) {
        for _ in 0..MESSAGES_AFTER_DEADLINE / MESSAGES_PER_PUMP {
            if !self.pump() {
                return;
            }
        }
    }

    /// The other side is lost: everybody who waits hears of it, and who has to survive it.
    pub(super) fn report_loss(&self, how: PeerLoss) {
        self.ended.get_or_init(|| self.lost_error(how));
        self.ended_wake.wake();
        {
            // Nobody is between looking and sleeping.
            let _state = self.lock_receiving();
            self.arrived.notify_all();
        }
        let all = {
            let mut observers = locked(&self.loss_observers);
            observers.reported.push(how);
            observers.all.clone()
        };
        for observer in all {
            observer.peer_lost(&how);
        }
    }

    /// The number of the next message that is taken; `None` if none is.
    #[cfg(any(test, fuzzing))]
    pub(super) fn due(&self) -> Option<u64> {
        let state = self.lock_receiving();
        (!state.inbox.is_closed() && state.broken.is_none()).then(|| state.inbox.due())
    }

    /// Somebody sleeps at the socket, or is about to.
    #[cfg(test)]
    pub(super) fn has_poller(&self) -> bool {
        self.lock_receiving().has_poller
    }

    /// Somebody sleeps until there is room for points.
    #[cfg(test)]
    pub(super) fn waits_for_room(&self) -> bool {
        self.lock_receiving().waiting_for_room > 0
    }

    pub(super) fn observe_loss(&self, observer: Arc<dyn LossObserver>) {
        let reported = {
            let mut observers = locked(&self.loss_observers);
            observers.all.push(Arc::clone(&observer));
            observers.reported.clone()
        };
        // The guard looks more often from now on.
        self.guard_wake.wake();
        for how in reported {
            observer.peer_lost(&how);
        }
    }

    pub(super) fn has_loss_observers(&self) -> bool {
        !locked(&self.loss_observers).all.is_empty()
    }

    pub(super) fn stop_observing(&self, observer: &Arc<dyn LossObserver>) {
        let known = |other: &Arc<dyn LossObserver>| Arc::ptr_eq(other, observer);
        let mut observers = locked(&self.loss_observers);
        let found = observers.all.iter().position(known);
        let gone = found.map(|at| observers.all.swap_remove(at));
        // What it drops may be somebody's who has to do with this endpoint.
        drop(observers);
        drop(gone);
    }
}
