// CUDA writes the vertices of a wave, and Vulkan draws them from the same memory.
//
// The engine has a VkDevice of its own, and calls vkQueueSubmit itself (claim.hpp). What else
// synchronizes or shares is in this file, in the parts 1 and 2. Nothing of that is in
// vulkan_setup.c, wave_draw.c and wave_ptx.cpp.
//
// Usage: vertices [--no-sync] [FRAMES] [PICTURE.ppm]. With --no-sync the waits between CUDA and
// Vulkan are left out, and the pictures are wrong.

#include "claim.hpp"
#include "wave.h"
#include "wave_draw.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <future>
#include <iostream>
#include <syncline.hpp>

using namespace std::chrono_literals;

constexpr auto limit = 60s;
constexpr std::uint32_t side = 2 * wave_side; // pixels on each side of a picture
constexpr std::uint64_t slots = 3;            // pictures that are drawn or checked at one time

// Throws if a wait has reached its time limit.
static void need(bool in_time) {
  if (!in_time) {
    throw std::runtime_error(sl_last_error());
  }
}

// What the engine and Syncline have together.
struct Shared {
  syncline::Device vulkan, cuda;
  syncline::Queue simulate;
  syncline::Timeline written, drawn;
  syncline::Buffer for_vulkan, for_cuda; // views of one memory
};

// 1. Devices and what they share.

// Adopts the engine's VkDevice, without a queue: the engine makes all submissions itself.
static syncline::Device adopt(const engine &own, std::promise<void> owner) {
  sl_vulkan_adopt_info info{};
  info.get_instance_proc_addr = vkGetInstanceProcAddr;
  info.instance = own.instance;
  info.physical_device = own.physical;
  info.device = own.device;
  info.enabled = own.offer.enabled;
  return syncline::Device::adopt_vulkan(info, std::move(owner));
}

static Shared share(const engine &own, syncline::Device cuda, std::promise<void> owner) {
  Shared shared;
  shared.vulkan = adopt(own, std::move(owner));
  shared.cuda = std::move(cuda);
  shared.simulate = shared.cuda.queue(SL_QUEUE_COMPUTE, "simulate");
  const auto link = syncline::Link::share(shared.vulkan, shared.cuda);
  shared.written = link.timeline("written");
  shared.drawn = link.timeline("drawn");
  std::tie(shared.for_vulkan, shared.for_cuda) = link.buffer(4 * wave_vertices);
  std::cout << own.name << " and CUDA: " << sl_mechanism_name(link.mechanism()) << "\n";
  return shared;
}

// Records the drawing of the vertices, between their acquisition from CUDA and their release.
static VkCommandBuffer record(const engine &own, const Shared &shared, const drawing &with,
                              VkBuffer picture) {
  const auto vertices = shared.for_vulkan.info();
  VkBufferMemoryBarrier acquire{}, release{};
  acquire.sType = release.sType = VK_STRUCTURE_TYPE_BUFFER_MEMORY_BARRIER;
  bool needed = false;
  syncline::check(
      sl_buffer_acquire_barrier(shared.for_vulkan.get(), own.family, &acquire, &needed));
  syncline::check(
      sl_buffer_release_barrier(shared.for_vulkan.get(), own.family, &release, &needed));
  VkCommandBuffer commands = make_commands(&own, own.pool);
  begin_commands(commands);
  add_barrier(commands, nullptr, &acquire, nullptr);
  draw_points(commands, &with, vertices.vulkan_buffer, vertices.vulkan_offset, wave_vertices);
  copy_to_host(commands, with.image, side, picture);
  add_barrier(commands, nullptr, &release, nullptr);
  VULKAN(vkEndCommandBuffer(commands));
  return commands;
}

// 2. The kernel of frame n, which waits for `free` and signals "written".
static void simulate(const Shared &shared, std::uint64_t n, syncline::Point free) {
  const auto heights = shared.for_cuda.info().cuda_pointer;
  const auto frame = static_cast<std::uint32_t>(n);
  shared.simulate.submit_cuda(
      free, [=](CUstream stream) { return launch_wave(stream, heights, frame); },
      shared.written.at(n));
}

// 3. The expected picture, computed by the host.

static int wave(std::uint32_t phase) {
  const int step = static_cast<int>(phase & 511);
  const int height = (step * (512 - step)) >> 8;
  return (phase & 512) == 0 ? height : -height;
}

