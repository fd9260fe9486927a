//! One end of a connection to another process.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use syncline_core::{Error, Object, Rejected, Result};

use super::closing::Closer;
use super::connection::Connection;
use super::message::{MOST, Message, POINT};
use super::peer::Peer;
use super::plan::Names;
use super::socket::{Bell, Patience, Socket, native};
use super::{Survivor, greeting, guard};
use crate::negotiate::Process;

/// One end of a connection to another process: a Unix socket that keeps messages apart (`SOCK_SEQPACKET`, see unix(7)), and a thread that watches over it.
///
/// Cheap to clone. When the last clone is dropped, the other side is told and everything is closed. In a child that this process [forks](super#fork), that does
/// nothing.
/// That joins the endpoint's thread, which may be recording submissions that a death has set free: so hold no lock then that such work takes.
///
/// # What it believes
/// Nothing. Every message has a version, a length of at most 16 KiB and its number in the sequence, and is checked as a whole
/// before anything of it is used; who has sent it is what the kernel says (`SO_PASSCRED`). After one that cannot be (malformed, cut short, too
/// long, out of turn, from another process, with too many descriptors or too few) the endpoint is closed: [`check`](Self::check) and every later call
/// return that [`Error::Message`], and the other side sees it as left. Received descriptors that no call takes are closed, by the endpoint's
/// second thread, `syncline-close`: the other side decides how long close(2) takes, and no call waits for that thread. At most 1024 points and 16
/// other messages wait here until they are asked for. One more of the others ends the endpoint, too. Behind so many points nothing is taken from the socket until some
/// are received: who waits for something else then waits for that as well, and at the end of its timeout says so. What waits in the socket
/// itself is bounded by the system, and a sender waits.
///
/// # Objects
/// What one side hands over (timelines, memory, events) is offered, taken or refused, and then settled or withdrawn: who receives has it once everybody has taken it who is to
/// have it, and an offer that was given up is gone. Sixteen that nobody has asked for wait here, each for a call that asks for its kind and its label.
///
/// # Threads
/// Every call may be made by any thread, and by several at once. Each object goes to one call that asks for it, each point to one of those that receive points.
/// One thread negotiates at a time.
///
/// # Opaque handles
/// Drivers do not check what is behind an opaque descriptor, and one of another kind is undefined behaviour in them. So
/// `timeline-opaque-fd`, `binary-opaque-fd` and `memory-opaque-fd`, and CUDA's handles of events, are refused until the application has said that it trusts the other process:
/// [`trust_handles`](Self::trust_handles), which is `unsafe`. It is called by the process that receives such handles; the home of a plan only sends them. The other process's user
/// does not matter: a sandboxed child runs as the same user, and may not attach a debugger. Counters and words in shared memory
/// can be judged, and are taken from every process.
///
/// # When the other process is gone
/// The thread, `syncline-peer`, sleeps in poll(2) on the socket and on a descriptor of the other process (pidfd_open(2)), and finds out within a moment
/// that it has died, also by `SIGKILL`, or within 300 ms that it has closed its end and lives. Every call that waits for it
/// ends then with [`Error::PeerLost`], after what it had sent before has been received. Where the system
/// refuses a descriptor of the process ([`watches_process`](Self::watches_process) says so) only the end of the connection is seen.
///
/// While a timeline is shared that the other process signals, the thread also wakes four times a second, to look in /proc whether that still runs: a process whose memory is being written to a core file, or whose
/// driver takes long to let go, is not told of otherwise. One that has become another program (execve(2)) counts as dead, too, where this process may see that, and otherwise as one that has left.
///
/// # Blocking
/// Calls with a timeout wait in poll(2) for at most so long; [`Duration::ZERO`] looks at what is there, and [`Duration::MAX`] has no end. However much the
/// other side sends, a call whose time is over takes no more than 1024 messages of it, and every few messages lets other threads have their turn. One that finds the
/// connection closed while it sends may take 300 ms longer to say why, and one that has taken an object and hears nothing more of it a second. None of the others blocks.
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
pub struct Endpoint(Arc<Handle>);

/// What applications have; the guard has the connection alone.
struct Handle {
    connection: Arc<Connection>,
    guard: Option<JoinHandle<()>>,
    /// The id of the process that has made it.
    maker: u32,
    /// The timelines that messages can name.
    names: Names,
    /// Withdrawals for which there was no room: they go before the next object.
    owed: Mutex<VecDeque<Message>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let guard = self.guard.take();
        if self.maker != std::process::id() {
            // The thread is the maker's, and the bell and the connection are shared with it.
            std::mem::forget(guard);
            return;
        }
        self.connection.leave();
        self.connection.is_dropped.store(true, Ordering::Release);
        self.connection.bell.ring();
        let is_other = |guard: &JoinHandle<()>| guard.thread().id() != std::thread::current().id();
        if let Some(guard) = guard.filter(is_other) {
            // It does not panic, and whatever a survivor does is reported by the panic hook.
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
    /// Two connected sockets, one for each process: socketpair(2). A child inherits one as a standard stream, or under a
    /// number that its parent sees to; programs that are started otherwise inherit neither. Close the child's in the parent once it has started,
    /// as `std::process::Stdio` does.
    ///
    /// # Errors
    /// [`Error::Native`] if the system has no descriptors left.
    pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
        Socket::pair().map_err(|(call, errno)| native(&Object::new("endpoint", ""), call, errno))
    }

