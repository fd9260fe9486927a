//! Driver calls that fail because a test ordered it, and counts of all calls.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What all exported functions of a driver ask before they run.
///
/// A gate that was never [used](Gate::count) costs one load.
#[derive(Debug, Default)]
pub struct Gate {
    counting: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The calls of each function: of the process's main thread, and of its other threads.
    calls: BTreeMap<&'static str, [u64; 2]>,
    /// The calls of each function that failed because of the order.
    failed: BTreeMap<&'static str, u64>,
    order: Option<Order>,
    /// True once the call of the order was made.
    is_due: bool,
    /// Objects that are created and not destroyed, by their kinds.
    objects: BTreeMap<&'static str, i64>,
    canaries: Vec<Canary>,
}

/// A file that got the number of a descriptor when the driver closed that.
#[derive(Debug)]
struct Canary {
    number: RawFd,
    inode: u64,
}

/// The kind of objects that canaries are, in [`Gate::live`].
const CANARIES: &str = "files-with-reused-numbers";

/// How a call continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As without a gate.
    Runs,
    /// It returns this code and has no effect.
    Fails(i32),
    /// It returns this code although it took effect.
    RunsAndFails(i32),
    /// It returns this code and has no effect, but it closes the descriptor that it was to take.
    ///
    /// See [`Gate::close`].
    Closes(i32),
}

/// The threads whose calls an order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Threads {
    Any,
    Main,
    Other,
}

/// What happens at the call of an order, and later.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mode {
    /// This call has no effect.
    Once,
    /// This call and all later calls of the function have no effect.
    Always,
    /// This call takes effect and fails.
    After,
    /// This call closes the descriptor that it was to take, and has no other effect.
    Closes,
    /// From this call on, the functions of a list fail as well.
    Lost {
        /// True for functions that take effect in spite of that.
        fails: BTreeMap<String, bool>,
        /// True if the first call takes effect.
        takes_effect: bool,
    },
}

/// One call that is to fail.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Order {
    function: String,
    threads: Threads,
    /// 1 for the first call.
    call: u64,
    code: i32,
    mode: Mode,
}

impl Order {
    /// Reads `FUNCTION:THREADS:CALL:CODE:MODE`, with `:LIST` if the mode is `lost`.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let mut next = || parts.next();
        let function = next()?.to_owned();
        let threads = match next()? {
            "any" => Threads::Any,
            "main" => Threads::Main,
            "other" => Threads::Other,
            _ => return None,
        };
        let call = next()?.parse().ok().filter(|call| *call > 0)?;
        let code = next()?.parse().ok().filter(|code| *code != 0)?;
        let mode = match (next()?, next()) {
            ("once", None) => Mode::Once,
            ("always", None) => Mode::Always,
            ("after", None) => Mode::After,
            ("closes", None) => Mode::Closes,
            (mode @ ("lost" | "lost-after"), Some(list)) => {
                let names = list.split(',').filter(|name| !name.is_empty());
                let marked = |name: &str| match name.strip_suffix('!') {
                    Some(name) => (name.to_owned(), true),
                    None => (name.to_owned(), false),
                };
                Mode::Lost {
                    fails: names.map(marked).collect(),
                    takes_effect: mode == "lost-after",
                }
            }
            _ => return None,
        };
        let order = Self {
            function,
            threads,
            call,
            code,
            mode,
        };
        parts.next().is_none().then_some(order)
    }
}