static std::vector<std::uint32_t> expected(std::uint32_t frame) {
  const auto pixel = [](int r, int g, int b) { return 255u << 24 | b << 16 | g << 8 | r; };
  std::vector<std::uint32_t> pixels(side * side, pixel(8, 12, 28));
  for (std::uint32_t index = 0; index < wave_vertices; index++) { // later vertices cover others
    const std::uint32_t x = index % wave_side, z = index / wave_side;
    const int height = (wave(8 * x + 16 * frame) * wave(8 * (z + frame))) >> 11;
    const std::uint32_t row = 128 + ((x + z) >> 1) - static_cast<std::uint32_t>(height);
    const bool line = x % 16 == 0 || z % 16 == 0;
    const int light = (136 + 3 * height) >> (line ? 1 : 0);
    pixels[row * side + wave_side + x - z] = pixel(light >> 2, light, 64 + (light >> 1));
  }
  return pixels;
}

static void write_picture(const std::string &path, const std::uint32_t *pixels) {
  std::ofstream file(path, std::ios::binary);
  file << "P6\n" << side << " " << side << "\n255\n";
  for (std::uint32_t i = 0; i < side * side; i++) {
    for (int shift = 0; shift < 24; shift += 8) {
      file.put(static_cast<char>(pixels[i] >> shift & 255));
    }
  }
  if (!file.flush()) {
    throw std::runtime_error(path + " cannot be written");
  }
}

// Draws all frames, and checks each picture. Returns the number of right ones.
static std::uint64_t play(const engine &own, const Shared &shared, std::uint64_t frames, bool sync,
                          const std::string &path) {
  drawing with;
  make_drawing(&own, side, &with);
  std::array<syncline::Buffer, slots> pictures;
  std::array<VkCommandBuffer, slots> commands;
  for (std::size_t i = 0; i < slots; i++) {
    pictures[i] = shared.vulkan.buffer(4 * side * side);
    commands[i] = record(own, shared, with, pictures[i].info().vulkan_buffer);
  }
  std::uint64_t right = 0;
  for (std::uint64_t n = 1; n <= frames + slots; n++) {
    if (n > slots && n - slots <= frames) {
      const auto old = n - slots;
      need(shared.drawn.at(old).wait(limit));
      const void *seen = pictures[old % slots].info().host_pointer;
      const auto pixels = static_cast<const std::uint32_t *>(seen);
      const auto right_ones = expected(static_cast<std::uint32_t>(old));
      right += std::equal(right_ones.begin(), right_ones.end(), pixels) ? 1 : 0;
      if (old == frames && !path.empty()) {
        write_picture(path, pixels);
      }
    }
    if (n <= frames) {
      // Without the waits both may run in any order. --no-sync takes the worst one.
      simulate(shared, n, shared.drawn.at(sync ? n - 1 : n));
      const auto ready = shared.written.at(sync ? n : 0);
      need(submit_claimed(shared.vulkan, own.queue, ready, shared.drawn, n, commands[n % slots],
                          limit));
    }
  }
  need(shared.simulate.idle(limit));
  destroy_drawing(&own, &with);
  return right;
}

int main(int argc, char **argv) try {
  bool sync = true;
  std::uint64_t frames = 60;
  std::string path;
  for (int i = 1; i < argc; i++) {
    const std::string argument = argv[i];
    if (argument == "--no-sync") {
      sync = false;
    } else if (argument.find_first_not_of("0123456789") == std::string::npos) {
      frames = std::stoull(argument);
    } else {
      path = argument;
    }
  }
  // The first VkDevice whose GPU CUDA has, too.
  engine own;
  syncline::Device cuda;
  const auto opens = [](const sl_vulkan_offer *offer, void *data) {
    auto *opened = static_cast<syncline::Device *>(data);
    return offer->has_uuid != 0 &&
           sl_device_open_uuid(SL_API_CUDA, offer->uuid, opened->put()) == SL_SUCCESS;
  };
  if (!open_engine(&own, opens, &cuda)) {
    std::cerr << "no GPU has both Vulkan and CUDA: " << sl_last_error() << "\n";
    return 1;
  }
  CUcontext context;
  syncline::check(sl_device_get_cuda(cuda.get(), &context));
  load_wave(context);
  std::promise<void> owner; // ends when nothing uses the VkDevice any more
  const auto unused = owner.get_future();
  std::uint64_t right = 0;
  {
    const auto shared = share(own, std::move(cuda), std::move(owner));
    right = play(own, shared, frames, sync, path);
  }
  if (unused.wait_for(limit) != std::future_status::ready) {
    throw std::runtime_error("a handle of the VkDevice is not freed");
  }
  close_engine(&own);
  std::cout << right << " of " << frames << " frames are right\n";
  return right == frames ? 0 : 1;
} catch (const std::exception &error) {
  std::cerr << error.what() << "\n";
  return 1;
}
