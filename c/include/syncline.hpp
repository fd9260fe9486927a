// Syncline for C++17: handles that free themselves, exceptions, <chrono>, and callables.
//
// Each class has a handle of syncline.h, and get() returns it. A call throws syncline::Error with
// the result and the whole text. A wait returns false after its time limit. A program that wants
// results and not exceptions calls the functions of syncline.h, and passes put() where they return
// a handle: sl_timeline_make(device.get(), "frames", 0, timeline.put()).
//
// Any thread may use any object, as far as one object is not changed at the same time. A Lock ends
// on the thread that has taken it. Callables run on any thread and once at most. An exception of a
// callable that runs during the call of submit_* refuses the submission: that call throws, and no
// timeline fails. A later one fails the timelines of the signals. Errors have the text of the
// exception. The destructor of a callable runs when sl_queue_submit would free its
// data, and must not throw.
//
// vulkan.h, vulkan.hpp, cuda.h and cuda_runtime.h may be included before or after this header.

#ifndef SYNCLINE_HPP
#define SYNCLINE_HPP

#if __cplusplus < 201703L
#error "syncline.hpp needs C++17: -std=c++17"
#endif

#include "syncline.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace syncline {

// A program may link files with and without exceptions. Each kind has functions of its own.
#ifdef __cpp_exceptions
inline namespace with_exceptions {
#else
inline namespace without_exceptions {
#endif

// An error of a call. what() is the text of sl_last_error.
class Error : public std::runtime_error {
public:
  Error(sl_result code, const std::string &text) : std::runtime_error(text), code_(code) {}

  sl_result code() const noexcept { return code_; }
  // Its name, such as "SL_ERROR_DEVICE_LOST".
  const char *name() const noexcept { return sl_result_name(code_); }

private:
  sl_result code_;
};

// Throws an Error unless a call has succeeded. Without exceptions (-fno-exceptions) it prints the
// text and ends the program: call the functions of syncline.h where an error is expected.
inline void check(sl_result result) {
  if (result != SL_SUCCESS) {
#ifdef __cpp_exceptions
    throw Error(result, sl_last_error());
#else
    std::fprintf(stderr, "syncline: %s: %s\n", sl_result_name(result), sl_last_error());
    std::abort();
#endif
  }
}

// Returns false after a time-out. Throws other errors.
inline bool check_wait(sl_result result) {
  if (result == SL_ERROR_TIMED_OUT) {
    return false;
  }
  check(result);
  return true;
}

// A time limit: any duration of <chrono>, or syncline::forever.
class Limit {
public:
  template <class Rep, class Period>
  Limit(std::chrono::duration<Rep, Period> duration) // NOLINT: converts
      : nanoseconds_(convert(duration)) {}

  std::uint64_t nanoseconds() const noexcept { return nanoseconds_; }

private:
  template <class Rep, class Period>
  static std::uint64_t convert(std::chrono::duration<Rep, Period> duration) {
    // In floating-point numbers, because hours::max() has more nanoseconds than 64 bits.
    using Wide = std::chrono::duration<long double, std::nano>;
    const long double wide = std::chrono::duration_cast<Wide>(duration).count();
    if (!(wide > 0)) {
      return 0;
    }
    // 2^63 ns are 292 years.
    if (wide >= 9223372036854775807.0L) {
      return SL_FOREVER;
    }
    // Not less than the duration.
    const auto down = static_cast<std::uint64_t>(wide);
    return static_cast<long double>(down) < wide ? down + 1 : down;
  }

  std::uint64_t nanoseconds_;
};

// No time limit.
inline constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();

// The owner of one handle. It can be moved, and frees the handle at its end.
template <class H, sl_result (*Free)(H)> class Handle {
public:
  Handle() noexcept = default;
  // Takes the handle over.
  explicit Handle(H handle) noexcept : handle_(handle) {}
  Handle(Handle &&other) noexcept : handle_(other.release()) {}
  Handle &operator=(Handle &&other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.release();
    }
    return *this;
  }
  Handle(const Handle &) = delete;
  Handle &operator=(const Handle &) = delete;
  ~Handle() { reset(); }

  H get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_.id != 0; }
  // Frees the handle, and returns the place for a new one.
  H *put() noexcept {
    reset();
    return &handle_;
  }
  void reset() noexcept {
    if (handle_.id != 0) {
      Free(release());
    }
  }
  // Gives the handle away.
  H release() noexcept {
    H handle = handle_;
    handle_ = H{};
    return handle;
  }

private:
  H handle_{};
};

