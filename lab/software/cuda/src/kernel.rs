//! Modules, their kernels, and launches.
#![allow(unsafe_code, reason = "kernels access memory that devices reach")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

use syncline_software_ptx::{
    Entry, Fault, Geometry, Images, Launch, Machine, Module as Ptx, Refusal,
};

use crate::allocation::{Access, Allocation};
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::engine::Engine;
use crate::object::{Object, SURFACES, TEXTURES};
use crate::settings::{Verbosity, explain};
use crate::table::Table;
use crate::{lock, mark, space};

/// All loaded modules.
pub(crate) static MODULES: Table<Module> = Table::new();
/// All functions of loaded modules that the application has requested.
pub(crate) static FUNCTIONS: Table<Function> = Table::new();

/// A loaded module.
pub(crate) struct Module {
    pub(crate) context: Arc<Context>,
    ptx: Ptx,
    /// The handles of its functions, with their names: each function has one handle.
    functions: Mutex<Vec<(String, usize)>>,
}

/// A kernel of a module.
pub(crate) struct Function {
    pub(crate) context: Arc<Context>,
    pub(crate) entry: Arc<Entry>,
}

/// The target of the devices. Modules for a newer one are refused.
const TARGET: u32 = 90;

impl Module {
    /// Reads a text in PTX. An error carries its reason as text.
    pub(crate) fn load(context: Arc<Context>, text: &str) -> Result<usize, (Code, String)> {
        let ptx = Ptx::parse(text).map_err(|error| {
            let code = match error.refusal {
                Refusal::Version(_) => Code::UNSUPPORTED_PTX_VERSION,
                _ => Code::INVALID_PTX,
            };
            (code, error.to_string())
        })?;
        let target = ptx.target();
        if target > TARGET {
            let reason = format!("the target sm_{target} is newer than the device's sm_{TARGET}");
            return Err((Code::INVALID_PTX, reason));
        }
        // Loading may wait for other work, so a program that loads after a wait hangs.
        let synchronized = context.synchronize();
        synchronized.map_err(|code| (code, "the context has failed".into()))?;
        Ok(MODULES.add(Arc::new(Self {
            context,
            ptx,
            functions: Mutex::default(),
        })))
    }

    /// Returns the handle of a function.
    pub(crate) fn function(&self, name: &str) -> Answer<usize> {
        let entry = self.ptx.entry(name).ok_or(Code::NOT_FOUND)?;
        let find = |functions: &[(String, usize)]| {
            let known = functions.iter().find(|(known, _)| known == name);
            known.map(|(_, handle)| *handle)
        };
        if let Some(handle) = find(&lock(&self.functions)) {
            return Ok(handle);
        }
        // Without the lock: the work may wait for a thread that first requests another function.
        self.context.synchronize()?;
        let mut functions = lock(&self.functions);
        if let Some(handle) = find(&functions) {
            return Ok(handle);
        }
        let handle = FUNCTIONS.add(Arc::new(Function {
            context: self.context.clone(),
            entry,
        }));
        functions.push((name.into(), handle));
        Ok(handle)
    }

    /// Makes its functions invalid.
    pub(crate) fn unload(&self) {
        for (_, handle) in lock(&self.functions).drain(..) {
            let _ = FUNCTIONS.remove(handle);
        }
    }
}

/// A launch of a kernel, with its parameters.
pub(crate) struct KernelLaunch {
    entry: Arc<Entry>,
    launch: Launch,
}

impl KernelLaunch {
    /// Checks the launch.
    pub(crate) fn new(entry: Arc<Entry>, launch: Launch) -> Answer<Self> {
        entry.check(&launch).map_err(|_| Code::INVALID_VALUE)?;
        Ok(Self { entry, launch })
    }

    pub(crate) fn run(&self, engine: &Engine) -> Answer {
        let device = DeviceMachine {
            engine,
            last: Mutex::new(None),
            last_object: Mutex::new(None),
            next_yield: AtomicU64::new(0),
        };
        let fault = match self.entry.run(&self.launch, &device) {
            Ok(()) => return Ok(()),
            // The context has ended, so this is no error of the kernel.
            Err(Fault::Stopped) => return Ok(()),
            Err(fault) => fault,
        };
        explain(
            Verbosity::Faults,
            format_args!("kernel {}: {fault}", self.entry.name()),
        );
        Err(match fault {
            Fault::Misaligned { .. } => Code::MISALIGNED_ADDRESS,
            Fault::Trap => Code::LAUNCH_FAILED,
            _ => Code::ILLEGAL_ADDRESS,
        })
    }
}

/// A surface or texture, with its table and its handle.
type Known = (&'static Table<Object>, u64, Arc<Object>);

/// The environment of a kernel: the memory of its context, and the clock.
struct DeviceMachine<'e> {
    engine: &'e Engine,
    /// The allocation of the last access, which is kept until the kernel accesses another one.
    ///
    /// A free waits only for the work of the memory's own context. This kernel may be of another
    /// one.
    last: Mutex<Option<Arc<Allocation>>>,
    /// The surface or texture of the last access.
    last_object: Mutex<Option<Known>>,
    /// The time before which a pause does not yield.
    next_yield: AtomicU64,
}

