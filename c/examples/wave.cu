// The kernel for nvcc and the CUDA runtime. See wave_ptx.cpp.

#include "wave.h"

#include <cuda_runtime.h>

#include <stdexcept>

// A wave at a step of 1024 in a turn. Half a turn is a parabola.
static __device__ int wave_at(unsigned phase) {
  const int step = phase & 511;
  const int height = (step * (512 - step)) >> 8;
  return (phase & 512) == 0 ? height : -height;
}

static __global__ void wave(int *heights, unsigned frame) {
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned x = index % wave_side, z = index / wave_side;
  heights[index] = (wave_at(8 * x + 16 * frame) * wave_at(8 * (z + frame))) >> 11;
}

// The runtime uses the primary context of the device, which is that of Syncline's device, too.
void load_wave(CUcontext) {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, wave) != cudaSuccess) {
    throw std::runtime_error("CUDA does not load the kernel");
  }
}

int launch_wave(CUstream stream, std::uint64_t heights, std::uint32_t frame) noexcept {
  constexpr unsigned block = 256;
  wave<<<wave_vertices / block, block, 0, stream>>>(reinterpret_cast<int *>(heights), frame);
  return cudaGetLastError();
}
