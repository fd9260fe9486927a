//! Timelines and memory of several processes.

use std::ffi::{OsStr, c_char, c_void};
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use syncline::Device;
use syncline::handle::{Rejected, SharedWords};
use syncline::negotiate::{Granted, Party};
use syncline::process::{Endpoint, Listener};

use crate::handle::{Handle, sl_device, sl_endpoint, sl_listener, sl_timeline, sl_words};
use crate::result::{Refused, call, out, sl_result, text};
use crate::timeline::{Line, limit};

/// What a process does with a timeline of two processes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum sl_access {
    /// It waits. The other process signals.
    SL_ACCESS_WAIT = 0,
    /// It signals. The other process waits.
    SL_ACCESS_SIGNAL = 1,
    /// It signals, and waits as well. The other process waits.
    SL_ACCESS_BOTH = 2,
}

/// # Safety
/// `path` is null, or a text that ends with a zero byte and lives during the call.
unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, Refused> {
    if path.is_null() {
        return Err(Refused::argument("path", "is null"));
    }
    // SAFETY: it is a text that ends with a zero byte.
    let path = unsafe { std::ffi::CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// Makes a Unix socket at a path, to which other processes connect (sl_endpoint_connect).
///
/// Every process that may write to the file can connect, so place it in a folder that only trusted
/// users can enter. Does not block. Free the listener with sl_listener_free, which removes the
/// file. SL_ERROR_DRIVER if there is a file already.
///
/// # Safety
///
/// `path_of_socket` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_listener_bind(
    path_of_socket: *const c_char,
    listener: *mut sl_listener,
) -> sl_result {
    call(|| {
        let listener = out(listener, "listener")?;
        // SAFETY: by the contract of this function.
        let path = unsafe { path(path_of_socket)? };
        listener.set(sl_listener::new(Listener::bind(path)?));
        Ok(())
    })
}

/// Accepts the next process that connects. Blocks for at most `nanoseconds`.
///
/// sl_listener_close on another thread ends the call.
/// `label` is a name for error texts, or null. A client that says nothing is let go after two
/// seconds. The text of a time-out names the clients that were turned away. Free the endpoint with
/// sl_endpoint_free.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_listener_accept(
    listener: sl_listener,
    label: *const c_char,
    nanoseconds: u64,
    endpoint: *mut sl_endpoint,
) -> sl_result {
    call(|| {
        let endpoint = out(endpoint, "endpoint")?;
        // SAFETY: by the contract of this function.
        let label = unsafe { text(label, "label")? };
        let accepted = listener.get()?.accept(label, limit(nanoseconds))?;
        endpoint.set(sl_endpoint::new(accepted));
        Ok(())
    })
}

/// Ends the calls of sl_listener_accept of a listener, on any threads, with SL_ERROR_CANCELLED.
///
/// Later ones are refused, too. A call that reads the first message of a client ends after at most
/// two seconds. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn sl_listener_close(listener: sl_listener) -> sl_result {
    call(|| {
        listener.get()?.close();
        Ok(())
    })
}

/// Frees a listener, and removes its file.
#[unsafe(no_mangle)]
pub extern "C" fn sl_listener_free(listener: sl_listener) -> sl_result {
    call(|| listener.free())
}

/// Connects to the listener of another process. Blocks for at most `nanoseconds`.
///
/// Both processes are in one pid namespace. `label` is a name for error texts, or null. Free the
/// endpoint with sl_endpoint_free.
///
/// # Safety
///
/// `path_of_socket` and `label` are null, or texts that end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_endpoint_connect(
    path_of_socket: *const c_char,
    label: *const c_char,
    nanoseconds: u64,
    endpoint: *mut sl_endpoint,
) -> sl_result {
    call(|| {
        let endpoint = out(endpoint, "endpoint")?;
        // SAFETY: by the contract of this function.
        let (path, label) = unsafe { (path(path_of_socket)?, text(label, "label")?) };
        let connected = Endpoint::connect(path, label, limit(nanoseconds))?;
        endpoint.set(sl_endpoint::new(connected));
        Ok(())
    })
}

/// Opens an endpoint over a socket that is connected to the other process, such as a child.
///
/// It is a Unix socket of the type SOCK_SEQPACKET, as socketpair makes it. Blocks for at most
/// `nanoseconds`, until the other process has opened its end. After success the socket is the
/// library's. After an error it is still the program's. Free the endpoint with sl_endpoint_free.
///
/// # Safety
///
/// `socket` is an open descriptor that the program owns. `label` is null, or a text that ends with
/// a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_endpoint_open(
    socket: i32,
    label: *const c_char,
    nanoseconds: u64,
    endpoint: *mut sl_endpoint,
) -> sl_result {
    call(|| {
        let endpoint = out(endpoint, "endpoint")?;
        // SAFETY: by the contract of this function.
        let label = unsafe { text(label, "label")? };
        if socket < 0 {
            return Err(Refused::argument("socket", format!("is {socket}")));
        }
        // SAFETY: by the contract of this function.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let opened = Endpoint::open(socket, label, limit(nanoseconds));
        let opened = opened.map_err(|Rejected { handle, error }| {
            // Stays open: it is the program's.
            let _ = handle.into_raw_fd();
            error
        })?;
        endpoint.set(sl_endpoint::new(opened));
        Ok(())
    })
}

/// The process id of the other process.
#[unsafe(no_mangle)]
pub extern "C" fn sl_endpoint_peer(endpoint: sl_endpoint, process: *mut u32) -> sl_result {
    call(|| {
        let process = out(process, "process")?;
        process.set(endpoint.get()?.peer().id);
        Ok(())
    })
}

