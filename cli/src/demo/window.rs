//! A window of X11 that shows frames.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Display;

use x11rb::connection::Connection as _;
use x11rb::errors::ReplyError;
use x11rb::image::{BitsPerPixel, Image, ImageOrder, ScanlinePad};
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    AtomEnum, ConnectionExt as _, CreateGCAux, CreateWindowAux, EventMask, PropMode, WindowClass,
};
use x11rb::reexports::x11rb_protocol::parse_display::parse_display;
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

use crate::failure::Failure;
use syncline_demo::Size;

/// The TCP port of display 0.
const FIRST_PORT: u16 = 6000;

/// Keysyms of `s` and `S`.
const SWITCH: [u32; 2] = [0x73, 0x53];

/// An event that the demo reacts to.
pub(super) enum Input {
    /// The key that switches the synchronization.
    Switch,
    Close,
}

/// A window, and the connection to its server.
pub(super) struct Window {
    server: RustConnection,
    id: u32,
    context: u32,
    size: Size,
    /// The type of a window manager's messages, and the message when the user closes the window.
    protocols: u32,
    close: u32,
    /// Keys that have the letter S.
    switches: Vec<u8>,
    /// The key and the time of the last event, if it was a release.
    released: Cell<Option<(u8, u32)>>,
}

impl Window {
    /// Opens a window for frames of this size.
    pub(super) fn open(size: Size) -> Result<Self, Failure> {
        Self::try_open(size).map_err(|reason| Failure::NoWindow { reason })
    }

    fn try_open(size: Size) -> Result<Self, String> {
        // The crate adds the number to a port, which overflows.
        if let Ok(asked) = parse_display(None).map(|asked| asked.display)
            && asked > u16::MAX - FIRST_PORT
        {
            return Err(format!("there is no display {asked}"));
        }
        let (server, screen) = RustConnection::connect(None).map_err(words)?;
        let setup = server.setup();
        let screen = &setup.roots[screen];
        let visuals = screen.allowed_depths.iter().flat_map(|of| &of.visuals);
        let mut visuals = visuals.filter(|visual| visual.visual_id == screen.root_visual);
        let is_usual = visuals.any(|visual| visual.red_mask == 0xff_0000);
        if screen.root_depth != 24 || !is_usual {
            let depth = screen.root_depth;
            return Err(format!(
                "its screen has pixels of {depth} bits, or in another order than blue, green and red"
            ));
        }
        let keys = setup
            .max_keycode
            .saturating_sub(setup.min_keycode)
            .saturating_add(1);
        let keys = server.get_keyboard_mapping(setup.min_keycode, keys);
        let keys = keys.map_err(words)?.reply().map_err(words)?;
        let symbols = keys.keysyms.chunks(keys.keysyms_per_keycode.max(1).into());
        let switches = (setup.min_keycode..=setup.max_keycode).zip(symbols);
        let switches = switches.filter(|(_, symbols)| SWITCH.iter().any(|of| symbols.contains(of)));
        let switches = switches.map(|(key, _)| key).collect();
        let made = |id, context| -> Result<[u32; 2], ReplyError> {
            let options = CreateWindowAux::new()
                .background_pixel(screen.black_pixel)
                .event_mask(
                    EventMask::KEY_PRESS | EventMask::KEY_RELEASE | EventMask::STRUCTURE_NOTIFY,
                );
            let class = WindowClass::INPUT_OUTPUT;
            let (width, height) = (size.width as u16, size.height as u16);
            let (depth, visual) = (screen.root_depth, screen.root_visual);
            server
                .create_window(
                    depth,
                    id,
                    screen.root,
                    0,
                    0,
                    width,
                    height,
                    0,
                    class,
                    visual,
                    &options,
                )?
                .check()?;
            server
                .create_gc(context, id, &CreateGCAux::new())?
                .check()?;
            let protocols = server.intern_atom(false, b"WM_PROTOCOLS")?.reply()?.atom;
            let close = server
                .intern_atom(false, b"WM_DELETE_WINDOW")?
                .reply()?
                .atom;
            let (replace, atom) = (PropMode::REPLACE, AtomEnum::ATOM);
            server.change_property32(replace, id, protocols, atom, &[close])?;
            server.map_window(id)?.check()?;
            Ok([protocols, close])
        };
        let id = server.generate_id().map_err(words)?;
        let context = server.generate_id().map_err(words)?;
        let [protocols, close] = made(id, context).map_err(words)?;
        let window = Self {
            server,
            id,
            context,
            size,
            protocols,
            close,
            switches,
            released: Cell::new(None),
        };
        let titled = window.set_title("syncline: opening the devices");
        titled
            .and_then(|()| window.server.sync().map_err(gone))
            .map_err(words)?;
        Ok(window)
    }

    pub(super) fn set_title(&self, title: &str) -> Result<(), Failure> {
        let (name, kind) = (AtomEnum::WM_NAME, AtomEnum::STRING);
        let (replace, title) = (PropMode::REPLACE, title.as_bytes());
        let sent = self
            .server
            .change_property8(replace, self.id, name, kind, title);
        sent.map(drop).map_err(gone)
    }

    /// Shows a frame of `0xAABBGGRR` words, and returns when the server has it.
    pub(super) fn put(&self, rgba: &[u32]) -> Result<(), Failure> {
        let bgra = rgba.iter().flat_map(|&rgba| {
            let [red, green, blue, alpha] = rgba.to_le_bytes();
            [blue, green, red, alpha]
        });
        let image = Image::new(
            self.size.width as u16,
            self.size.height as u16,
            ScanlinePad::Pad32,
            24,
            BitsPerPixel::B32,
            ImageOrder::LsbFirst,
            Cow::Owned(bgra.collect()),
        );
        let image = image.map_err(gone)?;
        image
            .put(&self.server, self.id, self.context, 0, 0)
            .map_err(gone)?;
        self.server.sync().map_err(gone)
    }

    /// The next event that counts, if one has come.
    pub(super) fn input(&self) -> Result<Option<Input>, Failure> {
        while let Some(event) = self.server.poll_for_event().map_err(gone)? {
            let released = self.released.take();
            match event {
                Event::KeyRelease(key) => self.released.set(Some((key.detail, key.time))),
                // A key that is held repeats: a release and a press at the same time.
                Event::KeyPress(key)
                    if self.switches.contains(&key.detail)
                        && released != Some((key.detail, key.time)) =>
                {
                    return Ok(Some(Input::Switch));
                }
                Event::ClientMessage(said)
                    if (said.type_, said.format) == (self.protocols, 32)
                        && said.data.as_data32()[0] == self.close =>
                {
                    return Ok(Some(Input::Close));
                }
                Event::DestroyNotify(_) => return Ok(Some(Input::Close)),
                Event::Error(error) => return Err(gone(format!("{error:?}"))),
                _ => {}
            }
        }
        Ok(None)
    }
}

fn words(error: impl Display) -> String {
    error.to_string()
}

fn gone(reason: impl Display) -> Failure {
    let reason = reason.to_string();
    Failure::WindowLost { reason }
}
