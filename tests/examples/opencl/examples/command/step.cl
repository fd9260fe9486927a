// One step of the wave, in place: the formula of `demo/src/compute/`. `step` is a function of OpenCL C.

#define POSITION_BITS 4
#define REACH (6 << POSITION_BITS)
#define LIMIT (8 << 16)

int push(uint x, uint y, int to_x, int to_y, int amplitude) {
    int dx = clamp((int)(x << POSITION_BITS) - to_x, -REACH, REACH);
    int dy = clamp((int)(y << POSITION_BITS) - to_y, -REACH, REACH);
    return (amplitude * max(REACH * REACH - dx * dx - dy * dy, 0)) >> 16;
}

kernel void advance(global int *prev, global const int *now, uint width, uint height,
                    int x0, int y0, int a0, int x1, int y1, int a1, int x2, int y2, int a2) {
    uint i = get_global_id(0);
    uint x = i % width, y = i / width;
    if (y >= height) return;
    if (x == 0 || y == 0 || x + 1 >= width || y + 1 >= height) {
        prev[i] = 0;
        return;
    }
    int force = push(x, y, x0, y0, a0) + push(x, y, x1, y1, a1) + push(x, y, x2, y2, a2);
    int around = now[i - 1] + now[i + 1] + now[i - width] + now[i + width];
    int accel = ((around - 4 * now[i]) * 3 + 4) >> 3;
    int moved = 2 * now[i] - prev[i] + accel + force;
    prev[i] = clamp(moved - ((moved + 256) >> 9), -LIMIT, LIMIT);
}
