// Cases of syncline.hpp on the host's device.

#include "syncline.hpp"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

using namespace syncline;
using namespace std::chrono_literals;

static int failures = 0;

static void check_case(bool holds, const char *rule, const char *what, int line) {
  std::printf("%s %s: %s (line %d)\n", holds ? "ok    " : "FAILED", rule, what, line);
  failures += holds ? 0 : 1;
}
#define CHECK(rule, holds) check_case((holds), rule, #holds, __LINE__)

// The result of a call that must throw.
template <class Body> static sl_result thrown(Body body, const char *part) {
  try {
    body();
  } catch (const Error &error) {
    CHECK("E5", std::strstr(error.what(), part) != nullptr || (std::puts(error.what()), false));
    CHECK("E5", std::strcmp(error.name(), sl_result_name(error.code())) == 0);
    return error.code();
  }
  return SL_SUCCESS;
}

// Counts how often it ends, also as the part of a callable.
struct Counted {
  std::atomic<int> *ended;
  explicit Counted(std::atomic<int> *counter) : ended(counter) {}
  Counted(Counted &&other) noexcept : ended(std::exchange(other.ended, nullptr)) {}
  Counted(const Counted &) = delete;
  ~Counted() {
    if (ended != nullptr) {
      ++*ended;
    }
  }
};

