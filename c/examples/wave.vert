#version 450

// Points of the wave, seen from above at an angle; the same as `picture` in vertices.cpp, to the bit.
//
// glslangValidator -V --target-env vulkan1.1 --vn wave_vert -o wave.vert.h wave.vert

// The height of a vertex, as the kernel has written it.
layout(location = 0) in int height;
layout(location = 0) flat out uvec4 colour;

void main() {
    const int x = gl_VertexIndex & 255;
    const int z = gl_VertexIndex >> 8;
    const ivec2 pixel = ivec2(256 + x - z, 128 + ((x + z) >> 1) - height);
    // The middle of the pixel. All of this is exact.
    gl_Position = vec4((vec2(pixel) + 0.5) * (1.0 / 256.0) - 1.0, 0.0, 1.0);
    gl_PointSize = 1.0;
    const bool line = (x & 15) == 0 || (z & 15) == 0;
    const int light = (136 + 3 * height) >> (line ? 1 : 0);
    colour = uvec4(light >> 2, light, 64 + (light >> 1), 255);
}
