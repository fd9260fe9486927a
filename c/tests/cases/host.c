// Cases on the host's device, each named by the rule that it shows. Prints a line for each.

#include "syncline.h"

#include <stdio.h>
#include <string.h>

static int failures = 0;

static void check(bool holds, const char *rule, const char *what, int line) {
  printf("%s %s: %s (line %d) %s\n", holds ? "ok    " : "FAILED", rule, what, line,
         holds ? "" : sl_last_error());
  failures += holds ? 0 : 1;
}
#define CHECK(rule, holds) check((holds), rule, #holds, __LINE__)

static const uint64_t SECOND = 1000000000;

static int32_t count(void *data) {
  *(int *)data += 1;
  return 0;
}

static int32_t refuse(void *data) {
  (void)data;
  return 7;
}

static void free_count(void *data) { *(int *)data += 100; }

static sl_point at(sl_timeline timeline, uint64_t value) {
  sl_point point = {timeline, value};
  return point;
}

int main(void) {
  sl_device device;
  sl_queue queue;
  sl_timeline line, gate;
  CHECK("open", sl_device_open_host(&device) == SL_SUCCESS);
  CHECK("open", sl_queue_open(device, SL_QUEUE_COMPUTE, "queue", &queue) == SL_SUCCESS);
  CHECK("open", sl_timeline_make(device, "line", &line) == SL_SUCCESS);
  CHECK("open", sl_timeline_make(device, "gate", &gate) == SL_SUCCESS);

  // Q2: a submission comes before the signal that it waits for, and is held.
  int counted = 0;
  sl_point wait = at(gate, 1), signal = at(line, 1);
  CHECK("Q2", sl_queue_submit_host(queue, &wait, 1, &signal, 1, count, &counted, free_count) ==
                  SL_SUCCESS);
  CHECK("Q2", counted == 0);
  CHECK("Q2", sl_point_wait(signal, 1000000) == SL_ERROR_TIMED_OUT);
  CHECK("Q2", strstr(sl_last_error(), "gate") != NULL);
  CHECK("Q2", sl_timeline_signal(gate, 1) == SL_SUCCESS);
  CHECK("Q2", sl_point_wait(signal, 10 * SECOND) == SL_SUCCESS);
  CHECK("Q2", sl_queue_idle(queue, 10 * SECOND) == SL_SUCCESS);
  CHECK("Q2", counted == 101);

  // T2: a value is signalled once.
  CHECK("T2", sl_timeline_signal(gate, 1) == SL_ERROR_INVALID_VALUE);

  // E1: work that fails fails the timelines of its signals, and waits have the cause.
  sl_timeline broken;
  CHECK("E1", sl_timeline_make(device, "broken", &broken) == SL_SUCCESS);
  signal = at(broken, 1);
  CHECK("E1", sl_queue_submit_host(queue, NULL, 0, &signal, 1, refuse, NULL, NULL) == SL_SUCCESS);
  CHECK("E1", sl_point_wait(signal, 10 * SECOND) == SL_ERROR_FAILED);
  CHECK("E1", strstr(sl_last_error(), "returned 7") != NULL);

  // Data is freed once, also if the call is refused.
  counted = 0;
  wait = at(line, 5), signal = at(line, 4);
  CHECK("Q5", sl_queue_submit_host(queue, &wait, 1, &signal, 1, count, &counted, free_count) !=
                  SL_SUCCESS);
  CHECK("Q5", counted == 100);

  // Handles: freed, null, and of another kind.
  CHECK("handle", sl_timeline_free(broken) == SL_SUCCESS);
  CHECK("handle", sl_timeline_free(broken) == SL_ERROR_INVALID_HANDLE);
  CHECK("handle", sl_timeline_signal(broken, 2) == SL_ERROR_INVALID_HANDLE);
  sl_timeline null = {0};
  CHECK("handle", sl_timeline_free(null) == SL_SUCCESS);
  CHECK("handle", sl_timeline_signal(null, 1) == SL_ERROR_INVALID_HANDLE);
  CHECK("handle", sl_timeline_make(device, "x", NULL) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("handle", sl_timeline_make(device, "\xff", &null) == SL_ERROR_INVALID_ARGUMENT);

  // T9: the last handle is freed, and the waits that nothing can end are cancelled.
  wait = at(gate, 9), signal = at(line, 2);
  CHECK("T9", sl_queue_submit_host(queue, &wait, 1, &signal, 1, NULL, NULL, NULL) == SL_SUCCESS);
  CHECK("T9", sl_timeline_free(gate) == SL_SUCCESS);
  CHECK("T9", sl_point_wait(signal, 10 * SECOND) == SL_ERROR_FAILED ||
                  sl_point_wait(signal, 10 * SECOND) == SL_ERROR_CANCELLED);

  sl_device_info info = {sizeof info, 0, 0, 0, {0}};
  CHECK("info", sl_device_get_info(device, &info) == SL_SUCCESS && info.api == SL_API_HOST);
  info.size = 1;
  CHECK("info", sl_device_get_info(device, &info) == SL_ERROR_INVALID_ARGUMENT);

  CHECK("free", sl_timeline_free(line) == SL_SUCCESS);
  CHECK("free", sl_queue_free(queue) == SL_SUCCESS);
  CHECK("free", sl_device_free(device) == SL_SUCCESS);
  printf("%d failed\n", failures);
  return failures ? 1 : 0;
}
