#version 450

// The first pass: rings that move. `scene` in check.rs is the same, to the bit.
//
// glslangValidator -V --target-env vulkan1.1 -o paint.comp.spv paint.comp

layout(local_size_x = 16, local_size_y = 16) in;
layout(binding = 0, rgba8ui) uniform writeonly uimage2D scene;
layout(push_constant) uniform Frame { int frame; };

void main() {
    const ivec2 at = ivec2(gl_GlobalInvocationID);
    const ivec2 from = at - ivec2(40 + 2 * frame, 56);
    const int ring = (((from.x * from.x + from.y * from.y) >> 7) - frame) & 3;
    const int light = ring == 0 ? 255 : ring == 1 ? 128 : 16;
    const ivec3 rgb = ivec3((light * at.x) >> 7, (light * 3) >> 2, light - ((light * at.y) >> 7));
    imageStore(scene, at, uvec4(rgb, 255));
}
