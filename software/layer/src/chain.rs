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
