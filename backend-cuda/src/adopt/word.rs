//! Adopts words of the application's memory as timelines.
#![allow(unsafe_code, reason = "takes addresses")]

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::{Attachment, Port as _};
use syncline_core::{Error, Result, Timeline, error::Object};

use crate::device::context::Owner;
use crate::device::limits::MEMORY_OPS_LIMIT;
use crate::device::open::Device;
use crate::driver::memory_ops::Width;
use crate::driver::pointer::{MemoryKind, PointerInfo};
use crate::timeline::word::WordPort;

/// A word of memory by its address, for [`Device::adopt_word`].
///
/// The address is that on the device or on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// 32 bits. They wrap around, and the timeline's value does not.
    Bits32(sys::CUdeviceptr),
    /// 64 bits.
    Bits64(sys::CUdeviceptr),
}

impl Word {
    const fn parts(self) -> (sys::CUdeviceptr, Width) {
        match self {
            Self::Bits32(address) => (address, Width::Bits32),
            Self::Bits64(address) => (address, Width::Bits64),
        }
    }
}

impl Device {
    /// Creates a timeline over a word of the application's memory.
    ///
    /// A kernel, a network card, a library or a thread writes the word. The application promises
    /// each value, in rising order, once its write is on its way
    /// ([`Timeline::signalled_by_others`]). From then on streams wait for it on the device. Earlier
    /// waits are held on the host. Queues of this device also write the word, as signals.
    ///
    /// `reached` is the value of the timeline. For 32 bits, its low half is what the word shows. If
    /// the host can read the word, and the word shows a later value, that counts as reached.
    ///
    /// The memory is device memory, pinned memory or registered memory of this device's context. In
    /// device memory, the host learns of a promised value by an event in a stream of its own. Then
    /// at most 32 promised values of a device may be outstanding, and the host signals no value.
    ///
    /// The timeline and submissions with it keep `owner`. What writes the word in another way, such
    /// as a kernel, keeps the memory itself. See rule X10 in `docs/contract.md`.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with the reason:
    /// * the device's streams do not wait for memory, or the driver tells nothing of addresses,
    /// * the address is misaligned, freed, past the end, managed, or host memory that is not
    ///   registered,
    /// * another API has the memory, too.
    ///
    /// [`Error::WrongDevice`] for memory of another context or device. [`Error::Corrupted`] if the
    /// word shows a value below `reached`. Same errors as [`Timeline::new`]. A driver error.
    ///
    /// # Safety
    /// * The memory stays allocated and registered while `owner` is kept. Without an owner, it
    ///   stays so until the timeline, its points and all submissions with them are gone, and each
    ///   promised value has been written.
    /// * From now on the word changes only by signals of this timeline, and by writes of promised
    ///   values. Each write is above the value before it, and comes after that value. Writes of
    ///   this process are atomic.
    /// * A writer makes its other writes visible before it writes the word: a kernel by a fence of
    ///   the system's scope (`fence.sys`), a thread by a release store.
    /// * While a stream waits for a value, the word does not get 2^31 or more past it, for 32 bits.
    pub unsafe fn adopt_word(
        &self,
        word: Word,
        reached: u64,
        owner: Option<Arc<dyn Any + Send + Sync>>,
        label: &str,
    ) -> Result<Timeline> {
        let owner = Owner::new(owner);
        let (address, width) = word.parts();
        let object = Object::new("timeline", label);
        let context = self.context();
        context.require_maker()?;
        context.driver().require_alone(&object, "adopt a word")?;
        let info = self.info_of_word(address, width, &object)?;
        let on_host = (info.kind == MemoryKind::Host).then_some(info.on_host);
        let flushes = self.info().capabilities.stream_memory_flush;
        let word = (info.on_device, width);
        // SAFETY: the driver says so, and the caller guarantees the rest.
        let port = unsafe { WordPort::new(self, word, on_host, reached, flushes, owner, object) };
        port.poll()?;
        let mut home = Some(
            Attachment::imported(self.id(), port)
                .watched_by(self.watched())
                .signalled_elsewhere(true)
                .with_max_value_difference(width.largest_difference()),
        );
        Timeline::new(label, reached, |_| Ok(home.take().into_iter().collect()))
    }

    /// What the driver says of a word, if streams of this device can wait for it and write it.
    fn info_of_word(
        &self,
        address: sys::CUdeviceptr,
        width: Width,
        object: &Object,
    ) -> Result<PointerInfo> {
        let bytes = width.bytes();
        let refused = |reason: String| {
            let asked = format!("be the {}-bit word at {address:#x}", 8 * bytes);
            Err(Error::unsupported(object, asked, reason))
        };
        let can = &self.info().capabilities;
        if !can.stream_memory_ops {
            let limits = &mut can.limits.iter();
            let reason = limits.find(|(name, _)| *name == MEMORY_OPS_LIMIT);
            return refused(reason.map_or_else(
                || "the device's streams do not wait for memory".into(),
                |(_, reason)| reason.clone(),
            ));
        }
        if !address.is_multiple_of(bytes) {
            return refused(format!("the address is no multiple of {bytes}"));
        }
        let context = self.context();
        let info = {
            let _bound = context.bind_outside_capture()?;
            let info = context.driver().pointer_info(address);
            info.map_err(|code| context.error(code))?
        };
        let place = |name: String| {
            let owner = Object::new("context", &name);
            Err(Error::wrong_device(object.clone(), owner, self.object()))
        };
        match info.kind {
            MemoryKind::Host | MemoryKind::Device => {}
            MemoryKind::Managed => {
                return refused("streams do not wait for managed memory".into());
            }
            MemoryKind::Other => return refused("the driver names another kind of memory".into()),
            MemoryKind::Unknown => {
                return refused(
                    "the driver knows no memory there: it was freed, or it is memory of the host that was not registered (cuMemHostRegister)"
                        .into(),
                );
            }
        }
        if info.context != 0 && info.context != self.raw_context().addr() {
            return place(format!("{:#x}", info.context));
        }
        if info.context == 0
            && info.kind == MemoryKind::Device
            && info.device != context.device()?
        {
            return place(format!("of device {}", info.device));
        }
        // The driver may name the range by addresses of the other side.
        let is_inside = (info.begin..info.end).contains(&address);
        if is_inside && info.end - address < bytes {
            return refused(format!("the allocation ends at {:#x}", info.end));
        }
        if info.on_device == 0 || (info.kind == MemoryKind::Host && info.on_host == 0) {
            return refused("the driver gives no address for streams of this device".into());
        }
        if context.shared_memory().has(info.on_device) {
            return refused(
                "another API has this memory, too, and Vulkan's queues neither wait for a word nor write one in the order of their signals: share a timeline"
                    .into(),
            );
        }
        Ok(info)
    }
}
