//! The connection of an endpoint. Its handles and its watching thread share it.

use std::borrow::Cow;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use smallvec::{SmallVec, smallvec};
use syncline_core::backend::kit::{Condvar, Mutex, MutexGuard};
use syncline_core::internal::{MakerProcess, lost_devices};
use syncline_core::{
    Error, Result,
    error::{Object, PeerLoss},
};

use super::closing::Closer;
use super::control::Received;
use super::inbox::Inbox;
#[cfg(feature = "cuda")]
use super::kept::KeptForPeer;
use super::message::{HEADER, Message};
use super::peer::Peer;
use super::poll::{Deadline, WakeFd, native, wait};
use super::socket::Socket;
use super::wire::{Malformed, TooMuch};

/// How long a failed send waits for the guard to find out how the peer was lost.
///
/// Longer than the guard needs.
const LOSS_TIMEOUT: Duration = Duration::from_secs(1);

/// Messages that a thread takes from the socket before it lets other threads lock the inbox.
const MESSAGES_PER_LOCK: u32 = 16;

/// Messages that one call of [`Connection::pump`] takes at most.
const MESSAGES_PER_PUMP: u32 = 64;

/// Messages that a call takes at most after its deadline.
///
/// The message that the call waits for may have been in the socket in time. The bound ends the call
/// if the peer keeps sending.
const MESSAGES_AFTER_DEADLINE: u32 = 1024;

/// Interval of checks whether there is room for the descriptors of the next message.
///
/// No event reports such room.
const NO_ROOM_RETRY: Duration = Duration::from_millis(10);

/// What the peer must do, for timeout errors while there is no room for descriptors.
pub(super) const BEHIND_DESCRIPTORS: &str = "send what was waited for, which may be behind an object for whose descriptors there is no \
     room (64 of one peer and 256 of all may be open here, and no more than this process may open),";

/// What the peer must do, for timeout errors while its points fill the inbox.
const BEHIND_POINTS: &str =
    "send what was waited for, which may be behind 1024 points that no call has received,";

/// Names lost devices of this process in the error for a silent peer, if the call has waited (E3).
///
/// Called once for each call of the application. It calls drivers, so no lock may be held.
pub(super) fn naming_lost<T>(result: Result<T>, deadline: Deadline) -> Result<T> {
    result.map_err(|mut error| {
        if let Error::PeerSilent { lost, .. } = &mut error
            && !deadline.is_poll()
        {
            *lost = lost_devices().into();
        }
        error
    })
}

/// Receives the report that the peer process of an endpoint is lost.
pub(crate) trait LossObserver: Send + Sync {
    /// Called once the peer process is lost.
    ///
    /// The endpoint's thread calls this. If the peer is lost before
    /// [`observe_loss`](Connection::observe_loss), the registering thread calls it, and
    /// [`give_up`](Connection::give_up) calls it on its own thread. There are at most three calls.
    /// A process that [left](PeerLoss::Left), [hung up](PeerLoss::HungUp) or was
    /// [shut out](PeerLoss::ShutOut) may be [given up](PeerLoss::GivenUp), and may
    /// [die](PeerLoss::Died) later. The observer must not block for long and must not keep the
    /// endpoint alive.
    fn peer_lost(&self, how: &PeerLoss);
}

/// One end of a connection, and the state of the peer.
pub(super) struct Connection {
    object: Object,
    socket: Socket,
    /// Closes the socket and the descriptors that came through it.
    closer: Arc<Closer>,
    maker: MakerProcess,
    peer: Peer,
    /// The sequence number of the next message to the peer.
    sending: Mutex<u64>,
    receiving: Mutex<Receiving>,
    /// Locked before `receiving`, so that waiting threads get the lock in turn.
    ///
    /// The mutex `receiving` alone lets a thread that releases and locks again overtake them.
    entry: Mutex<()>,
    /// Notified on a new message, on room for points, and when the poller stops polling.
    arrived: Condvar,
    /// The first error that ended the connection.
    ended: OnceLock<Error>,
    /// Readable once the connection has ended.
    ended_wake: WakeFd,
    /// Wakes the poller after another thread has taken a message out of the socket.
    poller_wake: WakeFd,
    /// Wakes the guard.
    guard_wake: WakeFd,
    /// True once the last handle of the endpoint is dropped.
    is_dropped: AtomicBool,
    /// True once the peer has sent its farewell, was shut out or was given up.
    is_closed: AtomicBool,
    /// True once the application has given up the peer.
    is_given_up: AtomicBool,
    loss_observers: Mutex<LossObservers>,
    is_trusted: AtomicBool,
    #[cfg(feature = "cuda")]
    kept: KeptForPeer,
    next_number: AtomicU32,
    /// The round of the last negotiation.
    round: Mutex<u32>,
}

