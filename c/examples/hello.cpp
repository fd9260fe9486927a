// hello.c in C++.

#include <chrono>
#include <iostream>
#include <syncline.hpp>

using namespace std::chrono_literals;

int main(int argc, char **argv) try {
  // 1. Devices and queues.
  auto host = syncline::Device::open_host();
  auto device = syncline::Device::open(argc > 1 ? argv[1] : "host");
  std::cout << "the consumer is on " << device.info().name << "\n";
  auto producer = host.queue(SL_QUEUE_COMPUTE, "producer");
  auto consumer = device.queue(SL_QUEUE_COMPUTE, "consumer");

  // 2. A timeline for both.
  auto link = syncline::Link::connect(device, host);
  auto frames = link.timeline("frames");

  // 3. Submit, in any order.
  int frame = 0;
  consumer.submit(frames.at(1), frames.at(2));
  std::cout << consumer.held() << " submission is held\n";
  if (!frames.at(2).wait(10ms)) {
    std::cout << sl_last_error() << "\n";
  }
  producer.submit_host({}, [&frame] { frame = 42; }, frames.at(1));

  // 4. Wait.
  if (!frames.at(2).wait(10s)) {
    std::cerr << sl_last_error() << "\n";
    return 1;
  }
  std::cout << "frame " << frame << ", and the timeline is at " << frames.value() << "\n";
  // Work must not outlive what it refers to.
  return producer.idle(10s) && consumer.idle(10s) ? 0 : 1;
} catch (const syncline::Error &error) {
  std::cerr << error.name() << ": " << error.what() << "\n";
  return 1;
}
