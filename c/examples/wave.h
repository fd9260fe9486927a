// The kernel: it writes the height of each vertex of a wave.
//
// wave.cu has it for nvcc and the CUDA runtime, and wave_ptx.cpp for the driver API.

#ifndef WAVE_H
#define WAVE_H

#include <cstdint>
#include <syncline.h>

constexpr std::uint32_t wave_side = 256;
constexpr std::uint32_t wave_vertices = wave_side * wave_side;

// Loads the kernel. Throws a std::runtime_error.
void load_wave(CUcontext context);

// Adds a launch to a stream of the context, which is current. Returns an error of CUDA, or 0.
int launch_wave(CUstream stream, std::uint64_t heights, std::uint32_t frame) noexcept;

#endif