struct Receiving {
    inbox: Inbox,
    /// True while a thread polls the socket. The other receiving threads wait for `arrived`.
    has_poller: bool,
    /// True if `poller_wake` is set for the present poller.
    is_poller_woken: bool,
    /// The number of threads that wait for room for points.
    waiting_for_room: u32,
    /// True once the stream has ended.
    at_end: bool,
    /// The error after an invalid message.
    broken: Option<Error>,
}

#[derive(Default)]
struct LossObservers {
    all: Vec<Arc<dyn LossObserver>>,
    /// The losses that the observers got: at most three, the last if the peer dies.
    reported: Vec<PeerLoss>,
}

/// What a poll has found out about the peer.
#[derive(Default)]
pub(super) struct PeerState {
    has_died: bool,
    has_hung_up: bool,
}

impl PeerState {
    /// True if the peer process has ended.
    pub(super) const fn has_died(&self) -> bool {
        self.has_died
    }

    /// True if the peer has closed its end.
    pub(super) const fn has_hung_up(&self) -> bool {
        self.has_hung_up
    }
}

/// The result of one attempt to take a message from the socket.
enum ReadResult {
    /// A message was taken, or the peer was shut out.
    Message,
    /// The socket is empty, or the stream has ended.
    Nothing,
    /// There is no room for the descriptors of the next message.
    NoRoom,
}

