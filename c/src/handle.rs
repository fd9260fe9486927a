//! Handles as C has them, and the tables behind them.
//!
//! A handle is a number with a generation. So a handle that was freed is refused, also if its place
//! in the table has a new object. Each handle is freed once. What it names lives on while other
//! handles or submissions need it.

use std::sync::{Arc, PoisonError, RwLock};

use slotmap::{Key, KeyData, SlotMap};
use syncline::{Device, Queue, Timeline};

use crate::result::Refused;

/// The objects of one kind that C has handles of.
pub(crate) struct Table<K: Key, T> {
    kind: &'static str,
    objects: RwLock<Option<SlotMap<K, Arc<T>>>>,
}

impl<K: Key, T> Table<K, T> {
    const fn new(kind: &'static str) -> Self {
        Self {
            kind,
            objects: RwLock::new(None),
        }
    }

    /// Adds an object. Returns the number of its handle.
    fn add(&self, object: T) -> u64 {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let objects = objects.get_or_insert_with(SlotMap::with_key);
        objects.insert(Arc::new(object)).data().as_ffi()
    }

    /// The object of handle `id`.
    fn get(&self, id: u64) -> Result<Arc<T>, Refused> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let found = objects.as_ref();
        let found = found.and_then(|objects| objects.get(KeyData::from_ffi(id).into()));
        found.cloned().ok_or(Refused::Handle {
            kind: self.kind,
            id,
        })
    }

    /// Takes the object of handle `id` out.
    fn remove(&self, id: u64) -> Result<Arc<T>, Refused> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let found = objects.as_mut();
        let found = found.and_then(|objects| objects.remove(KeyData::from_ffi(id).into()));
        found.ok_or(Refused::Handle {
            kind: self.kind,
            id,
        })
    }
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
    fn free(self) -> Result<(), Refused>;
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

/// A timeline: a counter of 64 bits that only grows.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_timeline {
    /// 0 for a null handle.
    pub id: u64,
}

macro_rules! handles {
    ($($name:ident: $object:ty, $key:ident, $table:ident, $kind:literal;)+) => {$(
        slotmap::new_key_type! { struct $key; }

        static $table: Table<$key, $object> = Table::new($kind);

        impl Handle for $name {
            type Object = $object;

            fn new(object: $object) -> Self {
                let id = $table.add(object);
                Self { id }
            }

            fn get(self) -> Result<Arc<$object>, Refused> {
                $table.get(self.id)
            }

            fn free(self) -> Result<(), Refused> {
                if self.id != 0 {
                    drop($table.remove(self.id)?);
                }
                Ok(())
            }
        }
    )+};
}

handles! {
    sl_device: Device, DeviceKey, DEVICES, "device";
    sl_queue: Queue, QueueKey, QUEUES, "queue";
    sl_timeline: Timeline, TimelineKey, TIMELINES, "timeline";
}