namespace detail {

// The object that a function makes. Its last argument is the place for the handle.
template <class Object, class Function, class... Arguments>
Object made(Function function, Arguments... arguments) {
  Object object;
  check(function(arguments..., object.put()));
  return object;
}

// The value that a function writes through its last argument.
template <class Value, class Function, class... Arguments>
Value value(Function function, Arguments... arguments) {
  Value value{};
  check(function(arguments..., &value));
  return value;
}

// The structure with a size that a function fills in.
template <class Info, class Function, class... Arguments>
Info info(Function function, Arguments... arguments) {
  Info info{};
  info.size = sizeof info;
  check(function(arguments..., &info));
  return info;
}

// The text that a function writes into a buffer.
template <class Function, class... Arguments>
std::string text(Function function, Arguments... arguments) {
  std::size_t length = 0;
  check(function(arguments..., nullptr, 0, &length));
  std::string text(length + 1, '\0');
  check(function(arguments..., text.data(), text.size(), &length));
  text.resize(length < text.size() ? length : text.size() - 1);
  return text;
}

} // namespace detail

// The version of the library: SYNCLINE_VERSION_* are those of the header.
inline std::uint32_t version() noexcept { return sl_version(); }

// The devices of this machine, and why a device or an API cannot be used.
inline std::string report() { return detail::text(sl_report); }

// What to create a VkDevice with, for Device::adopt_vulkan.
inline sl_vulkan_offer vulkan_offer(sl_vulkan_loader get_instance_proc_addr, VkInstance instance,
                                    VkPhysicalDevice physical_device) {
  return detail::info<sl_vulkan_offer>(sl_vulkan_get_offer, get_instance_proc_addr, instance,
                                       physical_device);
}

// A request to add 1 to an eventfd. Cancelled at its end.
using Notification = Handle<sl_notification, sl_notification_free>;

class Device;
class Timeline;

// A value of a timeline. It does not own the timeline.
struct Point : sl_point {
  Point() noexcept : sl_point{} {}
  Point(sl_point point) noexcept : sl_point(point) {} // NOLINT: converts

  // False after the time limit.
  [[nodiscard]] bool wait(Limit limit) const {
    return check_wait(sl_point_wait(*this, limit.nanoseconds()));
  }
  [[nodiscard]] bool wait_pending(Limit limit) const {
    return check_wait(sl_point_wait_pending(*this, limit.nanoseconds()));
  }
  bool is_reached() const {
    return detail::value<bool>(sl_point_is_reached, *this);
  }
  bool is_pending() const {
    return detail::value<bool>(sl_point_is_pending, *this);
  }
  // The semaphore with which a submission of the program waits for it. First wait_pending.
  VkSemaphore vk_semaphore(const Device &device) const;
  // Adds 1 to the eventfd once the point is reached, or never can be. Takes the descriptor over.
  [[nodiscard]] Notification notify(int eventfd) const {
    return detail::made<Notification>(sl_point_notify, *this, eventfd);
  }
  // The time on the host's clock, for a timeline with times.
  sl_time time() const {
    return detail::value<sl_time>(sl_point_time, *this);
  }
};
static_assert(sizeof(Point) == sizeof(sl_point) && std::is_standard_layout_v<Point>,
              "lists of points are lists of sl_point");

// A list of points: {}, one point, {a, b}, or a vector. Valid during the call.
class Points {
public:
  Points() noexcept = default;
  Points(const Point &point) noexcept : first_(&point), count_(1) {} // NOLINT: converts
  Points(std::initializer_list<Point> points) noexcept // NOLINT: converts
      : first_(std::data(points)), count_(points.size()) {}
  Points(const std::vector<Point> &points) noexcept // NOLINT: converts
      : first_(points.data()), count_(points.size()) {}

  const sl_point *data() const noexcept { return first_; }
  std::size_t size() const noexcept { return count_; }

private:
  const Point *first_ = nullptr;
  std::size_t count_ = 0;
};