impl Connection {
    /// Makes the connection after the greetings.
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
            maker: MakerProcess::this(),
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
            arrived: Condvar::default(),
            ended: OnceLock::new(),
            ended_wake,
            poller_wake,
            guard_wake,
            is_dropped: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            loss_observers: Mutex::default(),
            is_trusted: AtomicBool::new(false),
            #[cfg(feature = "cuda")]
            kept: KeptForPeer::default(),
            next_number: AtomicU32::new(1),
            round: Mutex::new(0),
        }
    }

    pub(super) const fn object(&self) -> &Object {
        &self.object
    }

    pub(super) const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// True once [`trust`](Self::trust) was called.
    pub(super) fn is_trusted(&self) -> bool {
        self.is_trusted.load(Ordering::Relaxed)
    }

    /// Accepts opaque handles of the peer from now on.
    pub(super) fn trust(&self) {
        self.is_trusted.store(true, Ordering::Relaxed);
    }

    /// Keeps `object` until the peer process has ended, also if the endpoint is dropped before.
    ///
    /// # Errors
    /// [`Error::Native`] if the system has no descriptor or no thread.
    #[cfg(feature = "cuda")]
    pub(super) fn keep_for_peer(&self, object: Arc<dyn std::any::Any + Send + Sync>) -> Result<()> {
        self.kept.keep(&self.object, &self.peer, object)
    }

    /// The next number for an object that this side offers, from 1 to 2^31 - 1.
    ///
    /// In messages about points, the highest bit states which side assigned the number.
    pub(super) fn next_number(&self) -> u32 {
        loop {
            let number = self.next_number.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1);
            if number != 0 {
                return number;
            }
        }
    }

    /// Begins the next round of negotiation, unless another thread is negotiating.
    ///
    /// Returns the number of the round.
    pub(super) fn next_round(&self) -> Option<MutexGuard<'_, u32>> {
        let mut round = self.round.try_lock()?;
        *round = round.wrapping_add(1);
        Some(round)
    }

    /// The error that ended the connection, if it has ended.
    pub(super) fn check(&self) -> Result<()> {
        self.maker.require(&self.object)?;
        self.ended.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn lost_error(&self, how: PeerLoss) -> Error {
        Error::peer_lost(&self.object, self.peer.process().id, how)
    }

    pub(super) fn unexpected(
        &self,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        Error::message(&self.object, expected, found)
    }

    /// The error for a peer that has not acted in time. See [`naming_lost`].
    pub(super) fn silent(
        &self,
        awaited: impl Into<Cow<'static, str>>,
        deadline: Deadline,
    ) -> Error {
        let process = self.peer.process().id;
        Error::peer_silent(&self.object, process, awaited, deadline.waited())
    }

    pub(super) fn unsendable(&self, what: TooMuch) -> Error {
        let TooMuch { what, most } = what;
        Error::unsupported(
            &self.object,
            format!("send so many {what}"),
            match most {
                0 => "no message carries them".into(),
                most => format!("{most} is the most"),
            },
        )
    }

    /// Encodes a message into `buffer` and sends it.
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
                let mut sequence = self.sending.lock();
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

    /// Sends a farewell if the socket has room, and ends the guard. No handle is left.
    pub(super) fn leave(&self) {
        self.send_goodbye();
        self.is_dropped.store(true, Ordering::Release);
        self.guard_wake.wake();
    }

    /// True once [`leave`](Self::leave) was called.
    pub(super) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Waits for the end of the peer process, or for a wake-up of the guard.
    ///
    /// If `at_socket`, waits for the end of the connection too.
    ///
    /// # Errors
    /// An error of poll(2).
    pub(super) fn wait_for_peer(
        &self,
        at_socket: bool,
        deadline: Deadline,
    ) -> Result<PeerState, Errno> {
        let mut asked: SmallVec<[PollFd<'_>; 3]> = smallvec![self.guard_wake.readable()];
        asked.extend(self.peer.exit_poll());
        let process = asked.len() - 1;
        if at_socket {
            asked.push(self.socket.hung_up());
        }
        let polled = wait(&mut asked, deadline);
        self.guard_wake.clear();
        let found = |at: usize| {
            let found = asked.get(at).map(PollFd::revents);
            found.is_some_and(|found| found != PollFlags::empty())
        };
        polled.map(|()| PeerState {
            // If the process cannot be watched, this index is the wake-up's.
            has_died: process > 0 && found(process),
            has_hung_up: at_socket && found(process + 1),
        })
    }

    /// A peer that does not get the farewell sees that the socket is closed.
    fn send_goodbye(&self) {
        if self.check().is_err() {
            return;
        }
        let sequence = self.sending.lock();
        let mut buffer = [0; HEADER];
        if Message::Bye.encode(*sequence, &mut buffer).is_ok() {
            let _ = self.socket.send(&buffer, &[]);
        }
    }

    /// Waits until the guard has found out how the peer was lost. The peer has closed its end.
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

    fn sleep(&self, asked: &mut [PollFd<'_>], deadline: Deadline) -> Result<()> {
        wait(asked, deadline).map_err(|errno| native(&self.object, "poll", errno))
    }

    /// Locks the inbox, behind the threads that wait for it already.
    fn lock_receiving(&self) -> MutexGuard<'_, Receiving> {
        let _entry = self.entry.lock();
        self.receiving.lock()
    }

    /// Waits until `take` finds what it looks for in the inbox.
    ///
    /// Takes messages from the socket while there is room for points. Without room, a call that
    /// looks for something else waits until points are received, and the peer waits for room in the
    /// socket.
    ///
    /// # Errors
    /// [`Error::PeerSilent`] after the deadline. The error that ended the endpoint, once the socket
    /// is empty or nothing more can be taken from it.
    pub(super) fn receive<T>(
        &self,
        awaited: &'static str,
        deadline: Deadline,
        mut take: impl FnMut(&mut Inbox) -> Option<T>,
    ) -> Result<T> {
        // A forked child would take its parent's messages out of the socket.
        self.maker.require(&self.object)?;
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
                drop(state);
                return Err(self.silent(awaited, deadline));
            }
            // Check first: what the peer sent before the end is in the socket by then.
            let ended = self.check();
            // A call that looks for points never gets here with a full inbox.
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
                drop(state);
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
                    None => self.arrived.wait(state),
                    Some(left) => self.arrived.wait_timeout(state, left),
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
            // The end of the stream stays readable.
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
            // Another thread becomes the poller if this one has what it wants.
            self.arrived.notify_all();
            slept?;
        }
    }

    pub(super) fn with_inbox<T>(&self, act: impl FnOnce(&mut Inbox) -> T) -> T {
        act(&mut self.lock_receiving().inbox)
    }

    /// Takes a message from the socket into the inbox, if there is one.
    fn read_message(&self, state: &mut Receiving) -> ReadResult {
        if state.at_end || state.broken.is_some() {
            return ReadResult::Nothing;
        }
        match self.socket.peek(state.inbox.buffer(), Some(&self.closer)) {
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
                // The invalid message stays in the socket, because the socket may hold descriptors
                // for which there is no room. Closing the socket releases them.
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
        if sender != self.peer.process().id {
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

    /// Ends the connection after an invalid message. Nothing more is received or sent.
    fn shut_out(&self, state: &mut Receiving, error: Error) {
        state.inbox.clear();
        state.at_end = true;
        state.broken = Some(self.ended.get_or_init(|| error).clone());
        self.is_closed.store(true, Ordering::Release);
        self.socket.shut_down();
        self.ended_wake.wake();
        self.guard_wake.wake();
    }

    /// Ends the connection because the application gives up the peer.
    ///
    /// Calls the observers on this thread, also if the connection has ended before. Only the first
    /// call has an effect, and none after the peer has died: its messages can still be received.
    ///
    /// Does nothing in a forked child: the peer is the parent's.
    pub(super) fn give_up(&self) {
        if !self.maker.is_this() {
            return;
        }
        let died = |how: &PeerLoss| matches!(how, PeerLoss::Died { .. });
        if self.loss_observers.lock().reported.iter().any(died)
            || self.is_given_up.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let error = self.lost_error(PeerLoss::GivenUp);
        self.shut_out(&mut self.lock_receiving(), error);
        self.report_loss(PeerLoss::GivenUp);
    }

    /// How the peer was lost, if it sent its farewell, was shut out or was given up.
    pub(super) fn closed(&self) -> Option<PeerLoss> {
        if self.is_given_up.load(Ordering::Acquire) {
            return Some(PeerLoss::GivenUp);
        }
        if !self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        match self.lock_receiving().broken {
            None => Some(PeerLoss::Left),
            Some(_) => Some(PeerLoss::ShutOut),
        }
    }

    /// Takes up to 64 messages from the socket while there is room. True if there may be more.
    ///
    /// Blocks only while other threads hold the lock, for as many messages.
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

    /// Takes the messages that a lost peer had sent, by several calls of [`pump`](Self::pump).
    ///
    /// Bounded, because a peer may still be sending.
    pub(super) fn pump_all(&self) {
        for _ in 0..MESSAGES_AFTER_DEADLINE / MESSAGES_PER_PUMP {
            if !self.pump() {
                return;
            }
        }
    }

    /// Ends the connection because the peer is lost. Wakes all waiters and calls the observers.
    pub(super) fn report_loss(&self, how: PeerLoss) {
        self.ended.get_or_init(|| self.lost_error(how));
        self.ended_wake.wake();
        {
            // With the lock, no waiter is between its check and its wait.
            let _state = self.lock_receiving();
            self.arrived.notify_all();
        }
        let all = {
            let mut observers = self.loss_observers.lock();
            observers.reported.push(how);
            observers.all.clone()
        };
        for observer in all {
            observer.peer_lost(&how);
        }
    }

    /// The sequence number that the next message must have. `None` if no more are taken.
    #[cfg(any(test, fuzzing))]
    pub(super) fn due(&self) -> Option<u64> {
        let state = self.lock_receiving();
        (!state.inbox.is_closed() && state.broken.is_none()).then(|| state.inbox.due())
    }

    #[cfg(test)]
    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// True while a thread polls the socket.
    #[cfg(test)]
    pub(super) fn has_poller(&self) -> bool {
        self.lock_receiving().has_poller
    }

    /// True while a thread waits for points to be received, because there is no room for more.
    #[cfg(test)]
    pub(super) fn has_full_inbox(&self) -> bool {
        self.lock_receiving().waiting_for_room > 0
    }

    pub(super) fn observe_loss(&self, observer: Arc<dyn LossObserver>) {
        let reported = {
            let mut observers = self.loss_observers.lock();
            observers.all.push(Arc::clone(&observer));
            observers.reported.clone()
        };
        // The guard checks more often from now on.
        self.guard_wake.wake();
        for how in reported {
            observer.peer_lost(&how);
        }
    }

    pub(super) fn has_loss_observers(&self) -> bool {
        !self.loss_observers.lock().all.is_empty()
    }

    pub(super) fn stop_observing(&self, observer: &Arc<dyn LossObserver>) {
        let is_same = |other: &Arc<dyn LossObserver>| Arc::ptr_eq(other, observer);
        let mut observers = self.loss_observers.lock();
        let found = observers.all.iter().position(is_same);
        let gone = found.map(|at| observers.all.swap_remove(at));
        // Dropping the observer may call this endpoint, so drop it without the lock.
        drop(observers);
        drop(gone);
    }
}
