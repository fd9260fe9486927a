//! The gates of the software drivers: orders, and counts of calls and objects.
#![allow(unsafe_code, reason = "calls functions that the drivers export")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::ptr::null;

use libloading::Library;

use crate::seams;

/// The driver that a function belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Cuda,
    Vulkan,
}

impl Side {
    pub(crate) fn of(function: &str) -> Self {
        if function.starts_with("cu") {
            Self::Cuda
        } else {
            Self::Vulkan
        }
    }

    const fn variable(self) -> &'static str {
        match self {
            Self::Cuda => "SYNCLINE_CUDA_DRIVER",
            Self::Vulkan => "SYNCLINE_FAULTS_LAYER",
        }
    }

    fn library(self) -> Result<Library, String> {
        let path = std::env::var_os(self.variable());
        let path = path.ok_or_else(|| format!("{} is not set", self.variable()))?;
        // SAFETY: this project's own library.
        unsafe { Library::new(&path) }.map_err(|error| error.to_string())
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Cuda => "synclineSoftware",
            Self::Vulkan => "synclineLayer",
        }
    }
}

type Arm = unsafe extern "C" fn(*const c_char) -> i32;
type Disarm = unsafe extern "C" fn() -> u64;
type Lines = unsafe extern "C" fn(*mut u8, usize) -> usize;

/// The calls of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Calls {
    pub(crate) main: u64,
    pub(crate) other: u64,
    /// Those that failed because of the order.
    pub(crate) failed: u64,
}

struct Gate {
    arm: Arm,
    disarm: Disarm,
    calls: Lines,
    live: Lines,
}

/// The gates of both drivers.
pub(crate) struct Gates([Gate; 2], CurrentContext);

type CurrentContext = unsafe extern "C" fn(*mut usize) -> u32;

impl Gates {
    /// Finds the drivers that the environment names.
    pub(crate) fn find() -> Result<Self, String> {
        let gates = [Gate::find(Side::Cuda)?, Gate::find(Side::Vulkan)?];
        let library = Side::Cuda.library()?;
        // SAFETY: cuda.h declares the function so.
        let current = unsafe { symbol(&library, "cuCtxGetCurrent") }?;
        std::mem::forget(library);
        Ok(Self(gates, current))
    }

    /// True if the calling thread has a current context.
    pub(crate) fn has_context(&self) -> bool {
        let mut context = 0;
        // SAFETY: writes one handle.
        unsafe { (self.1)(&raw mut context) };
        context != 0
    }

    /// Counts from now on. With an order, its call fails.
    pub(crate) fn begin(&self, order: Option<&str>) -> Result<(), String> {
        seams::GATE.count();
        for gate in &self.0 {
            // SAFETY: null is allowed.
            unsafe { (gate.arm)(null()) };
        }
        let Some(order) = order else { return Ok(()) };
        if order.starts_with(seams::THREADS) {
            let is_order = seams::GATE.arm(order);
            return is_order
                .then_some(())
                .ok_or_else(|| format!("{order}: not an order"));
        }
        let gate = &self.0[Side::of(order) as usize];
        let text = CString::new(order).map_err(|error| error.to_string())?;
        // SAFETY: a text that ends with 0.
        match unsafe { (gate.arm)(text.as_ptr()) } {
            0 => Ok(()),
            _ => Err(format!("{order}: not an order")),
        }
    }

    /// Ends the order. Returns how many calls have failed.
    pub(crate) fn end(&self) -> u64 {
        // SAFETY: no preconditions.
        let failed: u64 = self.0.iter().map(|gate| unsafe { (gate.disarm)() }).sum();
        failed + seams::GATE.disarm()
    }

    /// The calls since [`Gates::begin`].
    pub(crate) fn calls(&self) -> BTreeMap<String, Calls> {
        let mut all = BTreeMap::new();
        let texts = self.0.iter().map(|gate| text(gate.calls));
        for text in texts.chain([seams::GATE.calls()]) {
            for line in text.lines() {
                let mut words = line.split(' ');
                let name = words.next().unwrap_or_default().to_owned();
                let mut number = || words.next().and_then(|word| word.parse().ok());
                let calls = Calls {
                    main: number().unwrap_or(0),
                    other: number().unwrap_or(0),
                    failed: number().unwrap_or(0),
                };
                all.insert(name, calls);
            }
        }
        all
    }

    /// The live objects of both drivers.
    pub(crate) fn live(&self) -> BTreeMap<String, i64> {
        let mut all = BTreeMap::new();
        for (gate, side) in self.0.iter().zip(["cuda", "vulkan"]) {
            for line in text(gate.live).lines() {
                if let Some((kind, count)) = line.split_once(' ')
                    && let Ok(count) = count.parse()
                {
                    all.insert(format!("{side} {kind}"), count);
                }
            }
        }
        all
    }
}

impl Gate {
    fn find(side: Side) -> Result<Self, String> {
        let library = side.library()?;
        let name = |end: &str| format!("{}{end}", side.prefix());
        // SAFETY: the library exports the functions with these types.
        let gate = unsafe {
            Self {
                arm: symbol(&library, &name("Arm"))?,
                disarm: symbol(&library, &name("Disarm"))?,
                calls: symbol(&library, &name("CallCounts"))?,
                live: symbol(&library, &name("LiveKinds"))?,
            }
        };
        // It stays in use.
        std::mem::forget(library);
        Ok(gate)
    }
}

/// # Safety
/// The symbol has this type.
unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: by this function's contract.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found
        .map(|symbol| *symbol)
        .map_err(|_| format!("no function {name}"))
}

fn text(write: Lines) -> String {
    let mut bytes = vec![0_u8; 1 << 14];
    loop {
        // SAFETY: memory for so many bytes.
        let needed = unsafe { write(bytes.as_mut_ptr(), bytes.len()) };
        if needed <= bytes.len() {
            bytes.truncate(needed.saturating_sub(1));
            return String::from_utf8_lossy(&bytes).into_owned();
        }
        bytes.resize(needed, 0);
    }
}