// Waits for all points. False after the time limit.
[[nodiscard]] inline bool wait_all(const Points &points, Limit limit) {
  return check_wait(sl_wait_all(points.data(), points.size(), limit.nanoseconds()));
}

// Waits for one of the points, whose place index gets. False after the time limit.
[[nodiscard]] inline bool wait_any(const Points &points, Limit limit, std::size_t &index) {
  return check_wait(sl_wait_any(points.data(), points.size(), limit.nanoseconds(), &index));
}

class Claim : public Handle<sl_claim, sl_claim_free> {
public:
  using Handle::Handle;

  std::uint64_t predecessor() const {
    return detail::value<std::uint64_t>(sl_claim_predecessor, get());
  }
  [[nodiscard]] bool wait_ready(Limit limit) const {
    return check_wait(sl_claim_wait_ready(get(), limit.nanoseconds()));
  }
  void submitted(const Device &device);
  // Adds the signal to a stream, behind what is in it, and says that the claim is submitted.
  void submit_cuda(const Timeline &timeline, const Device &device, CUstream stream);
};

class Timeline : public Handle<sl_timeline, sl_timeline_free> {
public:
  using Handle::Handle;

  Point at(std::uint64_t value) const noexcept { return sl_point{get(), value}; }
  void signal(std::uint64_t value) const { check(sl_timeline_signal(get(), value)); }
  void fail(const std::string &reason) const { check(sl_timeline_fail(get(), reason.c_str())); }
  std::uint64_t value() const {
    return detail::value<std::uint64_t>(sl_timeline_value, get());
  }
  Claim claim(std::uint64_t value, std::uint64_t waited = 0) const {
    return detail::made<Claim>(sl_timeline_claim, get(), value, waited);
  }
  // For a semaphore or a word of another library, which makes the signals up to the value.
  void signalled_by_others(std::uint64_t value) const {
    check(sl_timeline_signalled_by_others(get(), value));
  }
  // Another handle, for another owner.
  Timeline clone() const {
    return detail::made<Timeline>(sl_timeline_clone, get());
  }
  VkSemaphore vk_semaphore(const Device &device) const;
};

class Fence : public Handle<sl_fence, sl_fence_free> {
public:
  using Handle::Handle;

  bool is_complete() const {
    return detail::value<bool>(sl_fence_is_complete, get());
  }
  [[nodiscard]] bool wait(Limit limit) const {
    return check_wait(sl_fence_wait(get(), limit.nanoseconds()));
  }
  // From another fence of the device to this one. Negative if the other one is later.
  std::chrono::nanoseconds since(const Fence &start) const {
    std::int64_t nanoseconds = 0;
    check(sl_fence_elapsed(start.get(), get(), &nanoseconds));
    return std::chrono::nanoseconds(nanoseconds);
  }
  // From a fence with SL_TIMING_CLOCK to this one, which may be of another device.
  sl_time time_since(const Fence &start) const {
    return detail::value<sl_time>(sl_fence_since, start.get(), get());
  }
  // On the host's clock, CLOCK_MONOTONIC.
  sl_time time() const {
    return detail::value<sl_time>(sl_fence_time, get());
  }
};

class Buffer : public Handle<sl_buffer, sl_buffer_free> {
public:
  using Handle::Handle;

  sl_buffer_info info() const {
    return detail::info<sl_buffer_info>(sl_buffer_get_info, get());
  }
  Buffer view(std::uint64_t offset, std::uint64_t bytes) const {
    return detail::made<Buffer>(sl_buffer_view, get(), offset, bytes);
  }
  // Copies to a buffer of the same size on this thread. It orders nothing.
  void copy_to(const Buffer &to) const { check(sl_buffer_copy(get(), to.get())); }
  // Fills in a VkBufferMemoryBarrier or VkBufferMemoryBarrier2 whose sType is set. False if the
  // commands need none. See sl_buffer_acquire_barrier.
  [[nodiscard]] bool acquire_barrier(std::uint32_t family, void *barrier) const {
    return detail::value<bool>(sl_buffer_acquire_barrier, get(), family, barrier);
  }
  [[nodiscard]] bool release_barrier(std::uint32_t family, void *barrier) const {
    return detail::value<bool>(sl_buffer_release_barrier, get(), family, barrier);
  }
};

class Image : public Handle<sl_image, sl_image_free> {
public:
  using Handle::Handle;

