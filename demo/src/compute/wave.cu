// The demo's kernels as CUDA C: the readable form of wave.ptx, which was
// written by hand from it, so that building the demo takes no CUDA toolkit.
// Nothing builds this file. Constants repeat those of mod.rs, where the formula
// is explained; reference.rs is the same in Rust, to the bit.
//
// `step`: blocks of 16x16 threads, enough of them to cover the field. `delay`: a
// single thread.

constexpr int LIMIT = 8 << 16;
constexpr int SPEED_FACTOR = 3;
constexpr int SPEED_SHIFT = 3;
constexpr int DAMPING_SHIFT = 9;
constexpr int POSITION_BITS = 4;
constexpr int REACH = 6 << POSITION_BITS;
constexpr int FORCE_SHIFT = 16;

// Signed overflow is undefined in C++; in PTX, and in all the other versions,
// it wraps. It takes a buffer of garbage to get there.
__device__ int add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
__device__ int sub(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
__device__ int mul(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
__device__ int clamp(int v, int low, int high) { return min(max(v, low), high); }

__device__ int distance_to(unsigned cell, int centre) {
    return clamp(sub((int)(cell << POSITION_BITS), centre), -REACH, REACH);
}

__device__ int force_of(unsigned x, unsigned y, int ex, int ey, int amplitude) {
    const int dx = distance_to(x, ex);
    const int dy = distance_to(y, ey);
    const int bump = max(REACH * REACH - dx * dx - dy * dy, 0);
    return mul(amplitude, bump) >> FORCE_SHIFT;
}

// One step of the wave, in place: `prev` becomes the next field.
extern "C" __global__ void step(int *prev, const int *now, unsigned width, unsigned height,
                                int x0, int y0, int amplitude0,
                                int x1, int y1, int amplitude1,
                                int x2, int y2, int amplitude2) {
    const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    const unsigned i = y * width + x;
    if (x == 0 || y == 0 || x + 1 >= width || y + 1 >= height) {
        prev[i] = 0;
        return;
    }

    int force = force_of(x, y, x0, y0, amplitude0);
    force = add(force, force_of(x, y, x1, y1, amplitude1));
    force = add(force, force_of(x, y, x2, y2, amplitude2));

    const int level = now[i];
    const int around = add(add(now[i - 1], now[i + 1]), add(now[i - width], now[i + width]));
    const int curvature = sub(around, mul(level, 4));
    const int accel = add(mul(curvature, SPEED_FACTOR), 1 << (SPEED_SHIFT - 1)) >> SPEED_SHIFT;
    const int free = add(add(sub(mul(level, 2), prev[i]), accel), force);
    const int loss = add(free, 1 << (DAMPING_SHIFT - 1)) >> DAMPING_SHIFT;
    prev[i] = clamp(sub(free, loss), -LIMIT, LIMIT);
}

__device__ unsigned long long globaltimer() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// Keeps one thread busy for at least `ns` nanoseconds.
extern "C" __global__ void delay(unsigned long long ns) {
    const unsigned long long start = globaltimer();
    while (globaltimer() - start < ns) {
    }
}
