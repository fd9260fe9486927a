//! What both ends of an endpoint's life share: its handles, and the thread that watches over it.

use std::borrow::Cow;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use syncline_core::{Error, Object, PeerLoss, Result};

use super::Survivor;
use super::closing::Closer;
use super::control::Received;
use super::inbox::Inbox;
use super::message::{HEADER, Message};
use super::peer::Peer;
use super::socket::{Bell, Patience, Socket, native, wait};
use super::wire::{Malformed, TooMuch};

/// Longer than the guard takes to find out how the other process was lost.
const VERDICT: Duration = Duration::from_secs(1);

/// Messages that one thread takes from the socket in a row, before others have their turn.
const IN_A_ROW: u32 = 16;

/// Messages that are taken in one turn for nobody in particular.
const TURN: u32 = 64;

/// Messages that it takes once its time is over, for one that was there in time. Whoever goes on sending keeps nobody for longer.
const OVERDUE: u32 = 1024;

/// Between two looks at a message for whose descriptors there was no room: nothing tells when there is.
const NO_ROOM_NAP: Duration = Duration::from_millis(10);

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
    /// Held on the way to `receiving`: who comes out and in again lets those in first who stand there, as the lock alone does not.
    door: Mutex<()>,
    /// Something has been put into the inbox, or there is room for points again, or who read the socket does so no more.
    arrived: Condvar,
    /// The first thing that ended it.
    ended: OnceLock<Error>,
    /// Rings for good once it has ended.
    over: Bell,
    /// Wakes who sleeps at the socket: another has taken something out of it.
    nudge: Bell,
    /// Wakes the guard.
    pub(super) bell: Bell,
    /// Nobody has the endpoint any more.
    pub(super) is_dropped: AtomicBool,
    /// The other side said that it goes, or was shut out.
    is_closed: AtomicBool,
    survivors: Mutex<Survivors>,
    pub(super) is_trusted: AtomicBool,
    pub(super) next_number: AtomicU32,
    /// The round of the last negotiation.
    pub(super) rounds: Mutex<u32>,
}

struct Receiving {
    inbox: Inbox,
    /// Somebody sleeps at the socket, and wakes the others.
    is_watched: bool,
    /// He was woken by one of them.
    is_nudged: bool,
    /// So many wait until there is room for points.
    waiting_for_room: u32,
    /// Nothing comes out of the socket any more.
    at_end: bool,
    /// Something came that cannot be.
    broken: Option<Error>,
}

#[derive(Default)]
struct Survivors {
    all: Vec<Arc<dyn Survivor>>,
    /// How it was lost, as they have been told: once, and once more if it dies later.
    told: Vec<PeerLoss>,
}

