// Two queues and a timeline. The consumer submits first, and is held until the producer has.
//
// Without an argument it runs on the host, and needs no driver. With one, such as "cuda" or
// "vulkan", the consumer is a queue of that device.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <syncline.h>

// Ends the program with the whole text of an error.
static void must(sl_result result, const char *call) {
  if (result != SL_SUCCESS) {
    fprintf(stderr, "%s: %s\n%s\n", call, sl_result_name(result), sl_last_error());
    exit(1);
  }
}
#define MUST(call) must((call), #call)

static const uint64_t SECOND = 1000000000; // time limits are in nanoseconds

static int32_t produce(void *data) {
  *(int *)data = 42; // on a thread of the library
  return 0;          // another number would fail "frames", and so whatever waits for it
}

int main(int argc, char **argv) {
  // 1. Devices and queues.
  sl_device host, device;
  MUST(sl_device_open_host(&host));
  MUST(sl_device_open(argc > 1 ? argv[1] : "host", &device));
  sl_device_info info = {.size = sizeof info};
  MUST(sl_device_get_info(device, &info));
  printf("the consumer is on %s\n", info.name);
  sl_queue producer, consumer;
  MUST(sl_queue_open(host, SL_QUEUE_COMPUTE, "producer", &producer));
  MUST(sl_queue_open(device, SL_QUEUE_COMPUTE, "consumer", &consumer));

  // 2. A timeline for both.
  sl_link link;
  sl_timeline frames;
  MUST(sl_link_connect(device, host, &link));
  MUST(sl_link_timeline(link, "frames", 0, &frames));

  // 3. Submit, in any order.
  int frame = 0;
  sl_point produced = {frames, 1}, consumed = {frames, 2};
  sl_submit_info consuming = {.size = sizeof consuming,
                              .waits = &produced,
                              .wait_count = 1,
                              .signals = &consumed,
                              .signal_count = 1};
  MUST(sl_queue_submit(consumer, &consuming, NULL));
  size_t held;
  MUST(sl_queue_held(consumer, &held));
  printf("%zu submission is held\n", held);
  // The text of a time-out says what is missing.
  if (sl_point_wait(consumed, SECOND / 100) == SL_ERROR_TIMED_OUT) {
    printf("%s\n", sl_last_error());
  }
  sl_submit_info producing = {.size = sizeof producing,
                              .signals = &produced,
                              .signal_count = 1,
                              .host_work = produce,
                              .data = &frame};
  MUST(sl_queue_submit(producer, &producing, NULL));

  // 4. Wait.
  MUST(sl_point_wait(consumed, 10 * SECOND));
  uint64_t value;
  MUST(sl_timeline_value(frames, &value));
  printf("frame %d, and the timeline is at %" PRIu64 "\n", frame, value);

  // 5. Free every handle once, in any order. Queues first finish their work.
  MUST(sl_queue_idle(producer, 10 * SECOND));
  MUST(sl_queue_idle(consumer, 10 * SECOND));
  MUST(sl_timeline_free(frames));
  MUST(sl_link_free(link));
  MUST(sl_queue_free(producer));
  MUST(sl_queue_free(consumer));
  MUST(sl_device_free(device));
  MUST(sl_device_free(host));
  return 0;
}
