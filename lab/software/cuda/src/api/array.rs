//! Arrays that lie in memory of other APIs, and the objects through which kernels access them.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use super::Handle;
use crate::abi::{In, Out, api};
use crate::array::{self, Array, MIPMAPPED, Shape};
use crate::bug::Bug;
use crate::capture;
use crate::code::Code;
use crate::current;
use crate::external::MEMORY;
use crate::object::{Object, Resource, SURFACES, TEXTURES};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
pub(super) struct Flat {
    extent: [usize; 2],
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Solid {
    extent: [usize; 3],
    format: u32,
    channels: u32,
    flags: u32,
}

/// `CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MappedDesc {
    offset: u64,
    array: Solid,
    levels: u32,
    reserved: [u32; 16],
}

/// `CUDA_TEXTURE_DESC`. Only the flags count for the texels that kernels read.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Texture {
    _modes: [u32; 4],
    flags: u32,
    _others: [u32; 21],
}

const _: () = assert!(size_of::<Texture>() == 104);
const _: () = assert!(size_of::<Flat>() == 24 && size_of::<Solid>() == 40);
const _: () = assert!(size_of::<MappedDesc>() == 120);

api! {
    fn cuExternalMemoryGetMappedMipmappedArray(
        to: Out<Handle>,
        memory: Handle,
        desc: In<MappedDesc>,
    ) {
        to.require()?;
        let MappedDesc { offset, array, levels, reserved } = desc.get()?;
        let context = current::context()?;
        capture::permit()?;
        if reserved != [0; 16] {
            return Err(Code::INVALID_VALUE);
        }
        let shape = Shape {
            extent: array.extent.map(|size| size as u64),
            format: array.format,
            channels: array.channels,
            flags: array.flags,
        };
        to.set(array::map(&context, &MEMORY.get(memory)?, offset, shape, levels)?)
    }

    fn cuMipmappedArrayGetLevel(to: Out<Handle>, mipmapped: Handle, level: u32) {
        to.require()?;
        current::context()?;
        to.set(MIPMAPPED.get(mipmapped)?.level(level)?)
    }

    fn cuMipmappedArrayDestroy(mipmapped: Handle) {
        if mipmapped == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let context = current::context()?;
        capture::permit()?;
        MIPMAPPED.remove(mipmapped)?.end();
        if Bug::ArrayFreedEarly.is_planted() {
            array::end_all(context.id);
        }
        Ok(())
    }

    fn cuArrayGetDescriptor_v2(to: Out<Flat>, array: Handle) {
        current::context()?;
        let Shape { extent: [width, height, _], format, channels, .. } = Array::find(array)?.shape;
        to.set(Flat { extent: [width as usize, height as usize], format, channels })
    }

    fn cuArray3DGetDescriptor_v2(to: Out<Solid>, array: Handle) {
        current::context()?;
        let Shape { extent, format, channels, flags } = Array::find(array)?.shape;
        to.set(Solid { extent: extent.map(|size| size as usize), format, channels, flags })
    }

    fn cuSurfObjectCreate(to: Out<u64>, resource: In<Resource>) {
        to.require()?;
        let context = current::context()?;
        to.set(Object::surface(&context, resource.get()?)? as u64)
    }

    fn cuSurfObjectDestroy(surface: u64) {
        current::context()?;
        Object::destroy(&SURFACES, surface as usize)
    }

    fn cuSurfObjectGetResourceDesc(to: Out<Resource>, surface: u64) {
        current::context()?;
        let surface = SURFACES.get(surface as usize).map_err(|_| Code::INVALID_VALUE)?;
        to.set(surface.resource)
    }

    fn cuTexObjectCreate(
        to: Out<u64>,
        resource: In<Resource>,
        desc: In<Texture>,
        view: In<u8>,
    ) {
        to.require()?;
        let context = current::context()?;
        let (resource, desc) = (resource.get()?, desc.get()?);
        // A resource view, which reads texels as another format.
        if !view.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        to.set(Object::texture(&context, resource, desc.flags)? as u64)
    }

    fn cuTexObjectDestroy(texture: u64) {
        current::context()?;
        Object::destroy(&TEXTURES, texture as usize)
    }
}
