//! Counts the system calls of a thread, and of all threads that are started from there.
//!
//! A seccomp filter reports each call to a thread without a filter. That thread notes the call and
//! lets the kernel continue. So a call counts before it is made, from this project, the standard
//! library or a driver. See seccomp_unotify(2).
#![allow(unsafe_code, reason = "the kernel's interface has no safe one")]

use std::collections::BTreeMap;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use libc::{SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_SET_MODE_FILTER, c_int, c_long};

/// A thread's id in the system.
pub(crate) type Thread = i32;

/// Number of threads that are counted separately. Later ones count as one thread.
const THREADS: usize = 256;
/// Number of calls that are counted separately.
const CALLS: usize = 512;

/// The counts so far.
///
/// Not behind a lock. A thread under the filter could hold it, and its unlock could be a system
/// call that waits for the counting thread.
pub(crate) struct Calls {
    /// [`UNKNOWN`] until the filter is there, or [`NONE`] if there can be none.
    listener: AtomicI32,
    /// In the order of their first calls. 0 after the last.
    threads: Vec<AtomicI32>,
    /// The counts of one thread after the other.
    made: Vec<AtomicU64>,
}

const UNKNOWN: i32 = -1;
const NONE: i32 = -2;

impl Calls {
    fn new() -> Self {
        let mut made = Vec::new();
        made.resize_with(THREADS * CALLS, AtomicU64::default);
        let mut threads = Vec::new();
        threads.resize_with(THREADS, AtomicI32::default);
        Self {
            listener: AtomicI32::new(UNKNOWN),
            threads,
            made,
        }
    }

    /// Counts a call. Called by the supervising thread only.
    fn note(&self, thread: Thread, call: c_int) {
        let known = |at: &usize| [0, thread].contains(&self.threads[*at].load(Ordering::Relaxed));
        let at = (0..THREADS).find(known).unwrap_or(THREADS - 1);
        self.threads[at].store(thread, Ordering::Relaxed);
        let call = usize::try_from(call).unwrap_or(CALLS).min(CALLS - 1);
        self.made[at * CALLS + call].fetch_add(1, Ordering::Release);
    }

    /// Calls `tell` for each thread and each of its calls, with the count. Makes no call itself.
    pub(crate) fn each(&self, mut tell: impl FnMut(Thread, c_int, u64)) {
        for (thread, made) in self.threads.iter().zip(self.made.chunks(CALLS)) {
            let thread = thread.load(Ordering::Relaxed);
            if thread == 0 {
                break;
            }
            for (call, made) in made.iter().enumerate() {
                let made = made.load(Ordering::Acquire);
                if made > 0 {
                    tell(thread, call as c_int, made);
                }
            }
        }
    }

    /// Sums the counts for which `counts` returns true. Makes no call itself.
    pub(crate) fn count(&self, counts: impl Fn(Thread, c_int) -> bool) -> u64 {
        let mut all = 0;
        self.each(|thread, call, made| all += made * u64::from(counts(thread, call)));
        all
    }

    /// Returns the counts of one thread, by the calls' numbers.
    pub(crate) fn made_by(&self, thread: Thread) -> BTreeMap<c_int, u64> {
        let mut all = BTreeMap::new();
        self.each(|by, call, made| {
            if by == thread {
                all.insert(call, made);
            }
        });
        all
    }

    /// Counts calls and lets them continue, while there is a thread under the filter.
    fn supervise(&self) {
        // Polls, because the filtered thread cannot signal this one before its calls are answered.
        let listener = loop {
            match self.listener.load(Ordering::Acquire) {
                UNKNOWN => std::thread::sleep(Duration::from_millis(1)),
                NONE => return,
                // SAFETY: the kernel made the descriptor, and only this closes it.
                fd => break unsafe { OwnedFd::from_raw_fd(fd) },
            }
        };
        loop {
            let mut ready = libc::pollfd {
                fd: listener.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one structure, which lives through the call.
            unsafe { libc::poll(&raw mut ready, 1, -1) };
            if ready.revents & libc::POLLIN == 0 {
                if ready.revents != 0 {
                    return;
                }
                continue;
            }
            // SAFETY: a structure of integers, which may be zero. The kernel requires zeroes.
            let mut call: libc::seccomp_notif = unsafe { zeroed() };
            let fd = listener.as_raw_fd();
            // SAFETY: the kernel writes one structure of this type.
            if unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) } != 0 {
                // The thread that made the call has ended meanwhile.
                continue;
            }
            self.note(call.pid as Thread, call.data.nr);
            let mut answer = libc::seccomp_notif_resp {
                id: call.id,
                val: 0,
                error: 0,
                flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
            };
            // SAFETY: the kernel reads one structure of this type. It fails if the thread has
            // ended.
            unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
        }
    }
}

/// Runs `what` on a new thread. Counts its calls and those of all threads that it starts.
///
/// # Errors
/// The reason why that is impossible here.
pub(crate) fn counted<T: Send>(what: impl FnOnce(&Calls) -> T + Send) -> io::Result<T> {
    let calls = Arc::new(Calls::new());
    let supervisor = calls.clone();
    // A driver's threads may live for ever, and so may this one.
    std::thread::spawn(move || supervisor.supervise());
    std::thread::scope(|scope| {
        let filtered = scope.spawn(|| {
            let listener = filter();
            let fd = listener.as_ref().map_or(NONE, |fd| *fd);
            calls.listener.store(fd, Ordering::Release);
            listener.map(|_| what(&calls))
        });
        filtered
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Puts the calling thread under a filter that reports each system call.
///
/// Calls that end a thread or a signal handler are not reported.
fn filter() -> io::Result<i32> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUALS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        // A filter finds the call's number first in its data.
        step(LOAD, 0, 0, 0),
        step(EQUALS, 2, 0, libc::SYS_exit as u32),
        step(EQUALS, 1, 0, libc::SYS_rt_sigreturn as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: only keeps this thread from starting programs with more rights. A filter without
    // rights of its own needs that.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the program and its steps live through the call, which copies them.
    let fd: c_long = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            SECCOMP_SET_MODE_FILTER,
            SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd as i32)
}
