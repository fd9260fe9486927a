//! Arguments and results of all exported functions. No panic leaves such a function.
#![allow(unsafe_code, reason = "follows the pointers that applications pass")]

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::code::{Answer, Code};
use crate::faults;
use crate::settings::print;

/// A pointer to memory for a result. The API demands that it is null or valid for a write.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());

    /// The memory at an address that the application has given in a list.
    pub(crate) fn at(address: usize) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address))
    }

    /// Writes the result. A null pointer is an invalid value.
    pub(crate) fn set(&self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        self.set_if_wanted(value);
        Ok(())
    }

    /// Writes the result, unless the pointer is null.
    pub(crate) fn set_if_wanted(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the API demands a valid pointer, and it is not null. Applications may pack
            // their structures.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Returns an invalid value if the pointer is null. For functions that first create something.
    pub(crate) const fn require(&self) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        Ok(())
    }

    /// Returns the pointer itself, for several elements. The application states how many fit there.
    pub(crate) const fn pointer(&self) -> *mut T {
        self.0
    }
}

impl<T: Copy> Out<T> {
    /// Returns pointers to `count` results in a row.
    pub(crate) fn places(&self, count: usize) -> Answer<impl Iterator<Item = Self>> {
        if count > 0 {
            self.require()?;
        }
        let first = self.0;
        // The API demands memory for this many results.
        Ok((0..count).map(move |index| Self(first.wrapping_add(index))))
    }

    /// Returns the present value, for arguments that are both input and output.
    pub(crate) fn get(&self) -> Answer<T> {
        In(self.0.cast_const()).get()
    }
}

/// A pointer to arguments. The API demands that it is null or valid for reads.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> In<T> {
    /// A pointer within other arguments.
    pub(crate) const fn at(pointer: *const T) -> Self {
        Self(pointer)
    }
}

impl<T: Copy> In<T> {
    /// Returns the argument. A null pointer is an invalid value.
    pub(crate) fn get(&self) -> Answer<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the API demands a valid pointer, and it is not null.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Returns `count` arguments in a row.
    pub(crate) fn list(&self, count: usize) -> Answer<Vec<T>> {
        if count > 0 && self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the API demands a pointer to so many arguments, and it is not null.
        let at = |index| unsafe { self.0.add(index).read_unaligned() };
        Ok((0..count).map(at).collect())
    }

    pub(crate) const fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub(crate) const fn pointer(&self) -> *const T {
        self.0
    }
}

impl In<c_char> {
    /// Returns the string, which ends with 0.
    pub(crate) fn string(&self) -> Answer<&CStr> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the API demands a string that ends with 0, and the pointer is not null.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}

/// True in a process that was forked after `cuInit`.
///
/// It has the memory of its parent, and no thread of the driver.
static IS_FORKED: AtomicBool = AtomicBool::new(false);
/// The functions that a forked process may still call.
const STATELESS: [&str; 3] = ["cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"];

/// The result of a call in a forked process. Every call but `cuInit` ends the process.
///
/// A real driver shares descriptors with the parent, so such a call may change what the parent has.
fn call_after_fork(name: &'static str) -> u32 {
    if name == "cuInit" {
        return Code::NOT_INITIALIZED.number();
    }
    print(format_args!(
        "process {} calls {name}, and was forked after cuInit",
        std::process::id()
    ));
    std::process::abort();
}

/// Makes processes that are forked from now on refuse calls.
///
/// They lack the driver's threads, which may have held locks.
pub(crate) fn refuse_when_forked() {
    extern "C" fn in_child() {
        IS_FORKED.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler only writes an atomic, and the library is never unloaded.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Runs the body of an exported function.
pub(crate) fn call(name: &'static str, body: impl FnOnce() -> Answer) -> u32 {
    if IS_FORKED.load(Ordering::Relaxed) && !STATELESS.contains(&name) {
        return call_after_fork(name);
    }
    let run = || match faults::before(name) {
        faults::Verdict::Runs => body(),
        faults::Verdict::Closes => {
            let answer = body();
            // If the call took no descriptor, no later call is refused.
            faults::end_refusal();
            answer
        }
        faults::Verdict::Fails(code) => Err(code),
        faults::Verdict::RunsAndFails(code) => body().and(Err(code)),
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Code::SUCCESS.number(),
        Ok(Err(code)) => code.number(),
        Err(_) => Code::UNKNOWN.number(),
    }
}

/// Exports functions of the driver API, and lists their names.
macro_rules! api {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            $(#[$attribute])*
            #[allow(clippy::too_many_arguments, reason = "the driver API's own")]
            // Unit tests are built in half the time without what only an application calls.
            // SAFETY: the name and the arguments are those of cuda.h.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(super) extern "C" fn $name($($argument: $type),*) -> u32 {
                $crate::abi::call(stringify!($name), move || -> $crate::code::Answer { $body })
            }
        )*
    };
}
pub(crate) use api;
