//! Which descriptors become endpoints. A refused descriptor is returned open and unchanged.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use rustix::fs::{FileType, MemfdFlags, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use syncline::backend::Device as _;
use syncline::process::Endpoint;
use syncline::{Error, error::PeerLoss};

use super::{Alone, loss};

#[test]
fn only_connected_seqpacket_sockets_become_endpoints() {
    let alone = Alone::new();
    let seqpacket = || {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    };
    let open = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
    let path = rustix::fs::open("/proc", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let (stream, _other) = UnixStream::pair().unwrap();
    let (datagram, _another) = UnixDatagram::pair().unwrap();
    let cases: [(OwnedFd, &str); 10] = [
        (reader.into(), "not a socket"),
        (writer.into(), "not a socket"),
        (open("/dev/null"), "not a socket"),
        (open("/proc/self/stat"), "not a socket"),
        (path, ""),
        (
            rustix::fs::memfd_create("no socket", MemfdFlags::CLOEXEC).unwrap(),
            "not a socket",
        ),
        (stream.into(), "SOCK_SEQPACKET"),
        (datagram.into(), "SOCK_SEQPACKET"),
        (
            UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            "address family 2",
        ),
        (seqpacket(), "not connected"),
    ];
    for (fd, reason) in cases {
        let number = fd.as_raw_fd();
        let rejected = Endpoint::open(fd, "none", Duration::ZERO).unwrap_err();
        assert_eq!(rejected.handle.as_raw_fd(), number);
        let told = rejected.error.to_string();
        assert!(matches!(rejected.error, Error::Import { .. }), "{told}");
        assert!(told.contains(reason), "{told}");
        let status = rustix::fs::fstat(&rejected.handle).unwrap();
        let _ = FileType::from_raw_mode(status.st_mode);
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let told = Endpoint::open(listener.into(), "none", Duration::ZERO).unwrap_err();
    assert!(matches!(told.error, Error::Import { .. }), "{told}");
    drop((_other, _another));
    alone.nothing_is_left_but(told.handle);
}

/// A directory of a FUSE file system that this test runs.
///
/// The file system answers until the directory is open, and never after that.
struct Stuck {
    directory: Option<OwnedFd>,
    _system: OwnedFd,
    path: std::path::PathBuf,
}

impl Stuck {
    /// Returns `None` if this process may not mount.
    fn new() -> Option<Self> {
        const OPENDIR: u32 = 27;
        let path = std::env::temp_dir().join(format!("syncline-stuck-{}", std::process::id()));
        let c_path = std::ffi::CString::new(path.to_str()?).ok()?;
        let system = OwnedFd::from(
            std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/fuse")
                .ok()?,
        );
        std::fs::create_dir(&path).unwrap();
        let number = system.as_raw_fd();
        let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0");
        let options = std::ffi::CString::new(options).ok()?;
        let kind = c"fuse".as_ptr();
        // SAFETY: all pointers are to strings that live through the call.
        let mounted =
            unsafe { libc::mount(kind, c_path.as_ptr(), kind, 0, options.as_ptr().cast()) };
        if mounted != 0 {
            std::fs::remove_dir(&path).unwrap();
            return None;
        }
        let mut stuck = Self {
            directory: None,
            _system: system.try_clone().unwrap(),
            path: path.clone(),
        };
        let server = std::thread::spawn(move || {
            let mut request = vec![0; 1 << 16];
            loop {
                let length = rustix::io::read(&system, &mut request).unwrap();
                assert!(length >= 40);
                let word = |at| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
                let is_last = word(4) == OPENDIR;
                // The kernel first sends FUSE_INIT. The answer is for version 7.31.
                let mut answer = vec![0; 16 + if is_last { 16 } else { 64 }];
                let length = u32::try_from(answer.len()).unwrap();
                answer[..4].copy_from_slice(&length.to_ne_bytes());
                answer[8..16].copy_from_slice(&request[8..16]);
                if !is_last {
                    answer[16..20].copy_from_slice(&7_u32.to_ne_bytes());
                    answer[20..24].copy_from_slice(&31_u32.to_ne_bytes());
                    answer[36..40].copy_from_slice(&4096_u32.to_ne_bytes());
                }
                rustix::io::write(&system, &answer).unwrap();
                if is_last {
                    return;
                }
            }
        });
        stuck.directory = Some(std::fs::File::open(&path).unwrap().into());
        server.join().unwrap();
        Some(stuck)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.path.to_str().unwrap()).unwrap();
        // SAFETY: the string lives through the call.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Passes a descriptor whose file system does not answer to `refuse`.
///
/// Returns the text of the error that `refuse` returns, or `None` if this process may not mount.
fn refused_at_once(refuse: impl FnOnce(OwnedFd) -> String + Send + 'static) -> Option<String> {
    let Some(mut stuck) = Stuck::new() else {
        println!("skipped: this process may not mount");
        return None;
    };
    let directory = stuck.directory.take().unwrap();
    let (done, told) = std::sync::mpsc::channel();
    let refuses = std::thread::spawn(move || done.send(refuse(directory)).unwrap());
    let told = told.recv_timeout(super::LONG);
    // A call that still waits for the file system gets an error now.
    drop(stuck);
    refuses.join().unwrap();
    Some(told.expect("it waits for the file system"))
}

/// A file of a file system that does not answer is refused like any other file.
#[test]
fn a_file_of_a_stuck_file_system_is_refused_at_once() {
    let alone = Alone::new();
    let told = refused_at_once(|directory| {
        let rejected = Endpoint::open(directory, "stuck", Duration::ZERO).unwrap_err();
        rejected.error.to_string()
    });
    if let Some(told) = told {
        assert!(told.contains("it is a Directory, not a socket"), "{told}");
    }
    alone.nothing_is_left();
}

#[test]
fn a_file_of_a_stuck_file_system_is_no_eventfd() {
    let alone = Alone::new();
    let told = refused_at_once(|directory| {
        let timeline = syncline::host::Device::new().timeline("frames").unwrap();
        let rejected = timeline.at(1).notify(directory).unwrap_err();
        rejected.error.to_string()
    });
    if let Some(told) = told {
        assert!(told.contains("it is not an eventfd"), "{told}");
    }
    alone.nothing_is_left();
}

impl Alone {
    fn nothing_is_left_but<T>(&self, last: T) {
        drop(last);
        self.nothing_is_left();
    }
}

#[test]
fn a_peer_that_does_not_greet_is_an_error() {
    let alone = Alone::new();
    let (ours, theirs) = Endpoint::pair().unwrap();
    let rejected = Endpoint::open(ours, "alone", Duration::from_millis(10)).unwrap_err();
    let Error::PeerSilent {
        awaited, waited, ..
    } = &rejected.error
    else {
        panic!("{rejected}");
    };
    assert_eq!(*awaited, "send a greeting");
    assert!(*waited >= Duration::from_millis(10));
    drop(theirs);
    let rejected = Endpoint::open(rejected.handle, "alone", super::LONG).unwrap_err();
    assert_eq!(loss(&rejected.error), PeerLoss::HungUp);
    drop(rejected);
    alone.nothing_is_left();
}

#[test]
fn a_dropped_endpoint_leaves_no_descriptor_and_no_thread() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    shared::<Endpoint>();
    let alone = Alone::new();
    for _ in 0..20 {
        let (ours, theirs) = Endpoint::pair().unwrap();
        let other = std::thread::spawn(|| Endpoint::open(theirs, "child", super::LONG).unwrap());
        let one = Endpoint::open(ours, "parent", super::LONG).unwrap();
        let other = other.join().unwrap();
        assert_eq!(one.peer(), other.peer());
        assert_eq!(one.peer().id, std::process::id());
        assert!(
            one.object()
                .to_string()
                .starts_with("endpoint \"parent\" #")
        );
        assert!(!one.trusts_handles());
        one.watches_process().unwrap();
        one.check().unwrap();
        let clone = one.clone();
        drop(one);
        clone.check().unwrap();
    }
    alone.nothing_is_left();
}
