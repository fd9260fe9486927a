//! One end of a connection to another process.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use syncline_core::backend::kit::Mutex;
use syncline_core::internal::DroppedByMaker;
use syncline_core::{Error, Result, error::Object, handle::Rejected};

use super::closing::Closer;
use super::connection::{Connection, LossObserver, naming_lost};
use super::message::{MAX_MESSAGE, Message, POINT_MESSAGE};
use super::numbers::NumberedTimelines;
use super::peer::Peer;
use super::poll::{Deadline, WakeFd, native};
use super::socket::Socket;
use super::{greeting, guard};
use crate::negotiate::Process;

/// One end of a connection to another process, with a thread that watches the peer process.
///
/// The connection is a Unix socket of type `SOCK_SEQPACKET`, which keeps message boundaries
/// (unix(7)).
///
/// An endpoint is cheap to clone. Dropping the last clone sends a farewell to the peer, closes the
/// connection and joins the endpoint's thread. That thread may be recording submissions that the
/// death of a peer released. So do not hold a lock during the drop that such work takes. In a
/// [forked](super#fork) child, the drop does nothing.
///
/// # Untrusted input
/// Every message has a version, a length of at most 16 KiB and a sequence number. The endpoint
/// checks the whole message before it uses any part of it. The kernel names the sender
/// (`SO_PASSCRED`). A message is invalid if it is malformed, truncated, too long, out of sequence,
/// from another process, or has a wrong number of descriptors. An invalid message closes the
/// endpoint. [`check`](Self::check) and every later call then return the same [`Error::Message`],
/// and the peer sees that this process has left.
///
/// The endpoint keeps at most 1024 points and 16 other messages that no call has received. One more
/// of the other messages closes the endpoint. With 1024 points, the endpoint reads nothing from the
/// socket until some points are received. A call that waits for something else then waits for that,
/// too, and its timeout error says so. The system bounds the messages in the socket, and the sender
/// waits.
///
/// A second thread, `syncline-close`, closes received descriptors that no call takes, because the
/// peer decides how long close(2) takes. No call waits for that thread.
///
/// # Objects
/// A process offers each timeline, memory or event. The receiver takes or refuses it. Then the
/// offering process settles it, once every receiver has taken it, or withdraws it. A receiver has
/// the object once it is settled. An endpoint keeps up to 16 offers, until a call asks for their
/// kind and label. While 1,024 offers of a process are neither settled nor withdrawn, each further
/// one is refused with [`Error::Unsupported`].
///
/// # Threads
/// Any number of threads may call any methods at the same time. One call receives each object and
/// each point. Only one thread can negotiate at a time.
///
/// # Opaque handles
/// Drivers do not check what an opaque descriptor refers to, and a descriptor of a wrong kind is
/// undefined behaviour. Therefore an endpoint refuses the kinds `timeline-opaque-fd`,
/// `binary-opaque-fd` and `memory-opaque-fd` and CUDA's event handles until the receiving
/// application calls [`trust_handles`](Self::trust_handles), which is `unsafe`. The home of a plan
/// only sends such handles, so it need not call it. The user of the peer process does not matter,
/// because a sandboxed process may run as the same user. Counters and words in shared memory are
/// checked on arrival, and are accepted from every process.
///
/// # Loss of the peer
/// The thread `syncline-peer` waits in poll(2) on the socket and on a descriptor of the peer
/// process (pidfd_open(2)). It notices at once that the peer has died, also by `SIGKILL`. It
/// notices within 300 ms that the peer has closed its end and is alive. Calls that wait for the
/// peer first receive what it had sent, and then return [`Error::PeerLost`]. If the system refuses
/// a descriptor of the process, only the end of the connection is noticed. See
/// [`watches_process`](Self::watches_process).
///
/// While the peer signals a shared timeline, the thread also reads /proc four times a second. So it
/// notices a process that no longer runs but has not ended: its core is being written, or its
/// drivers are releasing resources. A peer that has called execve(2) counts as dead if this process
/// is allowed to see that. Otherwise it counts as having left.
///
/// # Blocking
/// Calls with a timeout wait in poll(2) for at most that time. [`Duration::ZERO`] does not wait,
/// and [`Duration::MAX`] waits without limit. After its timeout, a call reads at most 1024 more
/// messages. It releases the lock for other threads after every 16 messages. A call that sends on a
/// closed connection may take 300 ms longer to find the reason. A call that has taken an object may
/// take one second longer to hear whether it is settled. Calls without a timeout do not block.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use syncline::process::Endpoint;
///
/// let (ours, theirs) = Endpoint::pair()?;
/// // `theirs` goes to a child, for example as its standard input. Here both ends are this process.
/// let child = std::thread::spawn(move || Endpoint::open(theirs, "child", Duration::from_secs(5)));
/// let endpoint = Endpoint::open(ours, "parent", Duration::from_secs(5))?;
/// assert_eq!(endpoint.peer().id, std::process::id());
/// endpoint.check()?;
/// # drop(child.join());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Endpoint(Arc<Inner>);