    /// Over a socket that is connected to the other process: greets, and waits up to `timeout` for the other side's greeting. Starts the endpoint's thread.
    ///
    /// The descriptor is judged, so any may be given. From here on the kernel is asked to tell who sends (`SO_PASSCRED`), and programs that are started do not inherit
    /// it. `label` names the endpoint in errors; the other side is told 64 bytes of it.
    ///
    /// # Errors
    /// All with the descriptor, still open, though something may have been sent and received by it. Closing it releases what a
    /// hostile process has sent through it, which can block; [`connect`](Self::connect) and [`Listener`](super::Listener) leave that to a thread.
    /// * [`Error::Import`] if it is no connected Unix socket of type `SOCK_SEQPACKET`.
    /// * [`Error::PeerSilent`] if nobody greets in time, [`Error::PeerLost`] if the other end is closed.
    /// * [`Error::Message`] if what comes is no greeting of this version, or of another process than that which the kernel names. Both have to be of one
    ///   namespace of processes (pid_namespaces(7)).
    /// * [`Error::Native`] if the system refuses something: a descriptor, or the thread.
    pub fn open(fd: OwnedFd, label: &str, timeout: Duration) -> Result<Self, Rejected<OwnedFd>> {
        Self::over(fd, label, timeout, greeting::greet)
    }

    /// As [`open`](Self::open), getting to know the other side by `greet`.
    pub(super) fn over(
        fd: OwnedFd,
        label: &str,
        timeout: Duration,
        greet: impl FnOnce(&Object, &Socket, Patience) -> Result<Peer>,
    ) -> Result<Self, Rejected<OwnedFd>> {
        let object = Object::new("endpoint", label);
        match Closer::start(&object) {
            Ok(closer) => Self::with(fd, object, closer, Patience::of(timeout), greet),
            Err(error) => Err(Rejected { handle: fd, error }),
        }
    }

