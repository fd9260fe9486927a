#version 450

// Keeps one invocation busy. Vulkan has no clock that every device lets a
// kernel read, so this counts operations and not time: whoever wants a certain
// time measures how long some number of iterations takes, and scales.
//
// Each operation needs the one before, and no shorter way to the end is known;
// and as the end is stored, a compiler cannot leave the way out.
//
// An iteration is a long chain because llvmpipe (lavapipe) silently ends every
// loop after some 65,535 rounds: see DELAY_MAX_ITERATIONS in mod.rs.
//
// glslangValidator -V --target-env vulkan1.1 -o delay.spv delay.comp

layout(local_size_x = 1) in;

layout(std430, set = 0, binding = 0) restrict writeonly buffer Result { uint result; };

layout(push_constant, std430) uniform Params {
    uint iterations;
};

#define MIX value = (value ^ (value >> 15)) * 0x2c1b3c6du + 1u;
#define MIX_4 MIX MIX MIX MIX
#define MIX_16 MIX_4 MIX_4 MIX_4 MIX_4
#define MIX_64 MIX_16 MIX_16 MIX_16 MIX_16

void main() {
    uint value = iterations;
    for (uint i = 0u; i < iterations; i++) {
        MIX_64 MIX_64
    }
    result = value;
}
