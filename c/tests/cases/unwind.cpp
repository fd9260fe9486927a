// Exceptions of callbacks at the border. The argument names the callback.
//
// A callback in C must not throw. If it does, the process ends at the border: the exception does not
// pass through the library, which would leave its locks taken. Callables of syncline.hpp may throw.

#include "syncline.hpp"

#include <cstdio>
#include <cstring>

using namespace std::chrono_literals;

static void free_throws(void *) { throw std::runtime_error("from free"); }
static std::int32_t work_throws(void *) { throw std::runtime_error("from work"); }

int main(int count, char **arguments) {
  const char *which = count > 1 ? arguments[1] : "";
  syncline::Device device = syncline::Device::open_host();
  syncline::Queue queue = device.queue(SL_QUEUE_COMPUTE, "queue");
  syncline::Timeline line = device.timeline("line");
  sl_submit_info info{};
  info.size = sizeof info;
  try {
    if (std::strcmp(which, "free") == 0) {
      // Refused, so that it is called on this thread.
      info.free = free_throws;
      (void)sl_queue_submit(sl_queue{0}, &info, nullptr);
    } else if (std::strcmp(which, "work") == 0) {
      info.host_work = work_throws;
      (void)sl_queue_submit(queue.get(), &info, nullptr);
      (void)queue.idle(60s);
    } else {
      queue.submit_host({}, [] { throw std::runtime_error("from a callable"); }, line.at(1));
      (void)line.at(1).wait(60s);
    }
  } catch (const syncline::Error &error) {
    std::printf("told: %s\n", error.what());
    return 0;
  } catch (const std::exception &error) {
    std::printf("passed the border: %s\n", error.what());
  }
  return 1;
}
