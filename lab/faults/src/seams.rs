//! Threads that cannot be created, and descriptors that cannot be had.
#![allow(unsafe_code, reason = "replaces a function of the C library")]

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::fs;
use std::sync::OnceLock;

use libc::{pthread_attr_t, pthread_t};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use syncline_software_payload::{Gate, Verdict};

/// The name of thread creation in orders and tables.
pub(crate) const THREADS: &str = "pthread_create";
/// The name in orders and tables of everything that needs a descriptor.
pub(crate) const DESCRIPTORS: &str = "descriptors";

/// Counts and fails the creation of the library's threads.
pub(crate) static GATE: Gate = Gate::new();

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create =
    unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;

fn real() -> Option<Create> {
    static REAL: OnceLock<Option<Create>> = OnceLock::new();
    *REAL.get_or_init(|| {
        // SAFETY: a text that ends with 0. The C library has the function with this type.
        unsafe {
            let found = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
            (!found.is_null()).then(|| std::mem::transmute::<*mut c_void, Create>(found))
        }
    })
}

/// True if the code belongs to this program, and not to a driver's library.
fn is_ours(code: Start) -> bool {
    let base = |address: *const c_void| {
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be asked about. The memory is zeroed.
        unsafe {
            libc::dladdr(address, info.as_mut_ptr());
            info.assume_init().dli_fbase
        }
    };
    base(code as *const c_void) == base(is_ours as *const c_void)
}

/// Takes the place of the C library's function.
///
/// # Safety
/// As the C library's.
// SAFETY: the same name and type as the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if is_ours(start)
        && let Verdict::Fails(code) | Verdict::RunsAndFails(code) = GATE.before(THREADS)
    {
        return code;
    }
    match real() {
        // SAFETY: by this function's contract.
        Some(create) => unsafe { create(thread, attributes, start, argument) },
        None => libc::EAGAIN,
    }
}

/// Lets the process have only `more` new descriptors at a time, until the drop.
pub(crate) struct FewDescriptors(Rlimit);

impl FewDescriptors {
    pub(crate) fn allow(more: u64) -> Self {
        let before = getrlimit(Resource::Nofile);
        let files = fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten();
        let names = files.filter_map(|file| file.file_name().to_str()?.parse::<u64>().ok());
        let names: Vec<_> = names.collect();
        // One of them was that of the folder, which is closed now. It need not be the last.
        let is_open = |number: &u64| fs::read_link(format!("/proc/self/fd/{number}")).is_ok();
        let used: BTreeSet<_> = names.into_iter().filter(is_open).collect();
        let mut free = (0..).filter(|number| !used.contains(number));
        let limit = free.nth(usize::try_from(more).unwrap_or(usize::MAX));
        let few = Rlimit {
            current: limit,
            ..before
        };
        let _ = setrlimit(Resource::Nofile, few);
        Self(before)
    }
}

impl Drop for FewDescriptors {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}
