#version 450

// Points of the wave, seen from above at an angle; the same as `picture` in check.rs, to the bit.
//
// glslangValidator -V --target-env vulkan1.1 -o wave.vert.spv wave.vert

// x, height and z, as CUDA has written them.
layout(location = 0) in ivec3 vertex;
layout(location = 0) flat out uvec4 colour;

void main() {
    const ivec2 pixel =
        ivec2(256 + vertex.x - vertex.z, 128 + ((vertex.x + vertex.z) >> 1) - vertex.y);
    // The middle of the pixel. All of this is exact.
    gl_Position = vec4((vec2(pixel) + 0.5) * (1.0 / 256.0) - 1.0, 0.0, 1.0);
    gl_PointSize = 1.0;
    const bool line = (vertex.x & 15) == 0 || (vertex.z & 15) == 0;
    const int light = (136 + 3 * vertex.y) >> (line ? 1 : 0);
    colour = uvec4(light >> 2, light, 64 + (light >> 1), 255);
}
