// The kernel as PTX with integers, which the software driver runs, too.

#if __has_include(<cuda.h>)
#include <cuda.h>
#else
#include "cuda_part.h"
#endif

#include "wave.h"

#include <stdexcept>

// A turn has 1024 steps. Half a turn is a parabola, which looks like a sine. Heights are from -32
// to 32. `height` in vertices.cpp computes the same.
static const char code[] = R"ptx(
.version 6.4
.target sm_60
.address_size 64

.visible .entry wave(.param .u64 wave_heights, .param .u32 wave_frame)
{
    .reg .pred %below;
    .reg .u32 %block, %size, %thread, %index, %x, %z, %frame, %phase, %step, %half;
    .reg .s32 %rise, %across, %along, %height;
    .reg .u64 %heights, %offset;

    ld.param.u64 %heights, [wave_heights];
    ld.param.u32 %frame, [wave_frame];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %size, %thread;
    and.b32 %x, %index, 255;
    shr.u32 %z, %index, 8;

    // The wave to the right: 8 * x + 16 * frame.
    shl.b32 %phase, %x, 3;
    mad.lo.u32 %phase, %frame, 16, %phase;
    and.b32 %step, %phase, 511;
    sub.u32 %rise, 512, %step;
    mul.lo.s32 %across, %step, %rise;
    shr.s32 %across, %across, 8;
    and.b32 %half, %phase, 512;
    setp.ne.u32 %below, %half, 0;
    @%below neg.s32 %across, %across;

    // The wave to the front: 8 * z + 8 * frame.
    add.u32 %phase, %z, %frame;
    shl.b32 %phase, %phase, 3;
    and.b32 %step, %phase, 511;
    sub.u32 %rise, 512, %step;
    mul.lo.s32 %along, %step, %rise;
    shr.s32 %along, %along, 8;
    and.b32 %half, %phase, 512;
    setp.ne.u32 %below, %half, 0;
    @%below neg.s32 %along, %along;

    mul.lo.s32 %height, %across, %along;
    shr.s32 %height, %height, 11;
    cvta.to.global.u64 %heights, %heights;
    mul.wide.u32 %offset, %index, 4;
    add.u64 %heights, %heights, %offset;
    st.global.s32 [%heights], %height;
    ret;
}
)ptx";

static CUfunction kernel;

void load_wave(CUcontext context) {
  CUmodule module;
  if (cuCtxSetCurrent(context) != 0 || cuModuleLoadData(&module, code) != 0 ||
      cuModuleGetFunction(&kernel, module, "wave") != 0) {
    throw std::runtime_error("CUDA does not load the kernel");
  }
}

int launch_wave(CUstream stream, std::uint64_t heights, std::uint32_t frame) noexcept {
  void *parameters[] = {&heights, &frame};
  constexpr unsigned block = 256;
  return cuLaunchKernel(kernel, wave_vertices / block, 1, 1, block, 1, 1, 0, stream, parameters,
                        nullptr);
}
