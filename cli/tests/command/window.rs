//! `demo --window`, on an X11 server without a screen.

#![allow(clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rstest::rstest;
use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    AtomEnum, ChangeWindowAttributesAux, ClientMessageEvent, ConnectionExt as _, EventMask,
    KEY_PRESS_EVENT, KEY_RELEASE_EVENT, KeyPressEvent,
};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

use crate::examples::Server;
use crate::software::has_vulkan;
use crate::usage::json;

/// Time limit for a title that is expected.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time between two looks for an event.
const LOOKS: Duration = Duration::from_millis(5);

/// The command with a window on a display.
fn demo(display: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    command
        .args(["demo", "--window", "--size", "16"])
        .args(arguments)
        .env("DISPLAY", display);
    command
}

/// The running command, its window, and a second connection to the server.
struct Shown {
    child: Child,
    out: BufReader<ChildStdout>,
    server: RustConnection,
    root: u32,
    window: u32,
}

impl Shown {
    fn start(display: &str) -> Self {
        let mut command = demo(display, &["--software"]);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the command starts");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.starts_with("window  ") {
            line.clear();
            let read = out.read_line(&mut line).expect("text");
            assert!(read > 0, "the command ends before it has a window");
        }
        let (server, screen) = RustConnection::connect(Some(display)).expect("a server");
        let root = server.setup().roots[screen].root;
        let windows = server.query_tree(root).expect("sent").reply();
        let windows = windows.expect("windows").children;
        let [window] = windows[..] else {
            panic!("{windows:?}");
        };
        let events = EventMask::PROPERTY_CHANGE | EventMask::STRUCTURE_NOTIFY;
        let events = ChangeWindowAttributesAux::new().event_mask(events);
        let sent = server.change_window_attributes(window, &events);
        sent.expect("sent").check().expect("a window");
        Self {
            child,
            out,
            server,
            root,
            window,
        }
    }

    fn title(&self) -> String {
        let (name, kind) = (AtomEnum::WM_NAME, AtomEnum::STRING);
        let title = self
            .server
            .get_property(false, self.window, name, kind, 0, 1 << 10);
        let title = title.expect("sent").reply().expect("a title").value;
        String::from_utf8(title).expect("UTF-8")
    }

    /// Waits until the title tells this order, and `judge` likes the compared and the wrong frames.
    fn until(&self, order: &str, judge: impl Fn(u32, u32) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let title = self.title();
            if let [_, _, _, said, counts] = title.split(", ").collect::<Vec<_>>()[..] {
                let mut numbers = counts.split(' ').filter_map(|word| word.parse().ok());
                let (wrong, compared) = (numbers.next(), numbers.next());
                let judged = compared.zip(wrong);
                let (compared, wrong) = judged.expect("two numbers");
                if said == order && judge(compared, wrong) {
                    return;
                }
            }
            loop {
                match self.server.poll_for_event().expect("a server") {
                    Some(Event::PropertyNotify(_)) => break,
                    Some(Event::DestroyNotify(_)) => panic!("the window is gone, after {title:?}"),
                    Some(_) => {}
                    None => thread::sleep(LOOKS),
                }
                assert!(Instant::now() < end, "the last title is {title:?}");
            }
        }
    }

    /// A key with the letter S.
    fn key(&self) -> u8 {
        let setup = self.server.setup();
        let keys = setup.max_keycode - setup.min_keycode + 1;
        let keys = self.server.get_keyboard_mapping(setup.min_keycode, keys);
        let keys = keys.expect("sent").reply().expect("keys");
        let symbols = keys.keysyms.chunks(keys.keysyms_per_keycode.into());
        let key = (setup.min_keycode..=setup.max_keycode).zip(symbols);
        let mut key = key.filter(|(_, symbols)| symbols.contains(&u32::from(b's')));
        key.next().expect("a keyboard with an S").0
    }

    /// Holds the key S until it repeats once.
    fn hold(&self) {
        for (kind, time) in [
            (KEY_PRESS_EVENT, 1),
            (KEY_RELEASE_EVENT, 2),
            (KEY_PRESS_EVENT, 2),
            (KEY_RELEASE_EVENT, 3),
        ] {
            let event = KeyPressEvent {
                response_type: kind,
                detail: self.key(),
                time,
                root: self.root,
                event: self.window,
                ..KeyPressEvent::default()
            };
            let sent = self
                .server
                .send_event(false, self.window, EventMask::NO_EVENT, event);
            sent.expect("sent").check().expect("a window");
        }
    }

    /// Presses and releases the key S, with the pointer in the window.
    fn press(&self) {
        let key = self.key();
        let sent = self
            .server
            .warp_pointer(0u32, self.window, 0, 0, 0, 0, 2, 2);
        sent.expect("sent").check().expect("a pointer");
        for event in [KEY_PRESS_EVENT, KEY_RELEASE_EVENT] {
            let sent = self
                .server
                .xtest_fake_input(event, key, 0, self.root, 0, 0, 0);
            sent.expect("sent").check().expect("XTEST");
        }
    }

    /// Sends the message by which a window manager closes the window, with this type.
    fn send_close(&self, kind: &[u8]) {
        let atom = |name: &[u8]| {
            let asked = self.server.intern_atom(false, name).expect("sent");
            asked.reply().expect("an atom").atom
        };
        let (kind, close) = (atom(kind), atom(b"WM_DELETE_WINDOW"));
        let message = ClientMessageEvent::new(32, self.window, kind, [close, 0, 0, 0, 0]);
        let sent = self
            .server
            .send_event(false, self.window, EventMask::NO_EVENT, message);
        sent.expect("sent").check().expect("a window");
        self.server.sync().expect("a server");
    }

    /// The exit code, and what the command has said since the window.
    fn end(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.out.read_to_string(&mut said).expect("text");
        let mut error = self.child.stderr.take().expect("a pipe");
        error.read_to_string(&mut said).expect("text");
        (self.child.wait().expect("it ends").code(), said)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a server, and `DISPLAY` for it.
fn server(name: &str) -> Option<(Server, String)> {
    let server = Server::start().filter(|_| has_vulkan(name))?;
    let display = server.display.replace("DISPLAY=", "");
    Some((server, display))
}

/// The key drops the waits, and frames are wrong. The key again, and all later frames are right.
///
/// A key that repeats switches once. A message of another type does not close the window.
#[test]
fn a_key_switches_the_waits_off_and_on() {
    let Some((_server, display)) = server("window-key") else {
        return;
    };
    let shown = Shown::start(&display);
    shown.until("synchronized", |compared, wrong| {
        assert_eq!(wrong, 0);
        compared > 1
    });
    shown.hold();
    shown.until("not synchronized", |_, wrong| wrong > 0);
    shown.send_close(b"WM_NAME");
    shown.press();
    shown.until("synchronized", |compared, wrong| {
        assert_eq!(wrong, 0);
        compared > 4
    });
    shown.send_close(b"WM_PROTOCOLS");
    let (code, said) = shown.end();
    // The command has compared more frames than the titles told.
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("without the waits"), "{said}");
    assert!(said.contains("frames, 0 wrong"), "{said}");
}

