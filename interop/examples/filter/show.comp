#version 450

// The second pass: the right half of the scene becomes the filtered image.
//
// glslangValidator -V --target-env vulkan1.1 -o show.comp.spv show.comp

layout(local_size_x = 16, local_size_y = 16) in;
layout(binding = 0, rgba8ui) uniform writeonly uimage2D scene;
layout(binding = 1, rgba8ui) uniform readonly uimage2D filtered;

void main() {
    const ivec2 at = ivec2(gl_GlobalInvocationID);
    if (at.x >= int(gl_NumWorkGroups.x * gl_WorkGroupSize.x) / 2) {
        imageStore(scene, at, imageLoad(filtered, at));
    }
}