/// Whether an endpoint can be used: SL_ERROR_PEER_LOST if not. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn sl_endpoint_check(endpoint: sl_endpoint) -> sl_result {
    call(|| Ok(endpoint.get()?.check()?))
}

/// Accepts descriptors of semaphores and device memory from the other process from now on.
///
/// Timelines of drivers need it in the process that receives them. Timelines of the host's devices
/// do not.
///
/// # Safety
///
/// No driver checks such a descriptor. The other process uses this library, and no attacker
/// controls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_endpoint_trust_handles(endpoint: sl_endpoint) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        unsafe { endpoint.get()?.trust_handles() };
        Ok(())
    })
}

/// Gives up a process that lives and does not answer. Waits for it end with SL_ERROR_FAILED.
///
/// Submissions that were held for it are skipped, on the calling thread. The connection ends, and
/// so do calls of the endpoint that block on other threads: SL_ERROR_PEER_LOST.
#[unsafe(no_mangle)]
pub extern "C" fn sl_endpoint_give_up(endpoint: sl_endpoint) -> sl_result {
    call(|| {
        endpoint.get()?.give_up();
        Ok(())
    })
}

/// Makes a timeline of two processes. It begins at 0.
///
/// Both processes make the same calls with the same labels in the same order, each with its own
/// device. `access` is an sl_access, and one of the two processes signals. Blocks for at most
/// `nanoseconds` for each of two steps. If the process that signals dies, waits end with
/// SL_ERROR_FAILED, and the text says so. The process that signals keeps its handle as long as
/// others wait. Free the timeline with sl_timeline_free, before or after the endpoint.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_endpoint_timeline(
    endpoint: sl_endpoint,
    label: *const c_char,
    device: sl_device,
    access: u32,
    nanoseconds: u64,
    timeline: *mut sl_timeline,
) -> sl_result {
    call(|| {
        let timeline = out(timeline, "timeline")?;
        // SAFETY: by the contract of this function.
        let label = unsafe { text(label, "label")? };
        let device = Device::clone(&*device.get()?);
        let own = Party::of(&device);
        let id = own.id();
        let needs = match access {
            access if access == sl_access::SL_ACCESS_WAIT as u32 => own.waits(),
            access if access == sl_access::SL_ACCESS_SIGNAL as u32 => own.signals(),
            access if access == sl_access::SL_ACCESS_BOTH as u32 => own.signals().waits(),
            other => return Err(Refused::argument("access", format!("is {other}"))),
        };
        let made = endpoint
            .get()?
            .timeline(label, needs, &[device], limit(nanoseconds))?;
        let line = match made.auto(id)? {
            Granted::WaitOnly(line) => Line::Waits(line, made),
            Granted::SignalOnly(line) => Line::Signals(line, made),
            Granted::Both(line) => Line::Own(line, Some(made)),
        };
        timeline.set(sl_timeline::new(line));
        Ok(())
    })
}

/// Frees an endpoint. The connection ends, and the other process sees that this one has left.
#[unsafe(no_mangle)]
pub extern "C" fn sl_endpoint_free(endpoint: sl_endpoint) -> sl_result {
    call(|| endpoint.free())
}

/// Makes words of host memory for several processes, filled with zeroes.
///
/// `bytes` is a multiple of 4. Free them with sl_words_free.
#[unsafe(no_mangle)]
pub extern "C" fn sl_words_make(bytes: u64, words: *mut sl_words) -> sl_result {
    call(|| {
        let words = out(words, "words")?;
        words.set(sl_words::new(SharedWords::new(bytes)?));
        Ok(())
    })
}

/// The address of words of memory, and their bytes. Valid until sl_words_free.
///
/// The other process may write them at any time: access them as atomic words. Order all accesses
/// with timelines.
#[unsafe(no_mangle)]
pub extern "C" fn sl_words_get(
    words: sl_words,
    pointer: *mut *mut c_void,
    bytes: *mut u64,
) -> sl_result {
    call(|| {
        let (pointer, bytes) = (out(pointer, "pointer")?, out(bytes, "bytes")?);
        let words = words.get()?;
        let words = words.words();
        pointer.set(words.as_ptr().cast_mut().cast());
        bytes.set(size_of_val(words) as u64);
        Ok(())
    })
}

/// Shares words of memory with the other process, which calls sl_endpoint_receive_words.
///
/// Blocks until it has them, at most `nanoseconds`.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_endpoint_send_words(
    endpoint: sl_endpoint,
    label: *const c_char,
    words: sl_words,
    nanoseconds: u64,
) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let label = unsafe { text(label, "label")? };
        let words = words.get()?;
        Ok(endpoint
            .get()?
            .send_words(label, &words, limit(nanoseconds))?)
    })
}

/// Receives words of memory that the other process sends under `label`.
///
/// At most `most` bytes are accepted. Blocks for at most `nanoseconds`, or one second longer if the
/// other process stops in the middle. Free the words with sl_words_free.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_endpoint_receive_words(
    endpoint: sl_endpoint,
    label: *const c_char,
    most: u64,
    nanoseconds: u64,
    words: *mut sl_words,
) -> sl_result {
    call(|| {
        let words = out(words, "words")?;
        // SAFETY: by the contract of this function.
        let label = unsafe { text(label, "label")? };
        let received = endpoint
            .get()?
            .receive_words(label, most, limit(nanoseconds))?;
        words.set(sl_words::new(received));
        Ok(())
    })
}

/// Frees a handle of words of memory. The other process keeps its own.
#[unsafe(no_mangle)]
pub extern "C" fn sl_words_free(words: sl_words) -> sl_result {
    call(|| words.free())
}
