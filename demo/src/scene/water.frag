#version 450

// Light from the sky and the water; the same as `sky_colour` and `water_colour` in reference.rs,
// to the bit.
//
// glslangValidator -V --target-env vulkan1.1 -o water.frag.spv water.frag

layout(push_constant, std430) uniform View {
    int width;
    int height;
    int side;
    int horizon;
    int focus;
};

layout(location = 0) flat in ivec4 surface;
layout(location = 0) out vec4 rgba;

const int ONE = 1 << 14;
const ivec3 SUN = ivec3(2700, 2500, 15965);
const ivec3 ZENITH = ivec3(22, 44, 104);
const ivec3 MIDDLE = ivec3(104, 112, 168);
const ivec3 HORIZON = ivec3(255, 190, 132);
const ivec3 GLOW = ivec3(130, 70, 26);
const ivec3 LIGHT = ivec3(255, 244, 206);
const ivec3 DEEP = ivec3(4, 30, 54);
const ivec3 SHALLOW = ivec3(20, 122, 128);

int dot3(ivec3 left, ivec3 right) {
    const ivec3 products = left * right;
    return products.x + products.y + products.z;
}

// The square root, rounded down. The device's own may be wrong by one.
int root(int of) {
    int root = int(sqrt(float(of)));
    root -= root * root > of ? 1 : 0;
    root += (root + 1) * (root + 1) <= of ? 1 : 0;
    return root;
}

int power(int share, int doublings) {
    for (int i = 0; i < doublings; i++) {
        share = (share * share) >> 14;
    }
    return share;
}

ivec3 blend(ivec3 from, ivec3 to, int share) {
    return from + (((to - from) * share) >> 14);
}

ivec3 add(ivec3 to, ivec3 light, int share) {
    return to + ((light * share) >> 14);
}

ivec3 sky(int up, int sun) {
    up = clamp(up, 0, ONE);
    const int low = max(ONE - 3 * up, 0);
    const int high = min(2 * up, ONE);
    const ivec3 plain = blend(blend(MIDDLE, ZENITH, high), HORIZON, (low * low) >> 14);
    return add(plain, GLOW, power(sun, 4));
}

int share_of_sun(ivec3 direction) {
    return clamp(dot3(direction, SUN) >> 14, 0, ONE);
}

ivec3 sky_colour(ivec3 to) {
    const int sun = share_of_sun(to);
    const int disc = clamp((sun - (ONE - 26)) * 1500, 0, ONE);
    return add(add(sky(to.y, sun), LIGHT, power(sun, 8) >> 1), LIGHT, disc);
}

ivec3 water_colour(ivec3 to) {
    const int right = surface.x;
    const int ahead = surface.y;
    const int scale = (1 << 22) / root(right * right + ahead * ahead + (1 << 20));
    const ivec3 normal = (ivec3(-right, 1 << 10, -ahead) * scale) >> 8;
    const int facing = clamp(-dot3(to, normal) >> 14, 0, ONE);
    const ivec3 mirrored = to + ((facing * normal) >> 13);
    const int sun = share_of_sun(mirrored);
    const int away = ONE - facing;
    const int share = 330 + ((((power(away, 2) * away) >> 14) * 15) >> 4);
    const int crest = clamp((surface.z >> 3) + 6 * ahead + 1000, 0, ONE);
    const ivec3 mirror = sky(mirrored.y, sun);
    return add(blend(blend(DEEP, SHALLOW, crest), mirror, share), LIGHT, power(sun, 7));
}

void main() {
    const ivec2 at = ivec2(gl_FragCoord.xy);
    const ivec3 far = ivec3(2 * at.x + 1 - width, 2 * (horizon - at.y) - 1, 2 * focus);
    const int scale = (1 << 27) / root(dot3(far, far) << 4);
    const ivec3 to = (far * scale) >> 11;
    const ivec3 colour = surface.w == 0 ? sky_colour(to) : water_colour(to);
    rgba = vec4(vec3(clamp(colour, 0, 255)) / 255.0, 1.0);
}