impl Gate {
    /// A gate without an order, which counts nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            counting: AtomicBool::new(false),
            state: Mutex::new(State {
                calls: BTreeMap::new(),
                failed: BTreeMap::new(),
                order: None,
                is_due: false,
                objects: BTreeMap::new(),
                canaries: Vec::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts calls from now on, beginning with 0. Withdraws an order.
    pub fn count(&self) {
        let mut state = self.state();
        state.calls.clear();
        state.failed.clear();
        state.order = None;
        state.is_due = false;
        self.counting.store(true, Ordering::Release);
    }

    /// Begins to count, as [`Gate::count`] does, and orders a call to fail.
    ///
    /// The order is `FUNCTION:THREADS:CALL:CODE:MODE`.
    ///
    /// - `THREADS` is `main`, `other` or `any`; only the calls of these threads count.
    /// - `CALL` is 1 for the first call.
    /// - `MODE` is `once`, `always`, `after` (the call fails although it took effect), `closes` (an
    ///   import fails and closes its descriptor, as lavapipe does), or `lost`. After `lost:` comes
    ///   a list of functions, separated by commas. They all fail from that call on. A function with
    ///   `!` takes effect and fails. With `lost-after:` the call itself takes effect, too.
    ///
    /// False if the text is no order.
    pub fn arm(&self, order: &str) -> bool {
        let Some(order) = Order::read(order) else {
            return false;
        };
        self.count();
        self.state().order = Some(order);
        true
    }

    /// Withdraws the order. Returns how many calls have failed because of it.
    ///
    /// Closes the files of [`Gate::close`]. One that is closed already stays among the live
    /// objects, as the caller of the driver has closed it.
    pub fn disarm(&self) -> u64 {
        let mut state = self.state();
        state.order = None;
        state.is_due = false;
        for canary in std::mem::take(&mut state.canaries) {
            if let Some(file) = canary.found() {
                drop(file);
                *state.objects.entry(CANARIES).or_default() -= 1;
            }
        }
        state.failed.values().sum()
    }

    /// True while calls fail as for a lost device.
    pub fn is_lost(&self) -> bool {
        let state = self.state();
        let mode = state.order.as_ref().map(|order| &order.mode);
        state.is_due && matches!(mode, Some(Mode::Lost { .. }))
    }

    /// Counts a call, and returns whether it fails.
    #[inline]
    pub fn before(&self, function: &'static str) -> Verdict {
        if !self.counting.load(Ordering::Acquire) {
            return Verdict::Runs;
        }
        self.state().before(function, is_main_thread())
    }

    /// Closes the descriptor of a refused import, and opens another file with its number.
    ///
    /// So it is as if another thread had opened a file in that moment. The file counts as a live
    /// object until [`Gate::disarm`].
    pub fn close(&self, number: RawFd) {
        if let Ok(canary) = Canary::open(number) {
            let mut state = self.state();
            state.canaries.push(canary);
            *state.objects.entry(CANARIES).or_default() += 1;
        }
    }

    /// Counts objects that were created, or destroyed if `more` is negative.
    pub fn objects(&self, kind: &'static str, more: i64) {
        *self.state().objects.entry(kind).or_default() += more;
    }

    /// One line for each function that was called since [`Gate::count`].
    ///
    /// A line has the function's name, its calls on the main thread, on other threads, and the
    /// number of calls that failed because of the order.
    #[must_use]
    pub fn calls(&self) -> String {
        let state = self.state();
        let mut lines = String::new();
        for (function, [main, other]) in &state.calls {
            let failed = state.failed.get(function).copied().unwrap_or(0);
            let _ = writeln!(lines, "{function} {main} {other} {failed}");
        }
        lines
    }

    /// One line for each kind of objects: its name and the number of live ones.
    #[must_use]
    pub fn live(&self) -> String {
        let state = self.state();
        let mut lines = String::new();
        for (kind, live) in &state.objects {
            let _ = writeln!(lines, "{kind} {live}");
        }
        lines
    }
}

impl State {
    fn before(&mut self, function: &'static str, is_main: bool) -> Verdict {
        let calls = self.calls.entry(function).or_default();
        calls[usize::from(!is_main)] += 1;
        let [main, other] = *calls;
        let Some(order) = &self.order else {
            return Verdict::Runs;
        };
        let (number, counts) = match order.threads {
            Threads::Any => (main + other, true),
            Threads::Main => (main, is_main),
            Threads::Other => (other, !is_main),
        };
        let is_named = order.function == function;
        let is_first = is_named && counts && number == order.call && !self.is_due;
        let was_due = self.is_due;
        self.is_due |= is_first;
        let verdict = match &order.mode {
            Mode::Once if is_first => Verdict::Fails(order.code),
            Mode::After if is_first => Verdict::RunsAndFails(order.code),
            Mode::Closes if is_first => Verdict::Closes(order.code),
            Mode::Always if is_first || (was_due && is_named) => Verdict::Fails(order.code),
            Mode::Lost {
                takes_effect: true, ..
            } if is_first => Verdict::RunsAndFails(order.code),
            Mode::Lost { fails, .. } if is_first || was_due => match fails.get(function) {
                Some(true) => Verdict::RunsAndFails(order.code),
                Some(false) => Verdict::Fails(order.code),
                None if is_named => Verdict::Fails(order.code),
                None => Verdict::Runs,
            },
            _ => Verdict::Runs,
        };
        if verdict != Verdict::Runs {
            *self.failed.entry(function).or_default() += 1;
        }
        verdict
    }
}

impl Canary {
    fn open(number: RawFd) -> rustix::io::Result<Self> {
        let file = rustix::fs::memfd_create("canary", rustix::fs::MemfdFlags::CLOEXEC)?;
        let inode = rustix::fs::fstat(&file)?.st_ino;
        // SAFETY: the descriptor that the application has passed to an import. This closes it, and
        // nothing owns the new file but the canary.
        #[allow(unsafe_code, reason = "the application's descriptor")]
        let mut replaced = unsafe { OwnedFd::from_raw_fd(number) };
        let done = rustix::io::dup3(&file, &mut replaced, rustix::io::DupFlags::CLOEXEC);
        let number = replaced.into_raw_fd();
        done.map(|()| Self { number, inode })
    }

    /// The file, if its number still stands for it.
    fn found(&self) -> Option<OwnedFd> {
        // SAFETY: not -1. If it is not open, the system says so.
        #[allow(unsafe_code, reason = "a number that may have been closed")]
        let file = unsafe { BorrowedFd::borrow_raw(self.number) };
        let status = rustix::fs::fstat(file.as_fd()).ok()?;
        // SAFETY: the canary's own file, which only this owns. No two memfds have one inode.
        #[allow(unsafe_code, reason = "as above")]
        (status.st_ino == self.inode).then(|| unsafe { OwnedFd::from_raw_fd(self.number) })
    }
}

fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Copies a text with a final 0 to memory of a C program, if it fits.
///
/// Returns the number of bytes that it needs.
///
/// # Safety
/// `to` is null or valid for writes of `room` bytes.
#[allow(unsafe_code, reason = "writes to memory of a C program")]
pub unsafe fn give_text(text: &str, to: *mut u8, room: usize) -> usize {
    let needed = text.len() + 1;
    if !to.is_null() && needed <= room {
        // SAFETY: by this function's contract, and the text is in other memory.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len());
            to.add(text.len()).write(0);
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts<const N: usize>(order: &str, calls: [&'static str; N]) -> [Verdict; N] {
        let gate = Gate::new();
        assert!(gate.arm(order), "{order}");
        calls.map(|function| gate.before(function))
    }

    #[test]
    fn a_gate_without_a_use_counts_nothing() {
        let gate = Gate::new();
        assert_eq!(gate.before("a"), Verdict::Runs);
        assert_eq!(gate.calls(), "");
        gate.count();
        assert_eq!(gate.before("a"), Verdict::Runs);
        assert_eq!(gate.before("a"), Verdict::Runs);
        // The harness runs a test on a thread of its own.
        assert_eq!(gate.calls(), "a 0 2 0\n");
    }

    #[test]
    fn each_mode_fails_its_calls() {
        use Verdict::{Fails, Runs, RunsAndFails};
        let calls = ["a", "b", "a", "b", "a"];
        let once = verdicts("a:any:2:-4:once", calls);
        assert_eq!(once, [Runs, Runs, Fails(-4), Runs, Runs]);
        let after = verdicts("a:other:2:7:after", calls);
        assert_eq!(after, [Runs, Runs, RunsAndFails(7), Runs, Runs]);
        let closes = verdicts("a:any:1:7:closes", calls);
        assert_eq!(closes, [Verdict::Closes(7), Runs, Runs, Runs, Runs]);
        let always = verdicts("a:any:2:7:always", calls);
        assert_eq!(always, [Runs, Runs, Fails(7), Runs, Fails(7)]);
        let lost = verdicts("a:any:1:7:lost:b!,c", calls);
        let both = RunsAndFails(7);
        assert_eq!(lost, [Fails(7), both, Fails(7), both, Fails(7)]);
        let lost = verdicts("a:any:1:7:lost-after:b", calls);
        assert_eq!(lost, [both, Fails(7), Fails(7), Fails(7), Fails(7)]);
        assert_eq!(verdicts("a:main:1:7:always", calls), [Runs; 5]);
    }

    #[test]
    fn an_order_ends() {
        let gate = Gate::new();
        assert!(gate.arm("a:any:1:7:always"));
        assert_eq!(gate.before("a"), Verdict::Fails(7));
        assert_eq!(gate.calls(), "a 0 1 1\n");
        assert_eq!(gate.disarm(), 1);
        assert_eq!(gate.before("a"), Verdict::Runs);
    }

    #[test]
    fn senseless_orders_are_refused() {
        let gate = Gate::new();
        for order in [
            "",
            "a",
            "a:any:1:0:once",
            "a:any:0:1:once",
            "a:all:1:1:once",
            "a:any:1:1:never",
            "a:any:1:1:lost",
            "a:any:1:1:once:b",
        ] {
            assert!(!gate.arm(order), "{order}");
        }
    }

    #[test]
    fn a_canary_that_was_closed_stays_among_the_objects() {
        let gate = Gate::new();
        for is_closed in [false, true] {
            let given = std::io::pipe().unwrap().0;
            let number = given.into_raw_fd();
            gate.close(number);
            assert_eq!(gate.live(), "files-with-reused-numbers 1\n");
            if is_closed {
                // SAFETY: the canary's number, which is closed as by a defect.
                #[allow(unsafe_code, reason = "closes it as a defect would")]
                drop(unsafe { OwnedFd::from_raw_fd(number) });
            }
            gate.disarm();
            let left = i32::from(is_closed);
            assert_eq!(gate.live(), format!("files-with-reused-numbers {left}\n"));
        }
    }

    #[test]
    fn objects_are_counted_by_kind() {
        let gate = Gate::new();
        gate.objects("event", 2);
        gate.objects("event", -1);
        assert_eq!(gate.live(), "event 1\n");
    }
}