int main() {
  Device device = Device::open_host();
  Queue queue = device.queue(SL_QUEUE_COMPUTE, "queue");
  Timeline gate = device.timeline("gate"), done = device.timeline("done");

  // Q2: a callable that can only be moved is called once, and ends once.
  std::atomic<int> called{0}, ended{0};
  Submission held = queue.submit_host(
      gate.at(1), [&called, counted = Counted(&ended), own = std::make_unique<int>(5)] {
        called += *own;
      },
      done.at(1));
  CHECK("Q2", held.was_held() && called == 0 && ended == 0);
  // T4: a limit is a duration of <chrono>.
  auto begin = std::chrono::steady_clock::now();
  CHECK("T4", !done.at(1).wait(20ms));
  CHECK("T4", std::chrono::steady_clock::now() - begin >= 20ms);
  CHECK("T4", Limit(1us).nanoseconds() == 1000 && Limit(-1s).nanoseconds() == 0);
  CHECK("T4", Limit(forever).nanoseconds() == SL_FOREVER);
  CHECK("T4", Limit(std::chrono::hours::max()).nanoseconds() == SL_FOREVER);
  CHECK("T4", Limit(std::chrono::duration<double>(0.5)).nanoseconds() == 500000000);
  CHECK("T4", Limit(std::chrono::duration<double, std::nano>(0.5)).nanoseconds() == 1);
  gate.signal(1);
  CHECK("Q2", done.at(1).wait(60s) && queue.idle(60s));
  CHECK("Q6", called == 5 && ended == 1 && done.value() == 1);

  // E1: an exception fails the timelines of the signals, with its text.
  Timeline broken = device.timeline("broken"), odd = device.timeline("odd");
  queue.submit_host({}, []() -> int { throw std::runtime_error("no more frames"); }, broken.at(1));
  queue.submit_host({}, [] { throw 5; }, odd.at(1));
  CHECK("E1", thrown([&] { (void)broken.at(1).wait(60s); }, "no more frames") == SL_ERROR_FAILED);
  CHECK("E1", thrown([&] { (void)odd.at(1).wait(60s); }, "no std::exception") == SL_ERROR_FAILED);
  // A number that is not 0 as well.
  Timeline third = device.timeline("third");
  queue.submit_host({}, [] { return 7; }, third.at(1));
  CHECK("E1", thrown([&] { (void)third.at(1).wait(60s); }, "returned 7") == SL_ERROR_FAILED);

  // Q5: a callable that is refused ends once, too.
  ended = 0;
  sl_result refused = thrown(
      [&] {
        queue.submit_host(gate.at(5), [counted = Counted(&ended)] {}, gate.at(4));
      },
      "gate");
  CHECK("Q5", refused == SL_ERROR_DEADLOCK && ended == 1);
  refused = thrown([&] { queue.submit_vulkan({}, [counted = Counted(&ended)](auto &) {}, {}); },
                   "Vulkan");
  CHECK("Q5", refused == SL_ERROR_UNSUPPORTED && ended == 2);

  // T5, and lists of points.
  std::size_t index = 9;
  std::vector<Point> points{gate.at(9), done.at(1)};
  CHECK("T5", wait_any(points, 60s, index) && index == 1);
  CHECK("T5", wait_all({gate.at(1), done.at(1)}, 60s) && !wait_all(points, 1ns));

  // Handles: moved, and results in place of exceptions.
  Timeline moved = std::move(done);
  CHECK("handle", !done && moved && moved.value() == 1);
  CHECK("handle", thrown([&] { done.signal(2); }, "null") == SL_ERROR_INVALID_HANDLE);
  Timeline made;
  CHECK("handle", sl_timeline_make(device.get(), "made", 0, made.put()) == SL_SUCCESS && made);
  sl_timeline freed = made.get();
  made.reset();
  CHECK("handle", sl_timeline_signal(freed, 1) == SL_ERROR_INVALID_HANDLE);

  CHECK("version", version() == sl_version());
  CHECK("D2", report().find("host") != std::string::npos);

  Device other = Device::open_host();
  Link link = Link::connect(device, other);
  CHECK("X1", link.mechanism() == SL_MECHANISM_ENGINE && !link.why().empty());
  CHECK("X1", std::strcmp(link.mechanism_name(), "through the engine on the host") == 0);
  auto [left, right] = link.buffer(64);
  CHECK("X8", left.info().host_pointer == right.info().host_pointer);
  CHECK("X8", left.view(16, 16).info().bytes == 16);
  static_cast<std::uint32_t *>(left.info().host_pointer)[3] = 7;
  Buffer copy = device.buffer(64);
  right.copy_to(copy);
  CHECK("X8", static_cast<std::uint32_t *>(copy.info().host_pointer)[3] == 7);

  // T8: an eventfd, and results that are refused.
  int readable = eventfd(0, EFD_CLOEXEC), kept = dup(readable);
  Notification notification = moved.at(1).notify(readable);
  std::uint64_t count = 0;
  CHECK("T8", read(kept, &count, sizeof count) == sizeof count && count == 1);
  close(kept);
  CHECK("E5", thrown([&] { (void)device.vulkan(); }, "Vulkan") == SL_ERROR_UNSUPPORTED);
  CHECK("E5", thrown([&] { (void)moved.at(1).vk_semaphore(device); }, "Vulkan") ==
                  SL_ERROR_UNSUPPORTED);

  Fence start = device.fence(SL_TIMING_INTERVAL), end = device.fence(SL_TIMING_INTERVAL);
  queue.record(start);
  queue.record(end);
  CHECK("F5", end.wait(60s) && end.since(start) >= 0ns && start.since(end) <= 0ns);

  // Two ends of a connection in one process.
  std::string path = "/tmp/syncline-hpp-" + std::to_string(getpid());
  Listener listener = Listener::bind(path);
  Endpoint client;
  std::thread thread([&] {
    client = Endpoint::connect(path, "server", 60s);
    Words words = Words::make(8);
    static_cast<std::atomic<std::uint32_t> *>(words.data())[1] = 42;
    client.send("words", words, 60s);
  });
  Endpoint server = listener.accept("client", 60s);
  Words words = server.receive("words", 8, 60s);
  thread.join();
  CHECK("X8", words.size() == 8 && static_cast<std::uint32_t *>(words.data())[1] == 42);
  server.check_peer();
  CHECK("P1", server.peer() == static_cast<std::uint32_t>(getpid()));
  CHECK("P1", thrown([&] { (void)listener.accept("none", 1ms); }, "did not connect") == SL_ERROR_TIMED_OUT);
  client.reset();
  CHECK("P3", thrown([&] { server.receive("words", 8, 60s); }, "closed its end") == SL_ERROR_PEER_LOST);

  listener.close();
  CHECK("P1", thrown([&] { (void)listener.accept("none", 60s); }, "closed") == SL_ERROR_CANCELLED);

  std::printf("%d failed\n", failures);
  return failures == 0 ? 0 : 1;
}