  sl_image_handles handles() const {
    return detail::info<sl_image_handles>(sl_image_get_handles, get());
  }
  // Fills in a VkImageMemoryBarrier or VkImageMemoryBarrier2 whose sType is set. The layout is a
  // VkImageLayout.
  void acquire_barrier(std::uint32_t family, sl_contents contents, std::int32_t layout,
                       void *barrier) const {
    check(sl_image_acquire_barrier(get(), family, contents, layout, barrier));
  }
  void release_barrier(std::uint32_t family, std::int32_t layout, void *barrier) const {
    check(sl_image_release_barrier(get(), family, layout, barrier));
  }
  // The commands of the first acquire and its release were submitted.
  void note_contents() const { check(sl_image_note_contents(get())); }
};

// Memory that the program has allocated. See Device::adopt_memory.
class Allocation : public Handle<sl_allocation, sl_allocation_free> {
public:
  using Handle::Handle;

  // Adopts a buffer that is bound at the offset, and lives as long as the memory.
  Buffer buffer(VkBuffer bound, std::uint64_t offset, std::uint64_t bytes,
                bool concurrent = false) const {
    return detail::made<Buffer>(sl_allocation_buffer, get(), bound, offset, bytes,
                                concurrent ? 1u : 0u, nullptr, nullptr);
  }
  // Adopts an image that is bound at the offset, and lives as long as the memory.
  Image image(VkImage bound, std::uint64_t offset, sl_image_info info) const {
    info.size = sizeof info;
    return detail::made<Image>(sl_allocation_image, get(), bound, offset, &info, nullptr, nullptr);
  }
};

// A locked queue. Unlocks at its end, on the same thread.
class Lock : public Handle<sl_lock, sl_queue_unlock> {
public:
  using Handle::Handle;
};

class Submission : public Handle<sl_submission, sl_submission_free> {
public:
  using Handle::Handle;

  bool was_held() const {
    return detail::value<bool>(sl_submission_was_held, get());
  }
  [[nodiscard]] bool wait_submitted(Limit limit) const {
    return check_wait(sl_submission_wait_submitted(get(), limit.nanoseconds()));
  }
  [[nodiscard]] bool wait_finished(Limit limit) const {
    return check_wait(sl_submission_wait_finished(get(), limit.nanoseconds()));
  }
};

namespace detail {

// The result of a callable: nothing for success, or a number such as a VkResult or cudaError_t.
template <class Body> std::int32_t result_of(Body &&body) {
  if constexpr (std::is_void_v<decltype(body())>) {
    body();
    return 0;
  } else {
    static_assert(!std::is_same_v<decltype(body()), bool>, "return nothing, or 0 for success");
    return static_cast<std::int32_t>(body());
  }
}

// Calls a callable at the border, which no exception passes.
template <class Body> std::int32_t guarded(std::int32_t thrown, Body &&body) noexcept {
#ifdef __cpp_exceptions
  try {
    return result_of(std::forward<Body>(body));
  } catch (const std::exception &error) {
    sl_work_failed(error.what());
  } catch (...) {
    sl_work_failed("an exception that is no std::exception");
  }
  return thrown;
#else
  (void)thrown;
  return result_of(std::forward<Body>(body));
#endif
}

template <class Work> void destroy(void *data) noexcept { delete static_cast<Work *>(data); }

// VK_ERROR_UNKNOWN.
inline constexpr std::int32_t vulkan_unknown = -13;

} // namespace detail

class Queue : public Handle<sl_queue, sl_queue_free> {
public:
  using Handle::Handle;

  // Waits and signals without work.
  Submission submit(const Points &waits, const Points &signals) const {
    return submit_info({}, waits, signals);
  }

  // `work()` runs on the queue's thread. It returns nothing, or 0 for success.
  template <class Work>
  Submission submit_host(const Points &waits, Work &&work, const Points &signals) const {
    using W = std::decay_t<Work>;
    sl_submit_info info{};
    info.host_work = [](void *data) noexcept -> std::int32_t {
      return detail::guarded(1, [data] { return (*static_cast<W *>(data))(); });
    };
    return submit_work(info, waits, std::forward<Work>(work), signals);
  }

