//! A window of X11, what is painted in it, and a picture of it.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use syncline::vulkan::Buffer;
use syncline::vulkan::ash::vk;
use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    AtomEnum, ConfigureWindowAux, ConnectionExt as _, CreateWindowAux, EventMask, ImageFormat,
    PropMode, WindowClass,
};
use x11rb::wrapper::ConnectionExt as _;
use x11rb::xcb_ffi::{XCBConnection, load_libxcb};

use crate::PATIENCE;

/// Why the program ends early.
pub(crate) enum Stop {
    Usage,
    NoWindow(String),
    NoDevice(String),
    NoPicture(String),
    Lost(String),
    Vulkan(vk::Result),
    Syncline(syncline::Error),
}

/// Says what to do. `main` prints this.
impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage => f.write_str("usage: window [FRAMES [PICTURE.png]]"),
            Self::NoWindow(reason) => {
                match std::env::var("DISPLAY") {
                    Ok(display) => write!(f, "no window can be opened on DISPLAY={display}")?,
                    Err(_) => f.write_str("no window can be opened: DISPLAY is not set")?,
                }
                f.write_str(". Set it to an X11 server, or start the program under xvfb-run")?;
                write!(f, " (Debian: xvfb and xauth). The reason: {reason}")
            }
            Self::NoDevice(reason) => write!(
                f,
                "no Vulkan device can present in the window: {reason}. Without a GPU, install \
                 lavapipe (Debian: mesa-vulkan-drivers)"
            ),
            Self::NoPicture(reason) => write!(f, "the picture cannot be written: {reason}"),
            Self::Lost(reason) => write!(
                f,
                "the window or its server is gone: {reason}. Open a window again, and make a \
                 surface and a swapchain of it. The device, its queues and timelines stay"
            ),
            Self::Vulkan(code) => write!(f, "Vulkan: {code}"),
            Self::Syncline(error) => write!(f, "{error}"),
        }
    }
}

impl From<vk::Result> for Stop {
    fn from(code: vk::Result) -> Self {
        match code {
            vk::Result::ERROR_SURFACE_LOST_KHR => Self::Lost(code.to_string()),
            code => Self::Vulkan(code),
        }
    }
}

impl From<syncline::Error> for Stop {
    fn from(error: syncline::Error) -> Self {
        Self::Syncline(error)
    }
}

/// The number of frames, and the file for a picture of the last one.
pub(crate) fn arguments() -> Result<(u64, Option<PathBuf>), Stop> {
    let mut arguments = std::env::args().skip(1);
    let frames = arguments.next().map_or(Ok(300), |asked| asked.parse());
    let picture = arguments.next().map(PathBuf::from);
    frames
        .map(|frames| (frames, picture))
        .map_err(|_| Stop::Usage)
}

/// The pixel of frame `n` at a place: red, green and blue from bit 16 down.
fn pixel(x: u32, y: u32, n: u64) -> u32 {
    ((x + 2 * n as u32) & 255) << 16 | (y & 255) << 8 | (n as u32 * 16) & 255
}

/// Paints frame `n`, row by row. Fails once, so that the program shows what to do then.
pub(crate) fn paint(to: &Buffer, width: u32, n: u64) -> Result<(), &'static str> {
    static HAS_FAILED: AtomicBool = AtomicBool::new(false);
    if n == 3 && !HAS_FAILED.swap(true, Relaxed) {
        return Err("the paint is empty");
    }
    for (at, word) in (0..).zip(to.as_words().unwrap_or_default()) {
        word.store(pixel(at % width, at / width, n), Relaxed);
    }
    Ok(())
}

/// A window, and the connection to its server.
pub(crate) struct Window {
    pub(crate) connection: XCBConnection,
    pub(crate) id: u32,
    size: Mutex<(u32, u32)>,
    /// The message of a window manager when the window is closed.
    close: u32,
}

