#version 450

// Turns heights into pixels, 0xAABBGGRR; the same as `shade` in reference.rs,
// to the bit.
//
// glslangValidator -V --target-env vulkan1.1 -o shade.spv shade.comp

layout(local_size_x = 16, local_size_y = 16) in;

layout(std430, set = 0, binding = 0) restrict readonly buffer Heights { int heights[]; };
layout(std430, set = 0, binding = 1) restrict writeonly buffer Rgba { uint rgba[]; };

layout(push_constant, std430) uniform Params {
    uint width;
    uint height;
};

// Deep blue troughs, blue in the middle, crests nearly white.
const ivec3 TROUGH = ivec3(4, 22, 66);
const ivec3 MIDDLE = ivec3(28, 112, 176);
const ivec3 CREST = ivec3(226, 246, 255);

void main() {
    const uint x = gl_GlobalInvocationID.x;
    const uint y = gl_GlobalInvocationID.y;
    if (x >= width || y >= height) {
        return;
    }
    const uint i = y * width + x;

    // On the border a cell is its own neighbour.
    const int left = heights[x > 0u ? i - 1u : i];
    const int right = heights[x + 1u < width ? i + 1u : i];
    const int above = heights[y > 0u ? i - width : i];
    const int below = heights[y + 1u < height ? i + width : i];
    const int slope = (right - left) + (below - above);

    // The palette covers heights of -1.0 to 1.0, 128 shades either side.
    const int shade = clamp((heights[i] >> 9) + 128, 0, 255);
    const bool low = shade < 128;
    const ivec3 from = low ? TROUGH : MIDDLE;
    const ivec3 to = low ? MIDDLE : CREST;
    const ivec3 base = from + (((to - from) * (shade & 127)) >> 7);

    // Light comes from the upper left: 256 is the brightness of the palette.
    const int facing = clamp(slope >> 7, -128, 127);
    const int light = 208 + facing;
    // Where the water faces the light nearly straight, it glints.
    const int sheen = max(facing - 48, 0);
    const int glint = (sheen * sheen) >> 6;

    const uvec3 pixel = uvec3(min(((base * light) >> 8) + glint, ivec3(255)));
    rgba[i] = 0xff000000u | pixel.b << 16 | pixel.g << 8 | pixel.r;
}
