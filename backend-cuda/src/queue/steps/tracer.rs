//! Steps through a region of a child process with ptrace(2), and reads its instructions.
#![allow(unsafe_code, reason = "ptrace is a system call of raw pointers")]
#![allow(clippy::zombie_processes, reason = "waits with waitpid")]

use std::cell::Cell;
use std::process::Command;
use std::ptr::null_mut;

/// The environment variable that names the child's row.
const WANTED: &str = "SYNCLINE_STEPS";

/// The exit code of a child that could not be traced.
const REFUSED: i32 = 77;

/// Seconds after which the system ends a child. A row takes a few.
const LONGEST: u32 = 300;

/// What a region executed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) instructions: u64,
    /// Instructions that lock the bus: read-modify-writes, and stores in a total order.
    pub(super) atomics: u64,
    /// 32-bit exchanges, which are among the atomics: each unlocks a mutex of std.
    pub(super) mutexes: u64,
}

impl Counts {
    /// A limit. Optimization changes the number of instructions, so it is not limited.
    pub(super) const fn of(atomics: u64, mutexes: u64) -> Self {
        Self {
            instructions: u64::MAX,
            atomics,
            mutexes,
        }
    }
}

/// The row that this process is to run, if it is a child.
pub(super) fn wanted() -> Option<String> {
    std::env::var(WANTED).ok()
}

/// Runs `region` between two breakpoints, for the tracer, which traces this thread from then on.
///
/// Ends the process with [`REFUSED`] if the system lets no process be traced. The system ends it if
/// it takes longer than [`LONGEST`].
pub(super) fn counted<T>(region: impl FnOnce() -> T) -> T {
    std::thread_local! { static TRACED: Cell<bool> = const { Cell::new(false) } }
    if !TRACED.replace(true) {
        // SAFETY: the calls have no pointers.
        let refused = unsafe {
            libc::alarm(LONGEST);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0
        };
        if refused {
            std::process::exit(REFUSED);
        }
    }
    // SAFETY: the tracer goes on behind the breakpoint.
    unsafe { std::arch::asm!("int3") };
    let result = region();
    // SAFETY: as above.
    unsafe { std::arch::asm!("int3") };
    result
}

/// The counts of each region of a child, which is this program with only the test `child`.
///
/// `None` if the system lets no process be traced.
pub(super) fn count(child: &str, row: &str) -> Option<Vec<Counts>> {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command
        .args(["--exact", child, "--test-threads=1"])
        .env(WANTED, row);
    let process = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let process = libc::pid_t::try_from(process.id()).unwrap();
    let mut all = Vec::new();
    loop {
        let mut status = 0;
        // Children of other tests are of other threads.
        let own = libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: the pointer is valid.
        let found = unsafe { libc::waitpid(-1, &raw mut status, own) };
        assert!(found > 0, "{row}: {}", std::io::Error::last_os_error());
        if libc::WIFSTOPPED(status) {
            // SAFETY: the thread is stopped and traced by this thread.
            match libc::WSTOPSIG(status) {
                libc::SIGTRAP => {
                    end_with_tracer(found);
                    all.push(step_to_the_end(found));
                    resume(found, 0);
                }
                signal => resume(found, signal),
            }
        } else if found == process {
            assert!(libc::WIFEXITED(status), "{row}: {status:#x}");
            return match libc::WEXITSTATUS(status) {
                0 => Some(all),
                REFUSED => None,
                code => unreachable!("{row}: the child ended with {code}"),
            };
        }
    }
}

fn resume(thread: libc::pid_t, signal: i32) {
    // SAFETY: the thread is stopped and traced by the calling thread.
    let result = unsafe { libc::ptrace(libc::PTRACE_CONT, thread, 0, libc::c_long::from(signal)) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Ends the process of a stopped thread when this one ends.
fn end_with_tracer(thread: libc::pid_t) {
    let options = libc::c_long::from(libc::PTRACE_O_EXITKILL);
    // SAFETY: the thread is stopped and traced by the calling thread.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, thread, 0, options) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Steps from one breakpoint to the next.
///
/// A signal on the way is passed on with the next step. Its handler is counted, if it has one.
fn step_to_the_end(thread: libc::pid_t) -> Counts {
    let mut counts = Counts {
        instructions: 0,
        atomics: 0,
        mutexes: 0,
    };
    let mut signal = 0;
    loop {
        let code = next_instruction(thread);
        let instruction = Instruction::read(&code);
        let mut status = 0;
        // SAFETY: the thread is stopped and traced by the calling thread, and the pointer is valid.
        unsafe {
            let passed = libc::c_long::from(signal);
            assert_eq!(libc::ptrace(libc::PTRACE_SINGLESTEP, thread, 0, passed), 0);
            assert_eq!(libc::waitpid(thread, &raw mut status, libc::__WALL), thread);
        }
        assert!(libc::WIFSTOPPED(status), "{status:#x}");
        signal = libc::WSTOPSIG(status);
        if signal != libc::SIGTRAP {
            // It came before the instruction.
            continue;
        }
        signal = 0;
        if instruction.opcode == 0xcc {
            return counts;
        }
        counts.instructions += 1;
        counts.atomics += u64::from(instruction.is_atomic());
        counts.mutexes += u64::from(instruction.is_short_exchange());
    }
}

/// The bytes at a stopped thread's next instruction.
fn next_instruction(thread: libc::pid_t) -> [u8; 16] {
    // SAFETY: all zeroes are valid registers. The thread is stopped and traced by the calling
    // thread. Reads of its memory fail if it has none there.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let read = libc::ptrace(
            libc::PTRACE_GETREGS,
            thread,
            null_mut::<u8>(),
            &raw mut registers,
        );
        assert_eq!(read, 0, "{}", std::io::Error::last_os_error());
        let word = |at: u64| libc::ptrace(libc::PTRACE_PEEKTEXT, thread, at, 0_u64).to_ne_bytes();
        let [low, high] = [word(registers.rip), word(registers.rip + 8)];
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&low);
        bytes[8..].copy_from_slice(&high);
        bytes
    }
}

/// What the first bytes of an instruction say (Intel's manual, volume 2, chapter 2).
struct Instruction {
    locks: bool,
    wide: bool,
    opcode: u8,
    operands: u8,
}

impl Instruction {
    fn read(code: &[u8; 16]) -> Self {
        const LOCK: u8 = 0xf0;
        const PREFIXES: [u8; 11] = [
            LOCK, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65, 0x66, 0x67,
        ];
        let prefixes = code
            .iter()
            .take_while(|byte| PREFIXES.contains(byte))
            .count();
        let rex = code[prefixes];
        let has_rex = rex & 0xf0 == 0x40;
        let opcode = prefixes + usize::from(has_rex);
        Self {
            locks: code[..prefixes].contains(&LOCK),
            wide: has_rex && rex & 8 != 0,
            opcode: code[opcode],
            operands: code[(opcode + 1).min(15)],
        }
    }

    /// An exchange with memory locks without a prefix.
    fn is_exchange(&self) -> bool {
        matches!(self.opcode, 0x86 | 0x87) && self.operands >> 6 != 3
    }

    fn is_short_exchange(&self) -> bool {
        self.opcode == 0x87 && self.is_exchange() && !self.wide
    }

    fn is_atomic(&self) -> bool {
        self.locks || self.is_exchange()
    }
}
