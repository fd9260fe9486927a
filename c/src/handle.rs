//! Handles as C has them, and the tables behind them.
//!
//! A handle is a number with a generation. So a handle that was freed is refused, also if its place
//! in the table has a new object. Each handle is freed once. What it names lives on while other
//! handles or submissions need it.
//!
//! A `fork` waits for the tables, so that no thread that the child lacks has one locked there.

use std::cell::RefCell;
use std::sync::{Arc, Once, PoisonError, RwLock, RwLockWriteGuard};

use slotmap::{Key, KeyData, SlotMap};
use syncline::handle::SharedWords;
use syncline::process::{Endpoint, Listener};
use syncline::vulkan::Allocation;
use syncline::{Buffer, Device, Fence, Image, Link, Queue, wait::Notification};

use crate::claim::ClaimOfC;
use crate::lock::Lock;
use crate::result::Refused;
use crate::submit::Submission;
use crate::timeline::Line;

/// The objects of one kind that C has handles of.
pub(crate) struct Table<K: Key, T> {
    kind: &'static str,
    /// In the highest byte of its handles. So a handle of another kind is refused.
    tag: u64,
    objects: RwLock<Option<SlotMap<K, Arc<T>>>>,
}

impl<K: Key, T> Table<K, T> {
    const fn new(kind: &'static str, tag: u8) -> Self {
        Self {
            kind,
            tag: (tag as u64) << 56,
            objects: RwLock::new(None),
        }
    }

    /// Adds an object. Returns the number of its handle.
    fn add(&self, object: T) -> u64 {
        FORK.call_once(watch_forks);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let objects = objects.get_or_insert_with(SlotMap::with_key);
        objects.insert(Arc::new(object)).data().as_ffi() ^ self.tag
    }

    fn key(&self, id: u64) -> K {
        KeyData::from_ffi(id ^ self.tag).into()
    }

    /// The object of handle `id`.
    fn get(&self, id: u64) -> Result<Arc<T>, Refused> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let found = objects.as_ref();
        let found = found.and_then(|objects| objects.get(self.key(id)));
        found.cloned().ok_or(Refused::Handle {
            kind: self.kind,
            id,
        })
    }

    /// Takes the object of handle `id` out, unless `check` refuses it.
    fn remove(
        &self,
        id: u64,
        check: impl FnOnce(&T) -> Result<(), Refused>,
    ) -> Result<Arc<T>, Refused> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let missing = || Refused::Handle {
            kind: self.kind,
            id,
        };
        let objects = objects.as_mut().ok_or_else(missing)?;
        let key = self.key(id);
        check(objects.get(key).ok_or_else(missing)?)?;
        objects.remove(key).ok_or_else(missing)
    }
}

static FORK: Once = Once::new();

/// Registers the handlers of `fork`.
fn watch_forks() {
    // SAFETY: the handlers are functions of this library, which stays in the process. Without
    // memory for them, a child may hang in a call that another thread of the parent was in.
    let _ = unsafe { libc::pthread_atfork(Some(lock_tables), Some(unlock), Some(unlock)) };
}

/// A table that is locked for a fork.
trait Locked {}

impl<T> Locked for RwLockWriteGuard<'static, T> {}

thread_local! {
    /// All tables, on a thread that forks.
    static LOCKED: RefCell<Vec<Box<dyn Locked>>> = const { RefCell::new(Vec::new()) };
}

/// In the parent and in the child, whose only thread is the one that has locked.
extern "C" fn unlock() {
    let _ = LOCKED.try_with(RefCell::take);
}

/// A type of handle and the table behind it.
pub(crate) trait Handle: Copy {
    type Object: 'static;

    fn new(object: Self::Object) -> Self;

    /// # Errors
    /// The handle is null, was freed, or is of another kind.
    fn get(self) -> Result<Arc<Self::Object>, Refused>;

    /// # Errors
    /// Same errors as [`Handle::get`]. A null handle is freed without an effect.
    fn free(self) -> Result<(), Refused> {
        self.free_if(|_| Ok(()))
    }

    /// Frees the handle, unless `check` refuses it.
    ///
    /// # Errors
    /// Same errors as [`Handle::free`], and that of `check`.
    fn free_if(
        self,
        check: impl FnOnce(&Self::Object) -> Result<(), Refused>,
    ) -> Result<(), Refused>;
}

// Not made by the macro, which the generator of the header does not expand.