impl DeviceMachine<'_> {
    /// Returns the address of a word in this process. The interpreter has checked its alignment.
    fn word(&self, address: u64, bytes: u32, write: bool) -> Result<*mut u8, Fault> {
        let length = u64::from(bytes);
        let mut last = lock(&self.last);
        let access = if write { Access::Write } else { Access::Read };
        let known = last.as_ref();
        if let Some(alias) = known.and_then(|last| last.alias(address, length, access)) {
            return Ok(alias);
        }
        let found = space::find(self.engine.device, address, length, access);
        let (allocation, alias) = found.ok_or(Fault::Address {
            address,
            bytes,
            write,
        })?;
        *last = Some(allocation);
        Ok(alias)
    }
}

/// Loads 1, 2, 4 or 8 bytes.
///
/// # Safety
///
/// The bytes are aligned, and mapped during the call. Devices and the host access them as atomics.
pub(crate) unsafe fn load(at: *mut u8, bytes: u32) -> u64 {
    let order = Ordering::Relaxed;
    // SAFETY: the caller's.
    unsafe {
        match bytes {
            1 => AtomicU8::from_ptr(at).load(order).into(),
            2 => AtomicU16::from_ptr(at.cast()).load(order).into(),
            4 => AtomicU32::from_ptr(at.cast()).load(order).into(),
            _ => AtomicU64::from_ptr(at.cast()).load(order),
        }
    }
}

/// Stores the low 1, 2, 4 or 8 bytes of a value.
///
/// # Safety
///
/// As for [`load`].
pub(crate) unsafe fn store(at: *mut u8, bytes: u32, value: u64) {
    let order = Ordering::Relaxed;
    // SAFETY: the caller's.
    unsafe {
        match bytes {
            1 => AtomicU8::from_ptr(at).store(value as u8, order),
            2 => AtomicU16::from_ptr(at.cast()).store(value as u16, order),
            4 => AtomicU32::from_ptr(at.cast()).store(value as u32, order),
            _ => AtomicU64::from_ptr(at.cast()).store(value, order),
        }
    }
}

impl DeviceMachine<'_> {
    /// Returns what the object of a handle gives, or the fault of its wrong use.
    fn with<T>(
        &self,
        table: &'static Table<Object>,
        handle: u64,
        get: impl FnOnce(&Object) -> Option<T>,
    ) -> Result<T, Fault> {
        let mut last = lock(&self.last_object);
        let known = last.take().filter(|(known_table, known, object)| {
            std::ptr::eq(*known_table, table) && *known == handle && object.is_alive()
        });
        let fault = Fault::Object { object: handle };
        let object = match known {
            Some((_, _, object)) => object,
            None => table.get(handle as usize).map_err(|_| fault)?,
        };
        let result = get(&object);
        *last = Some((table, handle, object));
        result.ok_or(fault)
    }
}

impl Images for DeviceMachine<'_> {
    fn surface(&self, object: u64, geometry: Geometry) -> Result<[u32; 3], Fault> {
        self.with(&SURFACES, object, |surface| {
            surface.surface_extent(geometry)
        })
    }

    fn load(&self, surface: u64, at: [u32; 3], bytes: u32) -> Result<u64, Fault> {
        self.with(&SURFACES, surface, |surface| surface.load(at, bytes))
    }

    fn store(&self, surface: u64, at: [u32; 3], bytes: u32, value: u64) -> Result<(), Fault> {
        self.with(&SURFACES, surface, |surface| {
            surface.store(at, bytes, value)
        })
    }

    fn texture(&self, object: u64, geometry: Geometry, level: u32) -> Result<[u32; 3], Fault> {
        self.with(&TEXTURES, object, |texture| {
            texture.texture_extent(geometry, level)
        })
    }

    fn texel(&self, texture: u64, level: u32, at: [u32; 3]) -> Result<[u32; 4], Fault> {
        self.with(&TEXTURES, texture, |texture| texture.texel(level, at))
    }
}

impl Machine for DeviceMachine<'_> {
    fn load(&self, address: u64, bytes: u32) -> Result<u64, Fault> {
        let at = self.word(address, bytes, false)?;
        // SAFETY: `word` has found so many aligned bytes, which are kept until its next call. One
        // thread runs the kernel.
        Ok(unsafe { load(at, bytes) })
    }

    fn store(&self, address: u64, bytes: u32, value: u64) -> Result<(), Fault> {
        let at = self.word(address, bytes, true)?;
        // SAFETY: as for `load`.
        unsafe { store(at, bytes, value) };
        Ok(())
    }

    fn update(
        &self,
        address: u64,
        bytes: u32,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault> {
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        // SAFETY: as for `load`.
        unsafe {
            if bytes == 4 {
                let word = AtomicU32::from_ptr(self.word(address, 4, true)?.cast());
                let changed = word.fetch_update(set, get, |old| Some(change(old.into()) as u32));
                return Ok(changed.unwrap_or_else(|old| old).into());
            }
            let word = AtomicU64::from_ptr(self.word(address, 8, true)?.cast());
            let changed = word.fetch_update(set, get, |old| Some(change(old)));
            Ok(changed.unwrap_or_else(|old| old))
        }
    }

    fn images(&self) -> Option<&dyn Images> {
        Some(self)
    }

    fn global_timer(&self) -> u64 {
        mark::now()
    }

    /// Yields to the thread that a polling kernel may wait for.
    ///
    /// Beside busy threads a yield takes as long as their time slices. Then the kernel runs for as
    /// long before the next one, or a kernel that computes would hardly proceed.
    fn pause(&self) -> bool {
        let before = mark::now();
        if before >= self.next_yield.load(Ordering::Relaxed) {
            std::thread::yield_now();
            let after = mark::now();
            let next = after.saturating_add(after.saturating_sub(before));
            self.next_yield.store(next, Ordering::Relaxed);
        }
        self.engine.life.is_over()
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}
