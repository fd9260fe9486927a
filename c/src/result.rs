//! Result codes, the last error of a thread, and the guard around each call.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use syncline::{Error, ErrorKind};

/// The result of a call. sl_last_error has the text of an error.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum sl_result {
    /// The call has succeeded.
    SL_SUCCESS = 0,
    /// A driver or device is missing, or cannot be used on this machine.
    SL_ERROR_UNAVAILABLE = -1,
    /// The object or device cannot do this. Another one may.
    SL_ERROR_UNSUPPORTED = -2,
    /// A call of a driver or of the system failed.
    SL_ERROR_DRIVER = -3,
    /// The device is lost. Free what belongs to it.
    SL_ERROR_DEVICE_LOST = -4,
    /// The object belongs to the parent process.
    SL_ERROR_MADE_BEFORE_FORK = -5,
    /// The value cannot be signalled or waited for.
    SL_ERROR_INVALID_VALUE = -6,
    /// The call would never end, or work would wait for itself.
    SL_ERROR_DEADLOCK = -7,
    /// Work returned an error.
    SL_ERROR_WORK = -8,
    /// A timeline or submission failed. The text has the cause.
    SL_ERROR_FAILED = -9,
    /// Nothing can signal the value any more, or another thread has ended the call.
    SL_ERROR_CANCELLED = -10,
    /// The time limit has passed. Nothing has changed, and the call can be repeated.
    SL_ERROR_TIMED_OUT = -11,
    /// It has not happened yet: a value is not pending or not reached, or a fence is not recorded.
    SL_ERROR_NOT_READY = -12,
    /// There is no time, or the times cannot be compared.
    SL_ERROR_NO_TIME = -13,
    /// A stream capture is in the way.
    SL_ERROR_CAPTURE = -14,
    /// The other process has died or has left.
    SL_ERROR_PEER_LOST = -15,
    /// The other process has sent or written something invalid.
    SL_ERROR_PEER_INVALID = -16,
    /// An argument is null, too small or not a text in UTF-8.
    SL_ERROR_INVALID_ARGUMENT = -100,
    /// A handle is null, was freed, or is of another kind.
    SL_ERROR_INVALID_HANDLE = -101,
    /// A defect of the library. Please report the text.
    SL_ERROR_INTERNAL = -102,
}

use sl_result::*;

