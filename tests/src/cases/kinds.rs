//! Descriptors of every kind of file, for cases that pass wrong kinds.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use syncline::Error;
use syncline::handle::Rejected;

use crate::case::{Stop, check, check_eq};

/// Creates a descriptor of each kind that the system makes. None is a handle of a driver.
pub(crate) fn kinds() -> Result<Vec<(&'static str, OwnedFd)>, Stop> {
    let system =
        |error: rustix::io::Errno| Stop::Failed(format!("no descriptor to test with: {error}"));
    let made = || -> rustix::io::Result<Vec<(&'static str, OwnedFd)>> {
        let cloexec = SocketFlags::CLOEXEC;
        let open = |path, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        let (read, write) = rustix::pipe::pipe()?;
        let (socket, _) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, cloexec, None)?;
        let listening =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, cloexec, None)?;
        // The kernel chooses the name.
        rustix::net::bind(&listening, &rustix::net::SocketAddrUnix::new_unnamed())?;
        rustix::net::listen(&listening, 1)?;
        let empty = rustix::fs::memfd_create("empty", MemfdFlags::CLOEXEC)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let sealed = rustix::fs::memfd_create("sealed", flags)?;
        // SwiftShader's handles are memory files of 4096 bytes. If such a file cannot be mapped,
        // SwiftShader aborts. So this one has another size.
        rustix::fs::ftruncate(&sealed, 5000)?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&sealed, seals)?;
        let polling = rustix::event::epoll::CreateFlags::CLOEXEC;
        let watching = rustix::fs::inotify::CreateFlags::CLOEXEC;
        let timer = rustix::time::TimerfdFlags::CLOEXEC;
        let me = rustix::process::getpid();
        let no_flags = rustix::process::PidfdFlags::empty();
        Ok(vec![
            ("the reading end of a pipe", read),
            ("the writing end of a pipe", write),
            ("a socket", socket),
            ("a listening socket", listening),
            (
                "a netlink socket",
                rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, cloexec, None)?,
            ),
            ("an empty file", empty),
            ("a sealed file", sealed),
            (
                "an eventfd",
                rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?,
            ),
            (
                "a timer",
                rustix::time::timerfd_create(rustix::time::TimerfdClockId::Monotonic, timer)?,
            ),
            ("an epoll", rustix::event::epoll::create(polling)?),
            ("an inotify", rustix::fs::inotify::init(watching)?),
            ("a process", rustix::process::pidfd_open(me, no_flags)?),
            (
                "a directory",
                open("/", OFlags::RDONLY | OFlags::DIRECTORY)?,
            ),
            ("a path", open("/", OFlags::PATH)?),
            ("the program", open("/proc/self/exe", OFlags::RDONLY)?),
            ("/dev/null", open("/dev/null", OFlags::RDWR)?),
            ("/dev/zero", open("/dev/zero", OFlags::RDWR)?),
        ])
    };
    let mut made = made().map_err(system)?;
    if let Ok(node) = std::fs::File::open("/dev/dri/renderD128") {
        made.push(("a render node", node.into()));
    }
    Ok(made)
}

/// Checks that an import was refused, and that the descriptor came back open. Returns the error.
pub(crate) fn came_back<T, H: Into<OwnedFd>>(
    what: &str,
    number: RawFd,
    answer: Result<T, Rejected<H>>,
) -> Result<Error, Stop> {
    let Err(Rejected { handle, error }) = answer else {
        return Stop::fail(format!("{what} was taken for what it is not"));
    };
    // Before its owner could close the number of a closed descriptor.
    let is_open = std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok();
    check!(is_open, "{what}");
    check_eq!(handle.into().as_raw_fd(), number, "{what}");
    Ok(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_can_be_made() {
        let made = kinds();
        assert!(made.is_ok_and(|kinds| kinds.len() >= 17));
    }
}
