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
// timeline fails. A later one fails the timelines of the signals. The text of the exception is
// kept, but not on Vulkan. The destructor of a callable runs when sl_queue_submit would free its
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
    bool reached = false;
    check(sl_point_is_reached(*this, &reached));
    return reached;
  }
  bool is_pending() const {
    bool pending = false;
    check(sl_point_is_pending(*this, &pending));
    return pending;
  }
  // The time on the host's clock, for a timeline with times.
  sl_time time() const {
    sl_time time{};
    check(sl_point_time(*this, &time));
    return time;
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

class Device;

class Claim : public Handle<sl_claim, sl_claim_free> {
public:
  using Handle::Handle;

  std::uint64_t predecessor() const {
    std::uint64_t value = 0;
    check(sl_claim_predecessor(get(), &value));
    return value;
  }
  [[nodiscard]] bool wait_ready(Limit limit) const {
    return check_wait(sl_claim_wait_ready(get(), limit.nanoseconds()));
  }
  void submitted(const Device &device);
};

class Timeline : public Handle<sl_timeline, sl_timeline_free> {
public:
  using Handle::Handle;

  Point at(std::uint64_t value) const noexcept { return sl_point{get(), value}; }
  void signal(std::uint64_t value) const { check(sl_timeline_signal(get(), value)); }
  void fail(const std::string &reason) const { check(sl_timeline_fail(get(), reason.c_str())); }
  std::uint64_t value() const {
    std::uint64_t value = 0;
    check(sl_timeline_value(get(), &value));
    return value;
  }
  Claim claim(std::uint64_t value, std::uint64_t waited = 0) const {
    Claim claim;
    check(sl_timeline_claim(get(), value, waited, claim.put()));
    return claim;
  }
  // For a semaphore or a word of another library, which makes the signals up to the value.
  void signalled_by_others(std::uint64_t value) const {
    check(sl_timeline_signalled_by_others(get(), value));
  }
  // Another handle, for another owner.
  Timeline clone() const {
    Timeline clone;
    check(sl_timeline_clone(get(), clone.put()));
    return clone;
  }
  VkSemaphore vk_semaphore(const Device &device) const;
};

class Fence : public Handle<sl_fence, sl_fence_free> {
public:
  using Handle::Handle;

  bool is_complete() const {
    bool complete = false;
    check(sl_fence_is_complete(get(), &complete));
    return complete;
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
  // On the host's clock, CLOCK_MONOTONIC.
  sl_time time() const {
    sl_time time{};
    check(sl_fence_time(get(), &time));
    return time;
  }
};

class Buffer : public Handle<sl_buffer, sl_buffer_free> {
public:
  using Handle::Handle;

  sl_buffer_info info() const {
    sl_buffer_info info{};
    info.size = sizeof info;
    check(sl_buffer_get_info(get(), &info));
    return info;
  }
  Buffer view(std::uint64_t offset, std::uint64_t bytes) const {
    Buffer view;
    check(sl_buffer_view(get(), offset, bytes, view.put()));
    return view;
  }
};

class Image : public Handle<sl_image, sl_image_free> {
public:
  using Handle::Handle;

  sl_image_handles handles() const {
    sl_image_handles handles{};
    handles.size = sizeof handles;
    check(sl_image_get_handles(get(), &handles));
    return handles;
  }
};

// Memory that the program has allocated. See Device::adopt_memory.
class Allocation : public Handle<sl_allocation, sl_allocation_free> {
public:
  using Handle::Handle;

  // Adopts a buffer that is bound at the offset, and lives as long as the memory.
  Buffer buffer(VkBuffer bound, std::uint64_t offset, std::uint64_t bytes,
                bool concurrent = false) const {
    Buffer buffer;
    check(sl_allocation_buffer(get(), bound, offset, bytes, concurrent ? 1 : 0, nullptr, nullptr,
                               buffer.put()));
    return buffer;
  }
  // Adopts an image that is bound at the offset, and lives as long as the memory.
  Image image(VkImage bound, std::uint64_t offset, sl_image_info info) const {
    info.size = sizeof info;
    Image image;
    check(sl_allocation_image(get(), bound, offset, &info, nullptr, nullptr, image.put()));
    return image;
  }
};

using Notification = Handle<sl_notification, sl_notification_free>;

// A locked queue. Unlocks at its end, on the same thread.
class Lock : public Handle<sl_lock, sl_queue_unlock> {
public:
  using Handle::Handle;
};

class Submission : public Handle<sl_submission, sl_submission_free> {
public:
  using Handle::Handle;

  bool was_held() const {
    bool held = false;
    check(sl_submission_was_held(get(), &held));
    return held;
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
    std::size_t count = 0;
    check(sl_queue_held(get(), &count));
    return count;
  }
  void record(const Fence &fence) const { check(sl_queue_record(get(), fence.get())); }
  void wait(const Fence &fence) const { check(sl_queue_wait_fence(get(), fence.get())); }
  // Locks a VkQueue or a stream for calls of the program. info, if any, tells what.
  [[nodiscard]] Lock lock(sl_lock_info *info = nullptr) const {
    sl_lock_info unused{};
    sl_lock_info &told = info == nullptr ? unused : *info;
    told.size = sizeof told;
    Lock lock;
    check(sl_queue_lock(get(), &told, lock.put()));
    return lock;
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
    Submission made;
    check(sl_queue_submit(get(), &info, made.put()));
    return made;
  }
};

class Device : public Handle<sl_device, sl_device_free> {
public:
  using Handle::Handle;

  static Device open_host() {
    Device device;
    check(sl_device_open_host(device.put()));
    return device;
  }
  static Device open(const std::string &name) {
    Device device;
    check(sl_device_open(name.c_str(), device.put()));
    return device;
  }
  static Device open_uuid(sl_api api, const std::uint8_t (&uuid)[16]) {
    Device device;
    check(sl_device_open_uuid(api, uuid, device.put()));
    return device;
  }
  // Adopts a VkDevice. `owner` ends when nothing uses the device any more, on any thread.
  template <class Owner> static Device adopt_vulkan(sl_vulkan_adopt_info info, Owner owner) {
    info.size = sizeof info;
    Device device;
    check(sl_device_adopt_vulkan(&info, new Owner(std::move(owner)), detail::destroy<Owner>,
                                 device.put()));
    return device;
  }
  // Adopts a CUcontext. `owner` ends when nothing uses the context any more, on any thread.
  template <class Owner> static Device adopt_cuda(CUcontext context, Owner owner) {
    Device device;
    check(sl_device_adopt_cuda(context, new Owner(std::move(owner)), detail::destroy<Owner>,
                               device.put()));
    return device;
  }

  // Adopts a VkDeviceMemory. `owner` ends when nothing uses the memory any more, on any thread.
  template <class Owner>
  Allocation adopt_memory(sl_vulkan_allocation_info info, Owner owner) const {
    info.size = sizeof info;
    Allocation allocation;
    check(sl_allocation_adopt_vulkan(get(), &info, new Owner(std::move(owner)),
                                     detail::destroy<Owner>, allocation.put()));
    return allocation;
  }

  sl_device_info info() const {
    sl_device_info info{};
    info.size = sizeof info;
    check(sl_device_get_info(get(), &info));
    return info;
  }
  void check_health() const { check(sl_device_check(get())); }
  Queue queue(sl_queue_kind kind, const char *label = nullptr) const {
    Queue queue;
    check(sl_queue_open(get(), kind, label, queue.put()));
    return queue;
  }
  Queue vulkan_queue(std::uint32_t family, std::uint32_t index,
                     const char *label = nullptr) const {
    Queue queue;
    check(sl_queue_open_vulkan(get(), family, index, label, queue.put()));
    return queue;
  }
  // Adopts a stream, also a cudaStream_t. `owner` ends when nothing uses the stream any more.
  template <class Owner>
  Queue adopt_stream(CUstream stream, Owner owner, const char *label = nullptr) const {
    Queue queue;
    check(sl_queue_adopt_cuda(get(), stream, label, new Owner(std::move(owner)),
                              detail::destroy<Owner>, queue.put()));
    return queue;
  }
  Timeline timeline(const char *label = nullptr, std::uint64_t initial = 0) const {
    Timeline timeline;
    check(sl_timeline_make(get(), label, initial, timeline.put()));
    return timeline;
  }
  Timeline clocked_timeline(const char *label = nullptr, std::uint64_t initial = 0) const {
    Timeline timeline;
    check(sl_timeline_make_clocked(get(), label, initial, timeline.put()));
    return timeline;
  }
  // Adopts a timeline semaphore, which outlives the timeline.
  Timeline adopt_semaphore(VkSemaphore semaphore, const char *label = nullptr) const {
    Timeline timeline;
    check(sl_timeline_adopt_vulkan(get(), semaphore, label, timeline.put()));
    return timeline;
  }
  // Adopts a word of 32 or 64 bits. `owner` ends when nothing uses the word any more.
  template <class Owner>
  Timeline adopt_word(std::uint64_t address, std::uint32_t bits, std::uint64_t reached, Owner owner,
                      const char *label = nullptr) const {
    Timeline timeline;
    check(sl_timeline_adopt_word(get(), address, bits, reached, label,
                                 new Owner(std::move(owner)), detail::destroy<Owner>,
                                 timeline.put()));
    return timeline;
  }
  Fence fence(sl_timing timing = SL_TIMING_NONE, const char *label = nullptr) const {
    Fence fence;
    check(sl_fence_make(get(), timing, label, fence.put()));
    return fence;
  }
  Buffer buffer(std::uint64_t bytes) const {
    Buffer buffer;
    check(sl_buffer_make(get(), bytes, buffer.put()));
    return buffer;
  }
};

inline void Claim::submitted(const Device &device) {
  check(sl_claim_submitted(get(), device.get()));
}

inline VkSemaphore Timeline::vk_semaphore(const Device &device) const {
  VkSemaphore semaphore{};
  check(sl_timeline_vk_semaphore(get(), device.get(), &semaphore));
  return semaphore;
}

class Link : public Handle<sl_link, sl_link_free> {
public:
  using Handle::Handle;

  static Link share(const Device &left, const Device &right) {
    Link link;
    check(sl_link_share(left.get(), right.get(), link.put()));
    return link;
  }
  static Link connect(const Device &left, const Device &right) {
    Link link;
    check(sl_link_connect(left.get(), right.get(), link.put()));
    return link;
  }
  sl_mechanism mechanism() const {
    std::uint32_t mechanism = 0;
    check(sl_link_mechanism(get(), &mechanism));
    return static_cast<sl_mechanism>(mechanism);
  }
  std::string why() const {
    std::size_t length = 0;
    check(sl_link_why(get(), nullptr, 0, &length));
    std::string text(length + 1, '\0');
    check(sl_link_why(get(), text.data(), text.size(), nullptr));
    text.resize(length);
    return text;
  }
  Timeline timeline(const char *label = nullptr, std::uint64_t initial = 0) const {
    Timeline timeline;
    check(sl_link_timeline(get(), label, initial, timeline.put()));
    return timeline;
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
    Words words;
    check(sl_words_make(bytes, words.put()));
    return words;
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
    Endpoint endpoint;
    check(sl_endpoint_connect(path.c_str(), label, limit.nanoseconds(), endpoint.put()));
    return endpoint;
  }
  Timeline timeline(const char *label, const Device &device, sl_access access, Limit limit) const {
    Timeline timeline;
    check(sl_endpoint_timeline(get(), label, device.get(), access, limit.nanoseconds(),
                               timeline.put()));
    return timeline;
  }
  void send(const char *label, const Words &words, Limit limit) const {
    check(sl_endpoint_send_words(get(), label, words.get(), limit.nanoseconds()));
  }
  Words receive(const char *label, std::uint64_t most, Limit limit) const {
    Words words;
    check(sl_endpoint_receive_words(get(), label, most, limit.nanoseconds(), words.put()));
    return words;
  }
  void check_peer() const { check(sl_endpoint_check(get())); }
  void give_up() const { check(sl_endpoint_give_up(get())); }
};

// A socket at a path, to which other processes connect.
class Listener : public Handle<sl_listener, sl_listener_free> {
public:
  using Handle::Handle;

  static Listener bind(const std::string &path) {
    Listener listener;
    check(sl_listener_bind(path.c_str(), listener.put()));
    return listener;
  }
  Endpoint accept(const char *label, Limit limit) const {
    Endpoint endpoint;
    check(sl_listener_accept(get(), label, limit.nanoseconds(), endpoint.put()));
    return endpoint;
  }
};

} // namespace syncline

#endif // SYNCLINE_HPP