/// Why a call is refused before it reaches the engine.
#[derive(Debug)]
pub(crate) enum Refused {
    Handle {
        kind: &'static str,
        id: u64,
    },
    Argument {
        name: &'static str,
        what: String,
    },
    /// Another call submits the claim.
    Claim,
    Engine(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl Refused {
    pub(crate) fn argument(name: &'static str, what: impl Into<String>) -> Self {
        let what = what.into();
        Self::Argument { name, what }
    }

    fn code(&self) -> sl_result {
        match self {
            Self::Handle { .. } => SL_ERROR_INVALID_HANDLE,
            Self::Argument { .. } => SL_ERROR_INVALID_ARGUMENT,
            Self::Claim => SL_ERROR_NOT_READY,
            Self::Engine(error) => code_of(error.kind()),
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Handle { kind, id: 0 } => write!(f, "a null handle was passed for a {kind}"),
            Self::Handle { kind, id } => write!(
                f,
                "no {kind} has the handle {id:#x}: it was freed, or is of another kind"
            ),
            Self::Argument { name, what } => write!(f, "the argument {name} {what}"),
            Self::Claim => f.write_str("another call is submitting the claim"),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

const fn code_of(kind: ErrorKind) -> sl_result {
    match kind {
        ErrorKind::Unavailable => SL_ERROR_UNAVAILABLE,
        ErrorKind::Unsupported => SL_ERROR_UNSUPPORTED,
        ErrorKind::Driver => SL_ERROR_DRIVER,
        ErrorKind::DeviceLost => SL_ERROR_DEVICE_LOST,
        ErrorKind::MadeBeforeFork => SL_ERROR_MADE_BEFORE_FORK,
        ErrorKind::InvalidValue => SL_ERROR_INVALID_VALUE,
        ErrorKind::Deadlock => SL_ERROR_DEADLOCK,
        ErrorKind::Work => SL_ERROR_WORK,
        ErrorKind::Failed => SL_ERROR_FAILED,
        ErrorKind::Cancelled => SL_ERROR_CANCELLED,
        ErrorKind::TimedOut => SL_ERROR_TIMED_OUT,
        ErrorKind::NotReady => SL_ERROR_NOT_READY,
        ErrorKind::NoTime => SL_ERROR_NO_TIME,
        ErrorKind::Capture => SL_ERROR_CAPTURE,
        ErrorKind::PeerLost => SL_ERROR_PEER_LOST,
        ErrorKind::PeerInvalid => SL_ERROR_PEER_INVALID,
        _ => SL_ERROR_INTERNAL,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // A call during the thread's end leaves no text.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Runs the body of a call. No panic leaves it.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Refused>) -> sl_result {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SL_SUCCESS,
        Ok(Err(refused)) => {
            remember(&refused.to_string());
            refused.code()
        }
        Err(_) => {
            remember("a defect of the library: a call has panicked");
            SL_ERROR_INTERNAL
        }
    }
}

/// Writes a result through a pointer of C.
///
/// # Errors
/// The pointer is null or not aligned. The body must ask this before it has an effect.
pub(crate) fn out<T>(pointer: *mut T, name: &'static str) -> Result<Out<T>, Refused> {
    check_pointer(pointer, name).map(|()| Out(pointer))
}

/// # Errors
/// The pointer is null, or is not aligned for its type.
pub(crate) fn check_pointer<T>(pointer: *const T, name: &'static str) -> Result<(), Refused> {
    match (pointer.is_null(), pointer.is_aligned()) {
        (true, _) => Err(Refused::argument(name, "is null")),
        (_, false) => Err(Refused::argument(name, "is not aligned for its type")),
        _ => Ok(()),
    }
}

/// A place of C's for a result.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) fn set(self, value: T) {
        // SAFETY: each function of the header demands a pointer that may be written. It is aligned.
        unsafe { self.0.write(value) };
    }
}

/// The place of an optional result. Null for none.
///
/// # Errors
/// The pointer is not aligned. The body must ask this before it has an effect.
pub(crate) fn optional<T>(pointer: *mut T, name: &'static str) -> Result<Option<Out<T>>, Refused> {
    match pointer.is_null() {
        true => Ok(None),
        false => out(pointer, name).map(Some),
    }
}

/// The most bytes of an info structure. A larger size was never set.
const MOST: usize = 1 << 16;

/// An info structure that C passes. It begins with its size, which C has set.
///
/// # Errors
/// The pointer is null, or the structure is smaller than that of this version. Or it is larger, and
/// what is behind is not 0: a later version has a field there, which would have no effect.
///
/// # Safety
/// `info` is null, or points to a structure of the size that it begins with.
pub(crate) unsafe fn info_in<'a, T>(info: *const T, name: &'static str) -> Result<&'a T, Refused> {
    // SAFETY: by the contract of this function.
    let size = unsafe { require_size::<T>(info, name)? };
    let own = size_of::<T>();
    // SAFETY: it has that size.
    let later = unsafe { std::slice::from_raw_parts(info.cast::<u8>().add(own), size - own) };
    if later.iter().any(|byte| *byte != 0) {
        let what = format!("has fields behind byte {own}, which only a later version knows");
        return Err(Refused::argument(name, what));
    }
    // SAFETY: it has that size.
    Ok(unsafe { &*info })
}

/// The place of an info structure that C wants filled in. See [`info_in`].
///
/// # Errors
/// Same errors as [`info_in`].
///
/// # Safety
/// Same conditions as for [`info_in`].
pub(crate) unsafe fn info_out<T>(info: *mut T, name: &'static str) -> Result<Out<T>, Refused> {
    // SAFETY: by the contract of this function.
    unsafe { require_size::<T>(info, name)? };
    out(info, name)
}

/// # Safety
/// `info` is null, or points to a structure that begins with its size.
pub(crate) unsafe fn require_size<T>(info: *const T, name: &'static str) -> Result<usize, Refused> {
    check_pointer(info, name)?;
    // SAFETY: by the contract of this function.
    let size = unsafe { info.cast::<usize>().read() };
    let least = size_of::<T>();
    if (least..MOST).contains(&size) {
        return Ok(size);
    }
    let what = format!("has the size {size}, and in this version it has {least}: set its size");
    Err(Refused::argument(name, what))
}

/// Writes a text with a zero byte at its end into C's `place` of so many bytes, cut off if needed.
///
/// # Errors
/// The place is null, and its size is not 0.
///
/// # Safety
/// `place` has that many bytes.
pub(crate) unsafe fn text_out(
    text: &str,
    (place, size): (*mut c_char, usize),
    length: *mut usize,
) -> Result<(), Refused> {
    if place.is_null() && size > 0 {
        let what = format!("is null, and its size is {size}");
        return Err(Refused::argument("buffer", what));
    }
    if let Some(length) = optional(length, "length")? {
        length.set(text.len());
    }
    let Some(most) = size.checked_sub(1) else {
        return Ok(());
    };
    let written = cut_off(text, most);
    // SAFETY: the place has `size` bytes, and this is one less and the zero byte.
    unsafe {
        std::ptr::copy_nonoverlapping(written.as_ptr().cast(), place, written.len());
        place.add(written.len()).write(0);
    }
    Ok(())
}

/// The beginning of a text, of at most so many bytes and of whole characters.
pub(crate) fn cut_off(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// A name or a reason of C's. Null is the empty text.
///
/// What is not UTF-8 is replaced: it is for error texts, and must not make a call fail.
///
/// # Safety
/// Same conditions as for [`text`].
pub(crate) unsafe fn told<'a>(text: *const c_char) -> Cow<'a, str> {
    match text.is_null() {
        true => Cow::Borrowed(""),
        // SAFETY: it is a text that ends with a zero byte.
        false => unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy(),
    }
}

/// A text of C's in UTF-8, which the call depends on. Null is the empty text.
///
/// # Safety
/// `text` is null, or a text that ends with a zero byte and lives during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &'static str) -> Result<&'a str, Refused> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: it is a text that ends with a zero byte.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    let text = text.to_str();
    text.map_err(|error| Refused::argument(name, format!("is not UTF-8: {error}")))
}

/// A list of C's. Null is the empty list if `count` is 0.
///
/// # Safety
/// `list` points to `count` elements that live during the call.
pub(crate) unsafe fn list<'a, T>(
    list: *const T,
    count: usize,
    name: &'static str,
) -> Result<&'a [T], Refused> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        let what = format!("is null, and its count is {count}");
        return Err(Refused::argument(name, what));
    }
    check_pointer(list, name)?;
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(Refused::argument(name, format!("has the count {count}")));
    }
    // SAFETY: it has that many elements, and is aligned.
    Ok(unsafe { std::slice::from_raw_parts(list, count) })
}

/// The text of the last error on the calling thread, in UTF-8.
///
/// It has all causes, and for a time-out the signals that are missing. Valid until the next error
/// on this thread. The empty text if no call has failed. Never pass it to a function together with
/// the call whose error it is: C may call sl_last_error first.
#[unsafe(no_mangle)]
pub extern "C" fn sl_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}