impl Window {
    /// Opens a window.
    pub(crate) fn open(width: u16, height: u16) -> Result<Self, Stop> {
        load_libxcb().map_err(none)?;
        let (connection, screen) = XCBConnection::connect(None).map_err(none)?;
        let screen = &connection.setup().roots[screen];
        let id = connection.generate_id().map_err(none)?;
        let (depth, class) = (x11rb::COPY_DEPTH_FROM_PARENT, WindowClass::INPUT_OUTPUT);
        let options = CreateWindowAux::new().event_mask(EventMask::STRUCTURE_NOTIFY);
        let made = connection.create_window(
            depth,
            id,
            screen.root,
            0,
            0,
            width,
            height,
            0,
            class,
            screen.root_visual,
            &options,
        );
        made.map_err(none)?.check().map_err(none)?;
        let [protocols, close] = ["WM_PROTOCOLS", "WM_DELETE_WINDOW"].map(|name| {
            let asked = connection
                .intern_atom(false, name.as_bytes())
                .map_err(none)?;
            Ok::<_, Stop>(asked.reply().map_err(none)?.atom)
        });
        let (protocols, close) = (protocols?, close?);
        let (replace, atom) = (PropMode::REPLACE, AtomEnum::ATOM);
        connection
            .change_property32(replace, id, protocols, atom, &[close])
            .and_then(|_| {
                connection.change_property8(
                    replace,
                    id,
                    AtomEnum::WM_NAME,
                    AtomEnum::STRING,
                    b"syncline",
                )
            })
            .map_err(none)?;
        let shown = connection.map_window(id).map_err(none)?;
        shown.check().map_err(none)?;
        Ok(Self {
            connection,
            id,
            size: Mutex::new((width.into(), height.into())),
            close,
        })
    }

    /// False once the user has closed the window.
    ///
    /// Before frame 5 this changes the size of the window, as a user does.
    pub(crate) fn is_open(&self, n: u64) -> Result<bool, Stop> {
        if n == 5 {
            let size = ConfigureWindowAux::new().width(400).height(240);
            let sent = self.connection.configure_window(self.id, &size);
            sent.map_err(gone)?.check().map_err(gone)?;
        }
        while let Some(event) = self.connection.poll_for_event().map_err(gone)? {
            match event {
                Event::ConfigureNotify(now) => *self.lock() = (now.width.into(), now.height.into()),
                Event::DestroyNotify(_) => return Err(gone("it was destroyed")),
                Event::ClientMessage(message) if message.data.as_data32()[0] == self.close => {
                    return Ok(false);
                }
                _ => {}
            }
        }
        Ok(true)
    }

    /// The size that the server has told last, in pixels.
    pub(crate) fn size(&self) -> (u32, u32) {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, (u32, u32)> {
        self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what the server shows to a file.
    ///
    /// A present returns before the server shows the image. So this waits until it shows frame `n`,
    /// for at most [`PATIENCE`].
    pub(crate) fn save(&self, path: Option<PathBuf>, n: u64) -> Result<(), Stop> {
        let Some(path) = path else {
            return Ok(());
        };
        let begin = Instant::now();
        let (width, height, shown) = loop {
            let size = self.connection.get_geometry(self.id).map_err(gone)?;
            let size = size.reply().map_err(gone)?;
            let (width, height) = (size.width, size.height);
            let format = ImageFormat::Z_PIXMAP;
            let image = self
                .connection
                .get_image(format, self.id, 0, 0, width, height, !0);
            let shown = image.map_err(gone)?.reply().map_err(gone)?.data;
            let is_right = (0..).zip(shown.chunks_exact(4)).all(|(at, bgrx)| {
                let width = u32::from(width);
                bgrx[..3] == pixel(at % width, at / width, n).to_le_bytes()[..3]
            });
            if is_right || begin.elapsed() > PATIENCE {
                break (width, height, shown);
            }
        };
        let pixels = shown
            .chunks_exact(4)
            .flat_map(|bgrx| [bgrx[2], bgrx[1], bgrx[0]]);
        let file = File::create(path).map_err(|error| Stop::NoPicture(error.to_string()))?;
        let mut png = png::Encoder::new(file, width.into(), height.into());
        png.set_color(png::ColorType::Rgb);
        let header = png.write_header();
        header
            .and_then(|mut png| png.write_image_data(&pixels.collect::<Vec<_>>()))
            .map_err(|error| Stop::NoPicture(error.to_string()))
    }
}

fn none(error: impl fmt::Display) -> Stop {
    Stop::NoWindow(error.to_string())
}

fn gone(error: impl fmt::Display) -> Stop {
    Stop::Lost(error.to_string())
}
