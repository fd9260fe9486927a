//! CUDA's part: a kernel that reads a texture and writes a surface.

use std::sync::Arc;

use syncline::Result;
use syncline::cuda::{Device, Function, Image, Recorder, Surface, Texture, sys};

use crate::SIZE;

pub(crate) struct Filter {
    kernel: Function,
    /// Of the scene and of the filtered image of each slot.
    objects: Vec<(Texture, Surface)>,
}

/// How far the filter reaches in a frame, in texels.
pub(crate) fn radius(frame: u64) -> i32 {
    1 + (frame % 2) as i32
}

impl Filter {
    pub(crate) fn new(device: &Device, images: &[[Image; 2]], float: bool) -> Result<Self> {
        let (integers, floats) = (include_str!("box.ptx"), include_str!("box_float.ptx"));
        let module = device.module(if float { floats } else { integers })?;
        let point = sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT;
        let desc = sys::CUDA_TEXTURE_DESC {
            addressMode: [sys::CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP; 3],
            filterMode: point,
            flags: if float {
                0
            } else {
                sys::CU_TRSF_READ_AS_INTEGER
            },
            maxAnisotropy: 0,
            mipmapFilterMode: point,
            mipmapLevelBias: 0.0,
            minMipmapLevelClamp: 0.0,
            maxMipmapLevelClamp: 0.0,
            borderColor: [0.0; 4],
            reserved: [0; 12],
        };
        let objects = images
            .iter()
            .map(|[scene, filtered]| Ok((scene.texture(&desc)?, filtered.surface(0)?)));
        Ok(Self {
            kernel: module.function("box")?,
            objects: objects.collect::<Result<_>>()?,
        })
    }

    /// Filters the scene of a slot.
    pub(crate) fn launch(
        self: Arc<Self>,
        stream: &mut Recorder<'_>,
        slot: usize,
        frame: u64,
    ) -> Result<()> {
        let (texture, surface) = &self.objects[slot];
        let (mut from, mut to, mut radius) = (texture.raw(), surface.raw(), radius(frame));
        let params = &mut [
            (&raw mut from).cast(),
            (&raw mut to).cast(),
            (&raw mut radius).cast(),
        ];
        stream.keep(self.clone());
        // SAFETY: the kernel's parameters. A thread writes a texel. The objects are kept.
        unsafe { stream.launch(&self.kernel, [SIZE / 16, SIZE / 16, 1], [16, 16, 1], params) }
    }
}