  // `work(submission)` calls vkQueueSubmit with what its const sl_vulkan_submission & says. It
  // returns the VkResult. An exception counts as VK_ERROR_UNKNOWN.
  template <class Work>
  Submission submit_vulkan(const Points &waits, Work &&work, const Points &signals) const {
    using W = std::decay_t<Work>;
    sl_submit_info info{};
    info.vulkan_work = [](const sl_vulkan_submission *told, void *data) noexcept -> std::int32_t {
      return detail::guarded(detail::vulkan_unknown,
                             [told, data] { return (*static_cast<W *>(data))(*told); });
    };
    return submit_work(info, waits, std::forward<Work>(work), signals);
  }

  // `work(stream)` adds at most `commands` commands to the stream. It returns nothing, or the
  // CUresult or cudaError_t.
  template <class Work>
  Submission submit_cuda(const Points &waits, Work &&work, const Points &signals,
                         std::uint32_t commands = 4) const {
    using W = std::decay_t<Work>;
    sl_submit_info info{};
    info.cuda_work = [](CUstream stream, void *data) noexcept -> std::int32_t {
      return detail::guarded(1, [stream, data] { return (*static_cast<W *>(data))(stream); });
    };
    info.cuda_commands = commands;
    return submit_work(info, waits, std::forward<Work>(work), signals);
  }

  [[nodiscard]] bool idle(Limit limit) const {
    return check_wait(sl_queue_idle(get(), limit.nanoseconds()));
  }
  [[nodiscard]] bool settle(Limit limit) const {
    return check_wait(sl_queue_settle(get(), limit.nanoseconds()));
  }
  std::size_t held() const {
    return detail::value<std::size_t>(sl_queue_held, get());
  }
  void record(const Fence &fence) const { check(sl_queue_record(get(), fence.get())); }
  void wait(const Fence &fence) const { check(sl_queue_wait_fence(get(), fence.get())); }
  // Locks a VkQueue or a stream for calls of the program. info, if any, tells what.
  [[nodiscard]] Lock lock(sl_lock_info *info = nullptr) const {
    sl_lock_info unused{};
    sl_lock_info &told = info == nullptr ? unused : *info;
    told.size = sizeof told;
    return detail::made<Lock>(sl_queue_lock, get(), &told);
  }

private:
  template <class Work>
  Submission submit_work(sl_submit_info info, const Points &waits, Work &&work,
                         const Points &signals) const {
    using W = std::decay_t<Work>;
    info.data = new W(std::forward<Work>(work));
    info.free = detail::destroy<W>;
    return submit_info(info, waits, signals);
  }
  Submission submit_info(sl_submit_info info, const Points &waits, const Points &signals) const {
    info.size = sizeof info;
    info.waits = waits.data();
    info.wait_count = waits.size();
    info.signals = signals.data();
    info.signal_count = signals.size();
    return detail::made<Submission>(sl_queue_submit, get(), &info);
  }
};

class Device : public Handle<sl_device, sl_device_free> {
public:
  using Handle::Handle;

  static Device open_host() {
    return detail::made<Device>(sl_device_open_host);
  }
  static Device open(const std::string &name) {
    return detail::made<Device>(sl_device_open, name.c_str());
  }
  static Device open_uuid(sl_api api, const std::uint8_t (&uuid)[16]) {
    return detail::made<Device>(sl_device_open_uuid, api, uuid);
  }
  // Adopts a VkDevice. `owner` ends when nothing uses the device any more, on any thread.
  template <class Owner> static Device adopt_vulkan(sl_vulkan_adopt_info info, Owner owner) {
    info.size = sizeof info;
    return detail::made<Device>(sl_device_adopt_vulkan, &info, new Owner(std::move(owner)),
                                detail::destroy<Owner>);
  }
  // Adopts a CUcontext. `owner` ends when nothing uses the context any more, on any thread.
  template <class Owner> static Device adopt_cuda(CUcontext context, Owner owner) {
    return detail::made<Device>(sl_device_adopt_cuda, context, new Owner(std::move(owner)),
                                detail::destroy<Owner>);
  }

  // Adopts a VkDeviceMemory. `owner` ends when nothing uses the memory any more, on any thread.
  template <class Owner>
  Allocation adopt_memory(sl_vulkan_allocation_info info, Owner owner) const {
    info.size = sizeof info;
    return detail::made<Allocation>(sl_allocation_adopt_vulkan, get(), &info,
                                    new Owner(std::move(owner)), detail::destroy<Owner>);
  }