/// The data that all clones of an endpoint share. The watching thread shares only the connection.
struct Inner {
    connection: DroppedByMaker<Arc<Connection>>,
    guard: Option<JoinHandle<()>>,
    /// The timelines that messages refer to by number.
    timelines: NumberedTimelines,
    /// Withdrawals that the socket had no room for. They are sent before the next object.
    unsent_withdrawals: Mutex<VecDeque<Message>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let guard = self.guard.take();
        if !self.connection.maker().is_this() {
            // The thread runs in the parent, which shares the eventfd and the socket.
            std::mem::forget(guard);
            return;
        }
        self.connection.leave();
        let is_other = |guard: &JoinHandle<()>| guard.thread().id() != std::thread::current().id();
        if let Some(guard) = guard.filter(is_other) {
            // The thread does not panic. The panic hook reports panics of observers.
            let _ = guard.join();
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.object(), self.peer())
    }
}

impl Endpoint {
    /// Makes two connected sockets, one for each process (socketpair(2)).
    ///
    /// Both sockets are close-on-exec. Pass one to a child process as a standard stream or by a
    /// descriptor number. Close the child's socket in the parent once the child has started, as
    /// `std::process::Stdio` does.
    ///
    /// # Errors
    /// [`Error::Native`] if the system has no descriptors left.
    pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
        Socket::pair().map_err(|(call, errno)| native(&Object::new("endpoint", ""), call, errno))
    }

    /// Opens an endpoint over a connected socket.
    ///
    /// Sends a greeting, waits up to `timeout` for the peer's greeting, and starts the endpoint's
    /// threads. Any descriptor may be passed, because its type is checked. It gets the options
    /// `SO_PASSCRED` and close-on-exec. `label` names the endpoint in errors. The peer receives the
    /// first 64 bytes of it.
    ///
    /// # Errors
    /// Each error returns the open descriptor, through which messages may have been sent and
    /// received. Closing it also closes descriptors that a hostile peer has sent, which can block.
    /// [`connect`](Self::connect) and [`Listener`](super::Listener) close it on a thread instead.
    /// * [`Error::Import`] unless it is a connected Unix socket of type `SOCK_SEQPACKET`.
    /// * [`Error::PeerSilent`] if no greeting comes in time.
    /// * [`Error::PeerLost`] if the other end is closed.
    /// * [`Error::Message`] if the first message is not a greeting of this version, or names
    ///   another process than the kernel does. Both processes must be in one pid namespace
    ///   (pid_namespaces(7)).
    /// * [`Error::Native`] if a system call fails.
    pub fn open(fd: OwnedFd, label: &str, timeout: Duration) -> Result<Self, Rejected<OwnedFd>> {
        Self::over(fd, label, timeout, greeting::greet)
    }

    /// Same as [`open`](Self::open), with `greet` for the exchange of greetings.
    pub(super) fn over(
        fd: OwnedFd,
        label: &str,
        timeout: Duration,
        greet: impl FnOnce(&Object, &Socket, Deadline) -> Result<Peer>,
    ) -> Result<Self, Rejected<OwnedFd>> {
        let object = Object::new("endpoint", label);
        match Closer::start(&object) {
            Ok(closer) => Self::with(fd, object, closer, Deadline::after(timeout), greet),
            Err(error) => Err(Rejected { handle: fd, error }),
        }
    }

    /// Same as [`open`](Self::open), for a socket that this library made. On an error, `refused`
    /// closes it.
    pub(super) fn over_own(
        socket: OwnedFd,
        object: Object,
        refused: &Arc<Closer>,
        deadline: Deadline,
    ) -> Result<Self> {
        let opened = match Closer::start(&object) {
            Ok(closer) => Self::with(socket, object, closer, deadline, greeting::greet),
            Err(error) => Err(Rejected {
                handle: socket,
                error,
            }),
        };
        opened.map_err(|Rejected { handle, error }| {
            drop(refused.keep_socket(handle));
            error
        })
    }

    fn with(
        fd: OwnedFd,
        object: Object,
        closer: Arc<Closer>,
        deadline: Deadline,
        greet: impl FnOnce(&Object, &Socket, Deadline) -> Result<Peer>,
    ) -> Result<Self, Rejected<OwnedFd>> {
        if let Err(reason) = Socket::check(fd.as_fd()) {
            let what = format!("descriptor {}", fd.as_raw_fd());
            let error = Error::import(object, what, reason);
            return Err(Rejected { handle: fd, error });
        }
        let socket = match Socket::prepare(fd, &closer) {
            Ok(socket) => socket,
            Err((handle, call, errno)) => {
                let error = native(&object, call, errno);
                return Err(Rejected { handle, error });
            }
        };
        // Start the thread first, so that nothing can fail once the connection owns the descriptor.
        let (start, started) = sync_channel::<Arc<Connection>>(1);
        let guard = std::thread::Builder::new()
            .name("syncline-peer".into())
            .spawn(move || {
                if let Ok(connection) = started.recv() {
                    guard::watch(&connection);
                }
            });
        let guard = match guard {
            Ok(guard) => guard,
            Err(error) => {
                let error = Error::no_thread(&object, &error);
                let handle = socket.into_fd();
                return Err(Rejected { handle, error });
            }
        };
        let wake = || WakeFd::new(&object);
        let prepared = wake().and_then(|first| {
            let wakes = [first, wake()?, wake()?];
            Ok((wakes, greet(&object, &socket, deadline)?))
        });
        match prepared {
            Ok((wakes, peer)) => {
                let connection = Arc::new(Connection::new(object, socket, closer, peer, wakes));
                // The thread waits for this message.
                let _ = start.send(Arc::clone(&connection));
                Ok(Self(Arc::new(Inner {
                    connection: DroppedByMaker::new(connection),
                    guard: Some(guard),
                    timelines: NumberedTimelines::default(),
                    unsent_withdrawals: Mutex::default(),
                })))
            }
            Err(error) => {
                drop(start);
                // The thread ends because `start` is dropped. It does not panic.
                let _ = guard.join();
                let handle = socket.into_fd();
                Err(Rejected { handle, error })
            }
        }
    }

    /// Connects to a [`Listener`](super::Listener) of another process (connect(2)).
    ///
    /// Waits up to `timeout` for room in the listener's backlog and for the greeting.
    ///
    /// # Errors
    /// [`Error::Native`] if no process listens at `path`, or if this process may not connect to it.
    /// Otherwise the errors of [`open`](Self::open).
    pub fn connect(path: impl AsRef<Path>, label: &str, timeout: Duration) -> Result<Self> {
        let deadline = Deadline::after(timeout);
        let object = Object::new("endpoint", label);
        // Errors before the connection name the path. The peer gets the label alone.
        let attempt = Object::new(
            "endpoint",
            &format!("{label} to {}", path.as_ref().display()),
        );
        let failed = |call: &'static str| {
            let attempt = attempt.clone();
            move |errno| native(&attempt, call, errno)
        };
        let address = SocketAddrUnix::new(path.as_ref()).map_err(failed("connect"))?;
        let socket = Socket::unconnected().map_err(|(call, errno)| native(&object, call, errno))?;
        loop {
            // A send timeout of zero would mean no limit.
            let left = deadline
                .remaining()
                .map(|left| left.max(Duration::from_millis(1)));
            set_socket_timeout(&socket, Timeout::Send, left)
                .map_err(failed("setsockopt(SO_SNDTIMEO)"))?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if deadline.has_passed() => {
                    return Err(Error::peer_silent(
                        object,
                        0,
                        "make room for a connection",
                        deadline.waited(),
                    ));
                }
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(failed("connect")(errno)),
            }
        }
        let closer = Closer::start(&object)?;
        Self::over_own(socket, object, &closer, deadline)
    }

    /// The other process.
    #[must_use]
    pub fn peer(&self) -> &Process {
        self.connection().peer().process()
    }

    /// The label and id that errors use.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.connection().object()
    }

    /// Checks that the endpoint is usable, with two atomic loads.
    ///
    /// # Errors
    /// The error that ended it: [`Error::PeerLost`], or [`Error::Message`] after an invalid
    /// message, or [`Error::MadeBeforeFork`] in a forked child.
    pub fn check(&self) -> Result<()> {
        self.connection().check()
    }

    /// Checks that the endpoint notices the end of the peer process, not only of the connection.
    ///
    /// # Errors
    /// [`Error::Native`] with `ENOSYS`, `EPERM` or `EACCES` of pidfd_open(2), if the kernel is too
    /// old or a filter refuses the call.
    pub fn watches_process(&self) -> Result<()> {
        self.connection().peer().watched()
    }

    /// Gives up a peer that lives and does not answer, for example because it is stopped.
    ///
    /// Timelines over this endpoint that the peer signals fail in this process, with
    /// [`PeerLoss::GivenUp`](syncline_core::error::PeerLoss::GivenUp) as the cause. So waits for
    /// them end, held submissions are not run, and queues go on. The connection ends: every later
    /// call returns the same [`Error::PeerLost`], and the peer sees that this process has left.
    ///
    /// Nothing happens in other processes. The peer may go on and signal, but this process does not
    /// see that any more. The peer may also go on to write shared memory, so do not use that memory
    /// for anything else. Timelines that this process signals stay usable. A wait that a driver has
    /// already ends with the peer's signal, which a driver has, too. If the peer dies later, the
    /// wait ends as after any death.
    ///
    /// Held submissions are released on the calling thread. Later calls have no effect, nor has a
    /// call after the death of the peer.
    pub fn give_up(&self) {
        self.connection().give_up();
    }

    /// True once [`trust_handles`](Self::trust_handles) was called.
    #[must_use]
    pub fn trusts_handles(&self) -> bool {
        self.connection().is_trusted()
    }

    /// Accepts opaque handles of the peer process from now on.
    ///
    /// Opaque handles are descriptors of semaphores and of device memory, and CUDA's event handles.
    ///
    /// # Safety
    /// Each opaque handle that the peer sends refers to the kind of object that its message states.
    /// The driver that the message names has exported it. All signals of a timeline semaphore
    /// behind such a handle have increasing values. That holds in the peer and in every process
    /// that gets the semaphore from it.
    ///
    /// Drivers do not check this, and a violation is undefined behaviour. The condition holds for a
    /// program that exports with this library and that no attacker controls. It does not hold for a
    /// process that is sandboxed because it may be taken over.
    #[allow(
        unsafe_code,
        reason = "the kind of a foreign descriptor cannot be checked"
    )]
    pub unsafe fn trust_handles(&self) {
        self.connection().trust();
    }

    /// True in a forked child of the process that made the endpoint.
    pub(super) fn is_forked(&self) -> bool {
        !self.0.connection.maker().is_this()
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// Sends a message other than a point.
    pub(super) fn send(
        &self,
        message: &Message,
        fds: &[BorrowedFd<'_>],
        deadline: Deadline,
    ) -> Result<()> {
        let mut buffer = vec![0; MAX_MESSAGE];
        self.connection().send(message, fds, &mut buffer, deadline)
    }
}

/// Methods for carrying out plans.
impl Endpoint {
    /// Sends a point of an object, without allocating.
    ///
    /// Blocks up to `timeout` while the socket is full.
    ///
    /// # Errors
    /// [`Error::PeerSilent`], and then nothing was sent. Otherwise the errors of
    /// [`Endpoint::check`].
    pub(crate) fn send_point_of(&self, number: u32, value: u64, timeout: Duration) -> Result<()> {
        let mut buffer = [0; POINT_MESSAGE];
        let point = Message::Point { number, value };
        let deadline = Deadline::after(timeout);
        let sent = self.connection().send(&point, &[], &mut buffer, deadline);
        naming_lost(sent, deadline)
    }

    /// Receives the next point, as object number and value, without allocating.
    ///
    /// The number is the sender's. The value is below [`u64::MAX`] and otherwise unchecked.
    ///
    /// # Errors
    /// [`Error::PeerSilent`], and the errors of [`Endpoint::check`].
    pub(crate) fn receive_point_of(&self, timeout: Duration) -> Result<(u32, u64)> {
        let (connection, deadline) = (self.connection(), Deadline::after(timeout));
        let received = connection.receive("send a point", deadline, super::inbox::Inbox::point);
        naming_lost(received, deadline)
    }

    /// The timelines that messages refer to by number.
    pub(crate) fn numbered_timelines(&self) -> &NumberedTimelines {
        &self.0.timelines
    }

    /// Withdrawals that are still to be sent.
    pub(super) fn unsent_withdrawals(&self) -> &Mutex<VecDeque<Message>> {
        &self.0.unsent_withdrawals
    }

    /// Registers `observer`. If the peer is already lost, calls it at once on this thread.
    pub(crate) fn observe_loss(&self, observer: Arc<dyn LossObserver>) {
        self.connection().observe_loss(observer);
    }

    /// Unregisters `observer`. A call of it that has begun may still be running.
    pub(crate) fn stop_observing(&self, observer: &Arc<dyn LossObserver>) {
        self.connection().stop_observing(observer);
    }
}