    /// As [`open`](Self::open), over a socket of this library's own: `refused` closes it if that fails.
    pub(super) fn over_own(
        socket: OwnedFd,
        object: Object,
        refused: &Arc<Closer>,
        patience: Patience,
    ) -> Result<Self> {
        let opened = match Closer::start(&object) {
            Ok(closer) => Self::with(socket, object, closer, patience, greeting::greet),
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
        patience: Patience,
        greet: impl FnOnce(&Object, &Socket, Patience) -> Result<Peer>,
    ) -> Result<Self, Rejected<OwnedFd>> {
        if let Err(reason) = Socket::judge(fd.as_fd()) {
            let what = format!("descriptor {}", fd.as_raw_fd());
            let error = Error::Import {
                object,
                what,
                reason,
            };
            return Err(Rejected { handle: fd, error });
        }
        let socket = match Socket::prepared(fd, &closer) {
            Ok(socket) => socket,
            Err((handle, call, errno)) => {
                let error = native(&object, call, errno);
                return Err(Rejected { handle, error });
            }
        };
        // The thread comes first, so that nothing can fail after the descriptor is given away.
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
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
                let error = native(&object, "pthread_create", errno);
                let handle = socket.into_fd();
                return Err(Rejected { handle, error });
            }
        };
        let bell = || Bell::new(&object);
        let prepared = bell().and_then(|first| {
            let bells = [first, bell()?, bell()?];
            Ok((bells, greet(&object, &socket, patience)?))
        });
        match prepared {
            Ok((bells, peer)) => {
                let connection = Arc::new(Connection::new(object, socket, closer, peer, bells));
                // It waits for this, and for nothing else.
                let _ = start.send(Arc::clone(&connection));
                Ok(Self(Arc::new(Handle {
                    connection,
                    guard: Some(guard),
                    maker: std::process::id(),
                    names: Names::default(),
                    owed: Mutex::default(),
                })))
            }
            Err(error) => {
                drop(start);
                // It has nothing to do, and does not panic.
                let _ = guard.join();
                let handle = socket.into_fd();
                Err(Rejected { handle, error })
            }
        }
    }

    /// Connects to a [`Listener`](super::Listener) of another process: see connect(2). Waits up to `timeout` until that has room for one more, and greets.
    ///
    /// # Errors
    /// [`Error::Native`] with what the system answers, where nobody listens at `path` or this process may not connect there;
    /// otherwise as [`open`](Self::open).
    pub fn connect(path: impl AsRef<Path>, label: &str, timeout: Duration) -> Result<Self> {
        let patience = Patience::of(timeout);
        let object = Object::new("endpoint", label);
        let failed = |call: &'static str| {
            let object = object.clone();
            move |errno| native(&object, call, errno)
        };
        let address = SocketAddrUnix::new(path.as_ref()).map_err(failed("connect"))?;
        let socket = Socket::unconnected().map_err(|(call, errno)| native(&object, call, errno))?;
        loop {
            // No time at all would mean for ever.
            let left = patience
                .left()
                .map(|left| left.max(Duration::from_millis(1)));
            set_socket_timeout(&socket, Timeout::Send, left)
                .map_err(failed("setsockopt(SO_SNDTIMEO)"))?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if patience.is_over() => {
                    return Err(Error::PeerSilent {
                        endpoint: object,
                        process: 0,
                        awaited: "make room for a connection".into(),
                        waited: patience.waited(),
                    });
                }
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(failed("connect")(errno)),
            }
        }
        let closer = Closer::start(&object)?;
        Self::over_own(socket, object, &closer, patience)
    }

    /// The other process.
    #[must_use]
    pub fn peer(&self) -> &Process {
        &self.connection().peer.process
    }

    /// Its name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.connection().object
    }

    /// Whether it can be used still: a load.
    ///
    /// # Errors
    /// What has ended it: [`Error::PeerLost`], or the [`Error::Message`] after which the other side was shut out.
    pub fn check(&self) -> Result<()> {
        self.connection().check()
    }

    /// Whether the end of the other process itself is seen, and not that of the connection alone.
    ///
    /// # Errors
    /// [`Error::Native`] with what pidfd_open(2) has answered: `ENOSYS`, `EPERM` or `EACCES`, from a system that is too old, or from a filter of its calls.
    pub fn watches_process(&self) -> Result<()> {
        self.connection().peer.watched()
    }

    /// Whether opaque handles are taken from the other process: once [`trust_handles`](Self::trust_handles) was called.
    #[must_use]
    pub fn trusts_handles(&self) -> bool {
        self.connection().is_trusted.load(Ordering::Relaxed)
    }

    /// Takes opaque handles from the other process from now on: descriptors of semaphores and memory, and CUDA's events.
    ///
    /// # Safety
    /// The other process is trusted: each opaque descriptor that it sends, and each handle of an event, holds what its message says, exported by the driver that the message names. A
    /// semaphore in it has signals of ever greater values, from that process and from all to which it gives the semaphore. Drivers check neither:
    /// what is otherwise leads to undefined behaviour. That is so for a program that exports by this library and that no attacker controls, for example this program itself, started by the same
    /// application. It is not so for a process that is sandboxed because it may be taken over.
    #[allow(
        unsafe_code,
        reason = "the kind of a foreign descriptor cannot be checked"
    )]
    pub unsafe fn trust_handles(&self) {
        self.connection().is_trusted.store(true, Ordering::Relaxed);
    }

    /// True in a process that the maker has forked.
    pub(super) fn is_forked(&self) -> bool {
        self.0.maker != std::process::id()
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.0.connection
    }

    /// Sends a message other than a point.
    pub(super) fn send(
        &self,
        message: &Message,
        fds: &[BorrowedFd<'_>],
        patience: Patience,
    ) -> Result<()> {
        let mut buffer = vec![0; MOST];
        self.connection().send(message, fds, &mut buffer, patience)
    }
}

/// For what carries plans out.
impl Endpoint {
    /// Sends a point of an object. Allocates nothing; blocks where the other side has not received earlier ones, up to `timeout`.
    ///
    /// # Errors
    /// [`Error::PeerSilent`], with nothing sent; and what has ended the endpoint.
    pub(crate) fn send_point_of(&self, number: u32, value: u64, timeout: Duration) -> Result<()> {
        let mut buffer = [0; POINT];
        let point = Message::Point { number, value };
        let patience = Patience::of(timeout);
        self.connection().send(&point, &[], &mut buffer, patience)
    }

    /// The next point: an object's number, as its sender gave it, and a value, which is less than [`u64::MAX`] and otherwise not judged. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::PeerSilent`], and what has ended the endpoint.
    pub(crate) fn receive_point_of(&self, timeout: Duration) -> Result<(u32, u64)> {
        let patience = Patience::of(timeout);
        self.connection()
            .receive("send a point", patience, super::inbox::Inbox::point)
    }

    /// The timelines that messages can name.
    pub(crate) fn names(&self) -> &Names {
        &self.0.names
    }

    /// Withdrawals that have yet to be sent.
    pub(super) fn owed(&self) -> &Mutex<VecDeque<Message>> {
        &self.0.owed
    }

    /// Tells `survivor` when the other process is lost; at once, on this thread, if it is.
    pub(crate) fn survive(&self, survivor: Arc<dyn Survivor>) {
        self.connection().survive(survivor);
    }

    /// Tells it no more. A call that has begun may still be under way.
    pub(crate) fn forget(&self, survivor: &Arc<dyn Survivor>) {
        self.connection().forget(survivor);
    }
}