  sl_device_info info() const {
    return detail::info<sl_device_info>(sl_device_get_info, get());
  }
  // The raw handles, of a device of Vulkan or of CUDA.
  sl_vulkan_handles vulkan() const {
    return detail::info<sl_vulkan_handles>(sl_device_get_vulkan, get());
  }
  CUcontext cuda() const { return detail::value<CUcontext>(sl_device_get_cuda, get()); }
  void check_health() const { check(sl_device_check(get())); }
  Queue queue(sl_queue_kind kind, const char *label = nullptr) const {
    return detail::made<Queue>(sl_queue_open, get(), kind, label);
  }
  Queue vulkan_queue(std::uint32_t family, std::uint32_t index,
                     const char *label = nullptr) const {
    return detail::made<Queue>(sl_queue_open_vulkan, get(), family, index, label);
  }
  // Adopts a stream, also a cudaStream_t. `owner` ends when nothing uses the stream any more.
  template <class Owner>
  Queue adopt_stream(CUstream stream, Owner owner, const char *label = nullptr) const {
    return detail::made<Queue>(sl_queue_adopt_cuda, get(), stream, label,
                               new Owner(std::move(owner)), detail::destroy<Owner>);
  }
  Timeline timeline(const char *label = nullptr, std::uint64_t initial = 0) const {
    return detail::made<Timeline>(sl_timeline_make, get(), label, initial);
  }
  Timeline clocked_timeline(const char *label = nullptr, std::uint64_t initial = 0) const {
    return detail::made<Timeline>(sl_timeline_make_clocked, get(), label, initial);
  }
  // Adopts a timeline semaphore, which outlives the timeline.
  Timeline adopt_semaphore(VkSemaphore semaphore, const char *label = nullptr) const {
    return detail::made<Timeline>(sl_timeline_adopt_vulkan, get(), semaphore, label);
  }
  // Adopts a word of 32 or 64 bits. `owner` ends when nothing uses the word any more.
  template <class Owner>
  Timeline adopt_word(std::uint64_t address, std::uint32_t bits, std::uint64_t reached, Owner owner,
                      const char *label = nullptr) const {
    return detail::made<Timeline>(sl_timeline_adopt_word, get(), address, bits, reached, label,
                                  new Owner(std::move(owner)), detail::destroy<Owner>);
  }
  Fence fence(sl_timing timing = SL_TIMING_NONE, const char *label = nullptr) const {
    return detail::made<Fence>(sl_fence_make, get(), timing, label);
  }
  // A fence for the latest record of an event of the program.
  Fence adopt_event(CUevent event, const char *label = nullptr) const {
    return detail::made<Fence>(sl_fence_adopt_cuda, get(), event, label);
  }
  Buffer buffer(std::uint64_t bytes) const {
    return detail::made<Buffer>(sl_buffer_make, get(), bytes);
  }
};

inline VkSemaphore Point::vk_semaphore(const Device &device) const {
  return detail::value<VkSemaphore>(sl_point_vk_semaphore, *this, device.get());
}

inline void Claim::submitted(const Device &device) {
  check(sl_claim_submitted(get(), device.get()));
}

inline void Claim::submit_cuda(const Timeline &timeline, const Device &device, CUstream stream) {
  check(sl_claim_submit_cuda(get(), timeline.get(), device.get(), stream));
}

inline VkSemaphore Timeline::vk_semaphore(const Device &device) const {
  return detail::value<VkSemaphore>(sl_timeline_vk_semaphore, get(), device.get());
}

class Link : public Handle<sl_link, sl_link_free> {
public:
  using Handle::Handle;