/// What one look into the socket gave.
enum Look {
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
        bells: [Bell; 3],
    ) -> Self {
        let [over, nudge, bell] = bells;
        Self {
            object,
            socket,
            closer,
            peer,
            sending: Mutex::new(1),
            receiving: Mutex::new(Receiving {
                inbox: Inbox::new(),
                is_watched: false,
                is_nudged: false,
                waiting_for_room: 0,
                at_end: false,
                broken: None,
            }),
            door: Mutex::default(),
            arrived: Condvar::new(),
            ended: OnceLock::new(),
            over,
            nudge,
            bell,
            is_dropped: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            survivors: Mutex::default(),
            is_trusted: AtomicBool::new(false),
            next_number: AtomicU32::new(1),
            rounds: Mutex::new(0),
        }
    }

    /// What ended it, once something has.
    pub(super) fn check(&self) -> Result<()> {
        self.ended.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn lost(&self, how: PeerLoss) -> Error {
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
        patience: Patience,
    ) -> Error {
        Error::PeerSilent {
            endpoint: self.object.clone(),
            process: self.peer.process.id,
            awaited: awaited.into(),
            waited: patience.waited(),
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
        patience: Patience,
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
                Err(Errno::AGAIN) if patience.is_over() => {
                    return Err(self.silent("make room for a message", patience));
                }
                Err(Errno::AGAIN) => {
                    let mut asked = [self.socket.writable(), self.over.heard()];
                    self.sleep(&mut asked, patience)?;
                }
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(self.verdict()),
                Err(errno) => return Err(native(&self.object, "sendmsg", errno)),
            }
        }
    }

    /// Says goodbye, if that can be done at once. Who does not hear it sees that the socket is closed.
    pub(super) fn leave(&self) {
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
    fn verdict(&self) -> Error {
        let patience = Patience::of(VERDICT);
        loop {
            if let Err(error) = self.check() {
                return error;
            }
            if patience.is_over() || self.sleep(&mut [self.over.heard()], patience).is_err() {
                return self.lost(PeerLoss::HungUp);
            }
        }
    }

    fn sleep(&self, asked: &mut [rustix::event::PollFd<'_>], patience: Patience) -> Result<()> {
        wait(asked, patience).map_err(|errno| native(&self.object, "poll", errno))
    }

    /// What has arrived, behind everybody who waits for it already.
    fn enter(&self) -> MutexGuard<'_, Receiving> {
        let _door = locked(&self.door);
        locked(&self.receiving)
    }

    /// Waits until `take` finds what it looks for among what has arrived.
    ///
    /// Takes messages from the socket as long as there is room for points: behind that, who looks for something else waits until some are received, and the other
    /// side until there is room in the socket.
    ///
    /// # Errors
    /// [`Error::PeerSilent`] if that has not come in time, and what has ended the endpoint once nothing is left in the socket, or nothing more can be taken from it.
    pub(super) fn receive<T>(
        &self,
        awaited: &'static str,
        patience: Patience,
        mut take: impl FnMut(&mut Inbox) -> Option<T>,
    ) -> Result<T> {
        let mut state = self.enter();
        let (mut looks, mut overdue) = (0_u32, 0);
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
            if overdue >= OVERDUE {
                return Err(self.silent(awaited, patience));
            }
            // Before the look: what it sent before it went is in the socket then.
            let ended = self.check();
            // Not so for who looks for points, as there is none.
            let is_full = !state.inbox.has_room_for_points();
            let looked = match is_full {
                true => Look::Nothing,
                false => self.look(&mut state),
            };
            if let Look::Message = looked {
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(IN_A_ROW) {
                    drop(state);
                    state = self.enter();
                    if patience.is_over() {
                        overdue += IN_A_ROW;
                    }
                }
                continue;
            }
            ended?;
            let has_no_room = matches!(looked, Look::NoRoom);
            if patience.is_over() {
                let awaited = match (is_full, has_no_room) {
                    (true, _) => BEHIND_POINTS,
                    (_, true) => BEHIND_DESCRIPTORS,
                    _ => awaited,
                };
                return Err(self.silent(awaited, patience));
            }
            if has_no_room {
                drop(state);
                self.sleep(&mut [self.over.heard()], patience.slice(NO_ROOM_NAP))?;
                state = self.enter();
                continue;
            }
            if state.is_watched || is_full {
                state.waiting_for_room += u32::from(is_full);
                state = match patience.left() {
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
            state.is_watched = true;
            let at_end = state.at_end;
            drop(state);
            let mut asked = [
                self.over.heard(),
                self.nudge.heard(),
                self.socket.readable(),
            ];
            // The end of the stream is readable for ever.
            let asked = if at_end {
                &mut asked[..2]
            } else {
                &mut asked[..]
            };
            let slept = self.sleep(asked, patience);
            state = self.enter();
            state.is_watched = false;
            if std::mem::take(&mut state.is_nudged) {
                self.nudge.hush();
            }
            // One of the others sleeps there next, if this one has got what it wants.
            self.arrived.notify_all();
            slept?;
        }
    }

    pub(super) fn with_inbox(&self, act: impl FnOnce(&mut Inbox)) {
        act(&mut self.enter().inbox);
    }

    /// Takes a message from the socket, if there is one.
    fn look(&self, state: &mut Receiving) -> Look {
        if state.at_end || state.broken.is_some() {
            return Look::Nothing;
        }
        match self
            .socket
            .peek(&mut state.inbox.buffer, Some(&self.closer))
        {
            Err(Errno::AGAIN) => return Look::Nothing,
            Err(errno) => {
                let error = native(&self.object, "recvmsg", errno);
                self.shut_out(state, error);
            }
            Ok(end) if end.bytes == 0 && end.from.is_none() && end.descriptors.is_empty() => {
                state.at_end = true;
                return Look::Nothing;
            }
            Ok(received) => match self.take(state, received) {
                Ok(false) => return Look::NoRoom,
                Ok(true) => {
                    self.socket.consume();
                    if state.inbox.is_closed() {
                        self.is_closed.store(true, Ordering::Release);
                        self.bell.ring();
                    }
                }
                // It stays in the socket, which may hold descriptors for which there is no room, and is closed with it.
                Err(Malformed { expected, found }) => {
                    self.shut_out(state, self.unexpected(expected, found));
                }
            },
        }
        self.arrived.notify_all();
        if state.is_watched && !state.is_nudged {
            state.is_nudged = true;
            self.nudge.ring();
        }
        Look::Message
    }

    fn take(&self, state: &mut Receiving, received: Received) -> Result<bool, Malformed> {
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
        state.inbox.take(received)
    }

    /// After something that cannot be: nothing more is taken from the other side, nor sent to it.
    fn shut_out(&self, state: &mut Receiving, error: Error) {
        state.inbox.clear();
        state.at_end = true;
        state.broken = Some(self.ended.get_or_init(|| error).clone());
        self.is_closed.store(true, Ordering::Release);
        self.socket.shut_down();
        self.over.ring();
        self.bell.ring();
    }

    /// How the other side is known to be lost without looking at it: it said that it goes, or was shut out.
    pub(super) fn closed(&self) -> Option<PeerLoss> {
        if !self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        match self.enter().broken {
            None => Some(PeerLoss::Left),
            Some(_) => Some(PeerLoss::ShutOut),
        }
    }

    /// Takes in what is in the socket, as far as there is room: at most 64 messages, however many the other side sends. True
    /// if there may be more. Blocks no longer than others hold the lock, for as many messages.
    pub(super) fn pump(&self) -> bool {
        let mut state = self.enter();
        for _ in 0..TURN {
            if state.inbox.is_full() {
                return false;
            }
            let Look::Message = self.look(&mut state) else {
                return false;
            };
        }
        true
    }

    /// As [`pump`](Self::pump), in several turns, for what a process sent that is gone. One that goes on sending is not
    /// followed for ever.
    pub(super) fn pump_all(&self) {
        for _ in 0..OVERDUE / TURN {
            if !self.pump() {
                return;
            }
        }
    }

    /// The other side is lost: everybody who waits hears of it, and who has to survive it.
    pub(super) fn lose(&self, how: PeerLoss) {
        self.ended.get_or_init(|| self.lost(how));
        self.over.ring();
        {
            // Nobody is between looking and sleeping.
            let _state = self.enter();
            self.arrived.notify_all();
        }
        let all = {
            let mut survivors = locked(&self.survivors);
            survivors.told.push(how);
            survivors.all.clone()
        };
        for survivor in all {
            survivor.lost(&how);
        }
    }

    /// The number of the next message that is taken; `None` if none is.
    #[cfg(any(test, fuzzing))]
    pub(super) fn due(&self) -> Option<u64> {
        let state = self.enter();
        (!state.inbox.is_closed() && state.broken.is_none()).then(|| state.inbox.due())
    }

    /// Somebody sleeps at the socket, or is about to.
    #[cfg(test)]
    pub(super) fn is_watched(&self) -> bool {
        self.enter().is_watched
    }

    /// Somebody sleeps until there is room for points.
    #[cfg(test)]
    pub(super) fn waits_for_room(&self) -> bool {
        self.enter().waiting_for_room > 0
    }

    pub(super) fn survive(&self, survivor: Arc<dyn Survivor>) {
        let told = {
            let mut survivors = locked(&self.survivors);
            survivors.all.push(Arc::clone(&survivor));
            survivors.told.clone()
        };
        // The guard looks more often from now on.
        self.bell.ring();
        for how in told {
            survivor.lost(&how);
        }
    }

    pub(super) fn has_survivors(&self) -> bool {
        !locked(&self.survivors).all.is_empty()
    }

    pub(super) fn forget(&self, survivor: &Arc<dyn Survivor>) {
        let known = |other: &Arc<dyn Survivor>| Arc::ptr_eq(other, survivor);
        let mut survivors = locked(&self.survivors);
        let found = survivors.all.iter().position(known);
        let gone = found.map(|at| survivors.all.swap_remove(at));
        // What it drops may be somebody's who has to do with this endpoint.
        drop(survivors);
        drop(gone);
    }
}
