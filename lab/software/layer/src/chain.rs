//! Searches of `pNext` chains.
#![allow(unsafe_code, reason = "reads structures of the application")]

use std::ffi::c_void;

use ash::vk::{self, TaggedStructure};

/// Returns the first structure of type `T` in a chain that the layer only reads.
///
/// # Safety
/// `chain` is null or the start of a valid `pNext` chain that lives as long as the result.
pub(crate) unsafe fn find<'c, T: TaggedStructure>(chain: *const c_void) -> Option<&'c T> {
    let mut at = chain.cast::<vk::BaseInStructure<'_>>();
    // SAFETY: by this function's contract each pointer is null or points to a structure that begins
    // like this one, and the type says which structure it is.
    unsafe {
        while let Some(structure) = at.as_ref() {
            if structure.s_type == T::STRUCTURE_TYPE {
                return at.cast::<T>().as_ref();
            }
            at = structure.p_next;
        }
    }
    None
}

/// Calls `visit` with the type and the address of each structure of a chain of results.
///
/// # Safety
/// `chain` is null or the start of a valid `pNext` chain.
pub(crate) unsafe fn for_each(
    chain: *mut c_void,
    mut visit: impl FnMut(vk::StructureType, *mut c_void),
) {
    let mut at = chain.cast::<vk::BaseOutStructure<'_>>();
    // SAFETY: as in `find`.
    while let Some(structure) = unsafe { at.as_ref() } {
        visit(structure.s_type, at.cast());
        at = structure.p_next;
    }
}

/// The types of structures and their sizes, for [`Copied::of`].
macro_rules! known {
    ($($structure:ty),* $(,)?) => {
        [$((<$structure as ash::vk::TaggedStructure>::STRUCTURE_TYPE, size_of::<$structure>())),*]
    };
}
pub(crate) use known;

/// A copy of the structures of a chain that the layer knows.
///
/// Software drivers need no others there.
pub(crate) struct Copied(Vec<Box<[u64]>>);

impl Copied {
    /// Copies the structures of these types, each of which has the size beside it.
    ///
    /// # Safety
    /// `chain` is null or the start of a valid `pNext` chain.
    pub(crate) unsafe fn of(chain: *const c_void, known: &[(vk::StructureType, usize)]) -> Self {
        let mut copies: Vec<Box<[u64]>> = Vec::new();
        let copy = |s_type, at: *mut c_void| {
            let Some((_, size)) = known.iter().find(|(known, _)| *known == s_type) else {
                return;
            };
            let mut copied = vec![0_u64; size.div_ceil(8)].into_boxed_slice();
            // SAFETY: a structure of this type by its tag, and the copy has room for its size.
            unsafe {
                let to = copied.as_mut_ptr().cast::<u8>();
                to.copy_from_nonoverlapping(at.cast(), *size);
            }
            copies.push(copied);
        };
        // SAFETY: by this function's contract. The structures are only read.
        unsafe { for_each(chain.cast_mut(), copy) };
        let mut next = std::ptr::null();
        for copied in copies.iter_mut().rev() {
            let base = copied.as_mut_ptr().cast::<vk::BaseInStructure<'_>>();
            // SAFETY: each structure begins like this one, and is as aligned as a pointer.
            unsafe { (*base).p_next = next };
            next = base;
        }
        Self(copies)
    }

    /// Returns the first structure, as a chain that is valid while the copy lives.
    pub(crate) fn first(&self) -> *const c_void {
        self.0
            .first()
            .map_or(std::ptr::null(), |first| first.as_ptr().cast())
    }

    /// Returns the structure of type `T`.
    pub(crate) fn get<T: TaggedStructure>(&mut self) -> Option<&mut T> {
        let is_it = |copied: &&mut Box<[u64]>| {
            let base = copied.as_ptr().cast::<vk::BaseInStructure<'_>>();
            // SAFETY: each structure begins like this one.
            unsafe { (*base).s_type == T::STRUCTURE_TYPE }
        };
        let found = self.0.iter_mut().find(is_it)?;
        // SAFETY: by its tag a structure of this type, copied with its size.
        unsafe { found.as_mut_ptr().cast::<T>().as_mut() }
    }
}

/// Returns an array that Vulkan passes as a count and a pointer. Empty if the pointer is null.
///
/// # Safety
/// `first` is null or points to `count` valid elements, which live as long as the result.
pub(crate) unsafe fn slice<'a, T>(first: *const T, count: u32) -> &'a [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { std::slice::from_raw_parts(first, count as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_structures_are_copied_in_their_order() {
        let mut flags = vk::MemoryAllocateFlagsInfo::default().device_mask(7);
        let mut export = vk::ExportMemoryAllocateInfo::default();
        let mut priority = vk::MemoryPriorityAllocateInfoEXT::default().priority(0.5);
        // The last one is the first of the chain.
        let info = vk::MemoryAllocateInfo::default()
            .push_next(&mut priority)
            .push_next(&mut export)
            .push_next(&mut flags);
        let sizes = known![
            vk::MemoryAllocateFlagsInfo<'_>,
            vk::MemoryPriorityAllocateInfoEXT<'_>
        ];
        // SAFETY: a valid chain, and copies of it.
        unsafe {
            let mut copied = Copied::of(info.p_next, &sizes);
            let mut types = Vec::new();
            for_each(copied.first().cast_mut(), |s_type, _| types.push(s_type));
            assert_eq!(types, sizes.map(|(s_type, _)| s_type));
            let found = find::<vk::MemoryAllocateFlagsInfo<'_>>(copied.first());
            assert_eq!(found.map(|found| found.device_mask), Some(7));
            assert!(copied.get::<vk::ExportMemoryAllocateInfo<'_>>().is_none());
            if let Some(priority) = copied.get::<vk::MemoryPriorityAllocateInfoEXT<'_>>() {
                priority.priority = 1.0;
            }
            let changed = find::<vk::MemoryPriorityAllocateInfoEXT<'_>>(copied.first());
            assert_eq!(changed.map(|changed| changed.priority), Some(1.0));
            assert!(Copied::of(std::ptr::null(), &sizes).first().is_null());
        }
    }
}