  static Link share(const Device &left, const Device &right) {
    return detail::made<Link>(sl_link_share, left.get(), right.get());
  }
  static Link connect(const Device &left, const Device &right) {
    return detail::made<Link>(sl_link_connect, left.get(), right.get());
  }
  sl_mechanism mechanism() const {
    return static_cast<sl_mechanism>(detail::value<std::uint32_t>(sl_link_mechanism, get()));
  }
  const char *mechanism_name() const { return sl_mechanism_name(mechanism()); }
  std::string why() const { return detail::text(sl_link_why, get()); }
  Timeline timeline(const char *label = nullptr, std::uint64_t initial = 0) const {
    return detail::made<Timeline>(sl_link_timeline, get(), label, initial);
  }
  // The views of the left and the right device.
  std::pair<Buffer, Buffer> buffer(std::uint64_t bytes) const {
    Buffer left, right;
    check(sl_link_buffer(get(), bytes, left.put(), right.put()));
    return {std::move(left), std::move(right)};
  }
  // Shares a buffer of an Allocation.
  std::pair<Buffer, Buffer> share_buffer(const Buffer &buffer) const {
    const sl_buffer one = buffer.get();
    Buffer left, right;
    check(sl_link_share_buffers(get(), &one, 1, left.put(), right.put()));
    return {std::move(left), std::move(right)};
  }
  // Shares an image of an Allocation.
  std::pair<Image, Image> share_image(const Image &image) const {
    Image left, right;
    check(sl_link_share_image(get(), image.get(), left.put(), right.put()));
    return {std::move(left), std::move(right)};
  }
  std::pair<Image, Image> image(sl_image_info info) const {
    info.size = sizeof info;
    Image left, right;
    check(sl_link_image(get(), &info, left.put(), right.put()));
    return {std::move(left), std::move(right)};
  }
};

// Words of host memory for several processes.
class Words : public Handle<sl_words, sl_words_free> {
public:
  using Handle::Handle;

  static Words make(std::uint64_t bytes) {
    return detail::made<Words>(sl_words_make, bytes);
  }
  // The address, valid until the end of this. The other process may write at any time.
  void *data() const { return place().first; }
  std::uint64_t size() const { return place().second; }

private:
  std::pair<void *, std::uint64_t> place() const {
    void *pointer = nullptr;
    std::uint64_t bytes = 0;
    check(sl_words_get(get(), &pointer, &bytes));
    return {pointer, bytes};
  }
};

// One end of a connection to another process. Throws SL_ERROR_TIMED_OUT after a limit.
class Endpoint : public Handle<sl_endpoint, sl_endpoint_free> {
public:
  using Handle::Handle;

  static Endpoint connect(const std::string &path, const char *label, Limit limit) {
    return detail::made<Endpoint>(sl_endpoint_connect, path.c_str(), label, limit.nanoseconds());
  }
  // Over a socket that is connected to the other process, which is the library's after success.
  static Endpoint open(int socket, const char *label, Limit limit) {
    return detail::made<Endpoint>(sl_endpoint_open, socket, label, limit.nanoseconds());
  }
  // The process id of the other process.
  std::uint32_t peer() const { return detail::value<std::uint32_t>(sl_endpoint_peer, get()); }
  // Accepts semaphores and memory of the other process, which no driver checks.
  void trust_handles() const { check(sl_endpoint_trust_handles(get())); }
  Timeline timeline(const char *label, const Device &device, sl_access access, Limit limit) const {
    return detail::made<Timeline>(sl_endpoint_timeline, get(), label, device.get(), access,
                                  limit.nanoseconds());
  }
  void send(const char *label, const Words &words, Limit limit) const {
    check(sl_endpoint_send_words(get(), label, words.get(), limit.nanoseconds()));
  }
  Words receive(const char *label, std::uint64_t most, Limit limit) const {
    return detail::made<Words>(sl_endpoint_receive_words, get(), label, most, limit.nanoseconds());
  }
  void check_peer() const { check(sl_endpoint_check(get())); }
  void give_up() const { check(sl_endpoint_give_up(get())); }
};

// A socket at a path, to which other processes connect.
class Listener : public Handle<sl_listener, sl_listener_free> {
public:
  using Handle::Handle;

  static Listener bind(const std::string &path) {
    return detail::made<Listener>(sl_listener_bind, path.c_str());
  }
  Endpoint accept(const char *label, Limit limit) const {
    return detail::made<Endpoint>(sl_listener_accept, get(), label, limit.nanoseconds());
  }
  // Ends the calls of accept on all threads: SL_ERROR_CANCELLED.
  void close() const { check(sl_listener_close(get())); }
};

} // namespace with_exceptions or without_exceptions
} // namespace syncline

#endif // SYNCLINE_HPP
