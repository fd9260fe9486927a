//! Copies between two buffers of host memory, which a host function in the stream makes.
//!
//! Every copy function of the driver blocks the calling thread until such a copy has ended.
#![allow(unsafe_code, reason = "copies memory when the driver calls")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use syncline_core::backend::kit::Mutex;
use syncline_core::internal::MakerProcess;

use crate::driver::table::Raw;
use crate::memory::buffer::Buffer;

/// The copies that a driver may still call, by number.
///
/// The driver gets only the number. If a fault ends a submission, no call tells whether the driver
/// has just begun to call the function. A number that is gone copies nothing.
static COPIES: Mutex<BTreeMap<usize, Arc<Mutex<Option<Words>>>>> = Mutex::new(BTreeMap::new());

/// The words of a copy. The locks of other copies are not held while they are copied.
struct Words {
    from: Raw<AtomicU32>,
    to: Raw<AtomicU32>,
    count: usize,
}

/// A copy that a driver may call. The drop waits for a call that has begun, and ends later ones.
pub(crate) struct HostCopy {
    number: usize,
    words: Arc<Mutex<Option<Words>>>,
    maker: MakerProcess,
}

impl HostCopy {
    /// The copy of the whole of `from` to the start of `to`. `None` unless both are host memory.
    ///
    /// # Safety
    /// `to` has at least the size of `from`. Both live until the copy is dropped, or the driver
    /// calls it no more.
    pub(crate) unsafe fn new(from: &Buffer, to: &Buffer) -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let (from, to) = (from.as_words()?, to.as_words()?);
        let address = |words: &[AtomicU32]| Raw(words.as_ptr().cast_mut());
        let words = Arc::new(Mutex::new(Some(Words {
            from: address(from),
            to: address(to),
            count: from.len(),
        })));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        COPIES.lock().insert(number, words.clone());
        Some(Self {
            number,
            words,
            maker: MakerProcess::this(),
        })
    }

    /// What the driver passes to [`HostCopy::run`].
    pub(crate) const fn data(&self) -> *mut c_void {
        without_provenance_mut(self.number)
    }

    /// Makes the copy with this number, on a thread of the driver.
    pub(crate) extern "C" fn run(number: *mut c_void) {
        let Some(words) = COPIES.lock().get(&number.addr()).cloned() else {
            return;
        };
        // Locked during the copy, so that the memory stays.
        if let Some(Words { from, to, count }) = &*words.lock() {
            // SAFETY: the copy is not dropped, so both buffers live (see `new`). Pinned memory with
            // this many words, which the host accesses only through atomics.
            let (from, to) = unsafe {
                (
                    std::slice::from_raw_parts(from.0, *count),
                    std::slice::from_raw_parts(to.0, *count),
                )
            };
            for (from, to) in from.iter().zip(to) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Drops a copy that a graph has kept.
    ///
    /// # Safety
    /// `copy` came from `Box::into_raw` as a [`HostCopy`], and this is the only call with it.
    pub(crate) unsafe extern "C" fn release(copy: *mut c_void) {
        // SAFETY: the caller guarantees it. The drop calls no driver.
        drop(unsafe { Box::from_raw(copy.cast::<Self>()) });
    }
}

impl Drop for HostCopy {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may have held the locks.
        if self.maker.is_this() {
            COPIES.lock().remove(&self.number);
            *self.words.lock() = None;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::time::Duration;

    use syncline_core::backend::Queue as _;

    use super::*;
    use crate::driver::emulated;
    use crate::queue::recorder::Recorder;
    use crate::queue::submission::Queue;

    fn setting() -> (Queue, Buffer, Buffer) {
        let device = emulated::device();
        let buffer = || device.host_buffer(4).unwrap();
        let queue = Queue::on_own_stream(&device, "queue").unwrap();
        (queue, buffer(), buffer())
    }

    fn submit(
        queue: &Queue,
        work: impl FnOnce(&mut Recorder<'_>) -> syncline_core::Result<()> + Send + 'static,
    ) {
        queue.submit(&[], work, &[]).unwrap();
    }

    fn finish(queue: &Queue) {
        emulated::finish(queue, emulated::put(queue));
        queue.idle(Duration::from_secs(30)).unwrap();
    }

    #[test]
    fn the_driver_makes_the_copy_until_the_submission_has_finished() {
        let (queue, from, to) = setting();
        let copied = (from.clone(), to.clone());
        submit(&queue, move |recorder| recorder.copy(&copied.0, &copied.1));
        // Earlier work of the queue may write this.
        from.write_words(&[1]).unwrap();
        assert_eq!(to.read_words().unwrap(), [0]);
        emulated::call_host_functions(&queue);
        assert_eq!(to.read_words().unwrap(), [1]);
        finish(&queue);
        from.write_words(&[2]).unwrap();
        emulated::call_host_functions(&queue);
        assert_eq!(to.read_words().unwrap(), [1], "the number is still there");
    }

    #[test]
    fn a_graph_makes_the_copy_after_the_submission_too() {
        let (queue, from, to) = setting();
        let copied = (from.clone(), to.clone());
        submit(&queue, move |recorder| {
            let stream = recorder.stream();
            emulated::begin_capture(stream);
            recorder.copy(&copied.0, &copied.1)?;
            assert_eq!(emulated::end_capture(stream), 1);
            Ok(())
        });
        finish(&queue);
        for word in [1, 2] {
            from.write_words(&[word]).unwrap();
            emulated::call_host_functions(&queue);
            assert_eq!(to.read_words().unwrap(), [word]);
        }
    }
}
