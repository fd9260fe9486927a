#version 450
#extension GL_EXT_samplerless_texture_functions : require

// Corners of the surface; the same as `Row` in reference.rs, to the bit.
//
// An instance is a strip of the surface, from the nearest to the horizon, and the last one is the
// sky. Vertices alternate between the near side of a strip and its far side.
//
// glslangValidator -V --target-env vulkan1.1 -o water.vert.spv water.vert

layout(set = 0, binding = 0) uniform itexture2D heights;

layout(push_constant, std430) uniform View {
    int width;
    int height;
    int side;
    int horizon;
    int focus;
    int lift;
    int steep;
    int whole;
};

// Rise to the right, rise ahead, height, and 1 on the water.
layout(location = 0) flat out ivec4 surface;

const int SUB_PIXEL = 4;
const int CAMERA = 13107;
const ivec2 PLACE = ivec2(32768, 8000);
const int LIMIT = 8 << 16;

// The viewport has this many pixels, a power of two, so that no position is rounded.
const int VIEWPORT = 4096;

int dot3(ivec3 left, ivec3 right) {
    const ivec3 products = left * right;
    return products.x + products.y + products.z;
}

// The coordinate, mirrored into the field, and its sign.
ivec2 fold(int at) {
    return (at & 0x10000) == 0 ? ivec2(at & 0xffff, 1) : ivec2(~at & 0xffff, -1);
}

// The nearest cell, and the distance from it in 256ths.
ivec2 cell(int at) {
    at = (at * (side - 1)) >> 8;
    const int cell = (at + 128) >> 8;
    return ivec2(cell, at - (cell << 8));
}

ivec3 weights(int part) {
    const int before = ((128 - part) * (128 - part)) >> 9;
    const int behind = ((128 + part) * (128 + part)) >> 9;
    return ivec3(before, 256 - before - behind, behind);
}

ivec3 differences(int part) {
    return ivec3(part - 128, -2 * part, part + 128);
}

int level(int x, int y) {
    const ivec2 at = clamp(ivec2(x, y), ivec2(0), ivec2(side - 1));
    return clamp(texelFetch(heights, at, 0).x, -LIMIT, LIMIT);
}

int slope(int rise, int shown) {
    const int slope = ((rise >> 4) * steep) >> 6;
    return clamp((slope * shown) >> 8, -2047, 2047);
}

void main() {
    const int strips = ((height - horizon) * 9) / 8;
    const int column = gl_VertexIndex >> 1;
    const int far = gl_VertexIndex & 1;
    int y;
    if (gl_InstanceIndex == strips) {
        y = far == 1 ? 0 : height << SUB_PIXEL;
        surface = ivec4(0);
    } else {
        const int below = max(strips - gl_InstanceIndex + 1 - far, 1);
        const int step = (CAMERA << 10) / below;
        const ivec2 across = fold((((column - width / 2) * step) >> 10) + PLACE.x);
        const ivec2 along = fold(((focus * step) >> 10) + PLACE.y);
        const ivec2 x = cell(across.x);
        const ivec2 z = cell(along.x);
        ivec3 levels;
        ivec3 rises;
        for (int line = 0; line < 3; line++) {
            const int row = z.x + line - 1;
            const ivec3 three =
                ivec3(level(x.x - 1, row), level(x.x, row), level(x.x + 1, row));
            levels[line] = dot3(weights(x.y), three) >> 8;
            rises[line] = dot3(differences(x.y), three) >> 8;
        }
        const int near = min(below, whole);
        const int shown = ((near * near) << 8) / (whole * whole);
        const int raw = across.y * along.y * (dot3(weights(z.y), levels) >> 8);
        const int right = along.y * (dot3(weights(z.y), rises) >> 8);
        const int ahead = across.y * (dot3(differences(z.y), levels) >> 8);
        const int water = ((raw >> 4) * shown) >> 4;
        const int raised = (below * (((water >> 4) * lift) >> 6)) >> 16;
        y = ((horizon + below) << SUB_PIXEL) - raised;
        surface = ivec4(slope(right, shown), slope(ahead, shown), water, 1);
    }
    y = clamp(y, 0, VIEWPORT << SUB_PIXEL);
    const vec2 at = vec2(column << SUB_PIXEL, y) / float((VIEWPORT / 2) << SUB_PIXEL);
    // All corners of a strip have one depth, so that it is not interpolated.
    gl_Position = vec4(at - 1.0, float(gl_InstanceIndex) / float(VIEWPORT), 1.0);
}
