#version 450

// One step of the wave, in place: `prev` becomes the next field.
// The formula, and why it is what it is, is in mod.rs; reference.rs is the same
// in Rust, to the bit. Constants here repeat those of mod.rs.
//
// glslangValidator -V --target-env vulkan1.1 -o step.spv step.comp

layout(local_size_x = 16, local_size_y = 16) in;

layout(std430, set = 0, binding = 0) restrict buffer Prev { int prev[]; };
layout(std430, set = 0, binding = 1) restrict readonly buffer Now { int now[]; };

const uint EMITTERS = 3u;

// StepParams::words() in params.rs.
layout(push_constant, std430) uniform Params {
    uint width;
    uint height;
    int emitters[3 * EMITTERS]; // x, y and amplitude of each
};

const int LIMIT = 8 << 16;
const int SPEED_FACTOR = 3;
const int SPEED_SHIFT = 3;
const int DAMPING_SHIFT = 9;
const int POSITION_BITS = 4;
const int REACH = 6 << POSITION_BITS;
const int FORCE_SHIFT = 16;

// Integer arithmetic wraps in SPIR-V, and `>>` of an int is arithmetic.

int distance_to(uint cell, int centre) {
    return clamp(int(cell << POSITION_BITS) - centre, -REACH, REACH);
}

void main() {
    const uint x = gl_GlobalInvocationID.x;
    const uint y = gl_GlobalInvocationID.y;
    if (x >= width || y >= height) {
        return;
    }
    const uint i = y * width + x;
    if (x == 0u || y == 0u || x + 1u >= width || y + 1u >= height) {
        prev[i] = 0;
        return;
    }

    int force = 0;
    for (uint e = 0u; e < 3u * EMITTERS; e += 3u) {
        const int dx = distance_to(x, emitters[e]);
        const int dy = distance_to(y, emitters[e + 1u]);
        const int bump = max(REACH * REACH - dx * dx - dy * dy, 0);
        force += (emitters[e + 2u] * bump) >> FORCE_SHIFT;
    }

    const int level = now[i];
    const int around = now[i - 1u] + now[i + 1u] + now[i - width] + now[i + width];
    const int curvature = around - 4 * level;
    const int accel = (curvature * SPEED_FACTOR + (1 << (SPEED_SHIFT - 1))) >> SPEED_SHIFT;
    const int free = 2 * level - prev[i] + accel + force;
    const int loss = (free + (1 << (DAMPING_SHIFT - 1))) >> DAMPING_SHIFT;
    prev[i] = clamp(free - loss, -LIMIT, LIMIT);
}