#[test]
fn a_number_of_frames_ends_the_window() {
    let Some((_server, display)) = server("window-frames") else {
        return;
    };
    let output = demo(&display, &["--software", "--frames", "40", "--json"]).output();
    let output = output.expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = json(&String::from_utf8(output.stdout).expect("UTF-8"));
    assert_eq!(
        (&report["frames"], &report["wrong"]),
        (&40.into(), &0.into())
    );
    assert!(report["verified"].as_u64() >= Some(1), "{report}");
    assert_eq!(report["unordered"], 0);
    assert!(report["synchronized"].is_null(), "{report}");
}

#[test]
fn frames_without_waits_are_counted_apart() {
    let Some((_server, display)) = server("window-unordered") else {
        return;
    };
    let without = ["--software", "--frames", "20", "--json", "--no-sync"];
    let output = demo(&display, &without).output();
    let output = output.expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = json(&String::from_utf8(output.stdout).expect("UTF-8"));
    for (key, count) in [("frames", 20), ("verified", 0), ("wrong", 0)] {
        assert_eq!(report[key], count, "{report}");
    }
    assert!(report["unordered"].as_u64() >= Some(1), "{report}");
    assert!(report["unordered_wrong"].is_u64(), "{report}");
    assert!(report["synchronized"].is_null(), "{report}");
}

#[test]
fn a_lost_server_is_told() {
    let Some((server, display)) = server("window-lost") else {
        return;
    };
    let shown = Shown::start(&display);
    drop(server);
    let (code, said) = shown.end();
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("its X11 server is gone"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// A server that refuses, as one does that wants a password. Returns its `DISPLAY`.
fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        client.read_exact(&mut [0; 12]).expect("a request");
        // It failed, eight bytes of reason, protocol 11.0, two words follow.
        let answer = [0, 8, 11, 0, 0, 0, 2, 0];
        client.write_all(&answer).expect("an answer");
        client.write_all(b"go away!").expect("an answer");
    });
    format!("127.0.0.1:{}", port - 6000)
}

#[rstest]
#[case::none("", "no window can be opened")]
#[case::no_server(":599", "DISPLAY, which is \":599\"")]
#[case::no_such_number(":59999", "there is no display 59999")]
#[case::refused(&refusing(), "go away!")]
fn a_window_that_cannot_be_opened_says_what_to_do(#[case] display: &str, #[case] says: &str) {
    let mut command = demo(display, &[]);
    if display.is_empty() {
        command.env_remove("DISPLAY");
    }
    let output = command.output().expect("the command starts");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(says) && said.contains("xvfb-run"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}