/// A device: the host, a CUDA context or a VkDevice.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_device {
    /// 0 for a null handle.
    pub id: u64,
}

/// A queue: a thread of the host, a CUDA stream or a VkQueue.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_queue {
    /// 0 for a null handle.
    pub id: u64,
}

/// A locked VkQueue, or a CUDA stream that one thread has for itself.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_lock {
    /// 0 for a null handle.
    pub id: u64,
}

/// A link: two devices, and how they synchronize.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_link {
    /// 0 for a null handle.
    pub id: u64,
}

/// A timeline: a counter of 64 bits that only grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_timeline {
    /// 0 for a null handle.
    pub id: u64,
}

/// A claim: the right to signal one value by a submission that the program makes itself.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_claim {
    /// 0 for a null handle.
    pub id: u64,
}

/// A submission to a queue.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_submission {
    /// 0 for a null handle.
    pub id: u64,
}

/// A fence: a position of a queue that can be recorded again, as a CUevent.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_fence {
    /// 0 for a null handle.
    pub id: u64,
}

/// A request to write to an eventfd.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_notification {
    /// 0 for a null handle.
    pub id: u64,
}

/// A range of memory as one device sees it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_buffer {
    /// 0 for a null handle.
    pub id: u64,
}

/// An image as one device sees it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_image {
    /// 0 for a null handle.
    pub id: u64,
}

/// Memory that the program has allocated, such as a block of its allocator.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_allocation {
    /// 0 for a null handle.
    pub id: u64,
}

/// A socket at a path, to which other processes connect.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_listener {
    /// 0 for a null handle.
    pub id: u64,
}

/// One end of a connection between two processes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_endpoint {
    /// 0 for a null handle.
    pub id: u64,
}

/// Words of host memory that processes share.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_words {
    /// 0 for a null handle.
    pub id: u64,
}

macro_rules! handles {
    ($($name:ident: $object:ty, $key:ident, $table:ident, $kind:literal, $tag:literal;)+) => {$(
        slotmap::new_key_type! { struct $key; }

        static $table: Table<$key, $object> = Table::new($kind, $tag);

        impl Handle for $name {
            type Object = $object;

            fn new(object: $object) -> Self {
                let id = $table.add(object);
                Self { id }
            }

            fn get(self) -> Result<Arc<$object>, Refused> {
                $table.get(self.id)
            }

            fn free_if(
                self,
                check: impl FnOnce(&$object) -> Result<(), Refused>,
            ) -> Result<(), Refused> {
                if self.id != 0 {
                    // The object ends after the table is unlocked: its end may call the program.
                    drop($table.remove(self.id, check)?);
                }
                Ok(())
            }
        }
    )+

        /// No call of the program and no other lock comes inside a lock of a table.
        extern "C" fn lock_tables() {
            let _ = LOCKED.try_with(|locked| {
                let mut locked = locked.borrow_mut();
                $(
                    let objects = &$table.objects;
                    let objects = objects.write().unwrap_or_else(PoisonError::into_inner);
                    locked.push(Box::new(objects));
                )+
            });
        }
    };
}

handles! {
    sl_device: Device, DeviceKey, DEVICES, "device", 1;
    sl_queue: Queue, QueueKey, QUEUES, "queue", 2;
    sl_lock: Lock, LockKey, LOCKS, "lock", 3;
    sl_link: Link, LinkKey, LINKS, "link", 4;
    sl_timeline: Line, TimelineKey, TIMELINES, "timeline", 5;
    sl_claim: ClaimOfC, ClaimKey, CLAIMS, "claim", 6;
    sl_submission: Submission, SubmissionKey, SUBMISSIONS, "submission", 7;
    sl_fence: Fence, FenceKey, FENCES, "fence", 8;
    sl_notification: Notification, NotificationKey, NOTIFICATIONS, "notification", 9;
    sl_buffer: Buffer, BufferKey, BUFFERS, "buffer", 10;
    sl_image: Image, ImageKey, IMAGES, "image", 11;
    sl_listener: Listener, ListenerKey, LISTENERS, "listener", 12;
    sl_endpoint: Endpoint, EndpointKey, ENDPOINTS, "endpoint", 13;
    sl_words: SharedWords, WordsKey, WORDS, "words", 14;
    sl_allocation: Allocation, AllocationKey, ALLOCATIONS, "allocation", 15;
}
