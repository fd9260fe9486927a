//! Scenarios of images that Vulkan makes and CUDA uses.
#![allow(unsafe_code, reason = "launches a kernel")]

use std::ffi::c_void;

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{Recorder, Surface, Texture, sys};
use syncline::image::{Format, ImageInfo, ImageUsage};
use syncline::{QueueKind, vulkan};

use super::vulkan::{USAGE, words};
use super::{PATIENCE, Scenario, Verdict, cuda, expect};
use crate::one_run::{DROPPING, step};

pub(super) static SCENARIOS: &[Scenario] = &[Scenario {
    name: "cuda.images",
    run: images,
}];

/// Adds 1 to the texels of a surface, and writes the first channel of texels to a buffer.
const PTX: &str = r#"
.version 6.4
.target sm_60
.address_size 64

.visible .entry texels(.param .u64 surface, .param .u64 texture, .param .u64 words)
{
    .reg .u64 %surface, %texture, %words, %offset;
    .reg .u32 %columns, %index;
    .reg .s32 %column, %row, %byte;
    .reg .b32 %r<4>;
    ld.param.u64 %surface, [surface];
    ld.param.u64 %texture, [texture];
    ld.param.u64 %words, [words];
    mov.u32 %column, %ctaid.x;
    mov.u32 %row, %ctaid.y;
    mov.u32 %columns, %nctaid.x;
    mul.lo.s32 %byte, %column, 4;
    suld.b.2d.b32.trap {%r0}, [%surface, {%byte, %row}];
    add.u32 %r0, %r0, 1;
    sust.b.2d.b32.trap [%surface, {%byte, %row}], {%r0};
    tex.2d.v4.u32.s32 {%r0, %r1, %r2, %r3}, [%texture, {%column, %row}];
    mad.lo.u32 %index, %row, %columns, %column;
    mul.wide.u32 %offset, %index, 4;
    add.u64 %words, %words, %offset;
    st.u32 [%words], %r0;
    ret;
}
"#;

/// Integers by their coordinates.
const TEXTURE: sys::CUDA_TEXTURE_DESC = sys::CUDA_TEXTURE_DESC {
    addressMode: [sys::CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP; 3],
    filterMode: sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT,
    flags: sys::CU_TRSF_READ_AS_INTEGER,
    maxAnisotropy: 0,
    mipmapFilterMode: sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT,
    mipmapLevelBias: 0.0,
    minMipmapLevelClamp: 0.0,
    maxMipmapLevelClamp: 1.0,
    borderColor: [0.0; 4],
    reserved: [0; 12],
};

/// An image of two levels, copied and accessed by a kernel.
fn images() -> Verdict {
    let (cuda, vulkan) = (cuda::open()?, super::vulkan::open()?);
    step("exporting");
    let mut info = ImageInfo::d2(Format::Rgba8Uint, 8, 4, ImageUsage::SAMPLED);
    info.levels = 2;
    let [large, small] = [0, 1].map(|level| info.level_size(level));
    let (image, handle) = vulkan.export_image(&info)?;
    step("importing");
    let imported = cuda.import_image(handle, &info)?;
    let (surface, texture): (Surface, Texture) =
        (imported.surface(1)?, imported.texture(&TEXTURE)?);
    step("set-up");
    let function = cuda.module(PTX)?.function("texels")?;
    let (theirs, ours) = (
        vulkan.queue(QueueKind::Compute, "theirs")?,
        cuda.queue(QueueKind::Compute, "ours")?,
    );
    let (written, seen) = (
        vulkan.host_buffer(large, USAGE)?,
        vulkan.host_buffer(small, USAGE)?,
    );
    let (first, second) = (cuda.host_buffer(large)?, cuda.host_buffer(small)?);
    step("submitting");
    let to = image.clone();
    let writes = move |recorder: &mut vulkan::Recorder<'_>| {
        recorder.fill_buffer(&written, 7)?;
        recorder.copy_buffer_to_image(&written, &to, 0)
    };
    theirs.submit(&[], writes, &[])?.end().wait(PATIENCE)?;
    let (to, texels) = (first.clone(), second.clone());
    let works = move |recorder: &mut Recorder<'_>| {
        recorder.copy_image_to_buffer(&imported, 0, &to)?;
        recorder.memset_d32(&texels, 9)?;
        recorder.copy_buffer_to_image(&texels, &imported, 1)?;
        let mut objects = [surface.raw(), texture.raw(), texels.pointer()];
        let mut params = objects
            .each_mut()
            .map(|object| std::ptr::from_mut(object).cast::<c_void>());
        recorder.keep(std::sync::Arc::new((surface, texture)));
        // SAFETY: the kernel has these three parameters. It accesses 4 by 2 texels of the surface
        // and of the texture, and as many words. The submission keeps all of them.
        unsafe { recorder.launch(&function, [4, 2, 1], [1, 1, 1], &mut params) }
    };
    ours.submit(&[], works, &[])?.end().wait(PATIENCE)?;
    let to = seen.clone();
    let reads =
        move |recorder: &mut vulkan::Recorder<'_>| recorder.copy_image_to_buffer(&image, 1, &to);
    theirs.submit(&[], reads, &[])?.end().wait(PATIENCE)?;
    expect(first.read_words()? == [7; 32], "CUDA reads other texels")?;
    expect(second.read_words()? == [7; 8], "the texture is another")?;
    expect(words(&seen) == [10; 8], "Vulkan reads other texels")?;
    step("waiting");
    theirs.idle(PATIENCE)?;
    ours.idle(PATIENCE)?;
    cuda.free_what_is_due()?;
    cuda.check()?;
    vulkan.check()?;
    step(DROPPING);
    Ok(())
}
