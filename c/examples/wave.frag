#version 450

// The colour of a point.
//
// glslangValidator -V --target-env vulkan1.1 --vn wave_frag -o wave.frag.h wave.frag

layout(location = 0) flat in uvec4 colour;
layout(location = 0) out uvec4 pixel;

void main() {
    pixel = colour;
}
