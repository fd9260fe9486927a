// Random calls in random order, with live, freed and invented handles, on the host's devices.
//
// Arguments: a seed, and the number of calls or the seconds followed by "s". It must not crash or
// hang. Every result is one of the header, and every data is freed once.

#include "case.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PLACES 24

static uint64_t state;

static uint64_t spots[2];

static uint64_t any(uint64_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % below;
}

static sl_device devices[PLACES];
static sl_queue queues[PLACES];
static sl_timeline timelines[PLACES];
static sl_link links[PLACES];
static sl_fence fences[PLACES];
static sl_buffer buffers[PLACES];
static sl_submission submissions[PLACES];
static sl_notification notifications[PLACES];
static sl_claim claims[PLACES];
static sl_lock locks[PLACES];

// A handle of the kind, perhaps freed, or of another kind.
#define ONE(list) (any(40) == 0 ? (__typeof__(list[0])){timelines[any(PLACES)].id ^ any(2)} \
                                : list[any(PLACES)])
// A place whose handle is freed before. It stays there if the call fails.
#define PLACE_AT(list, end, spot) \
  (any(200) == 0 ? NULL : (spot = any(PLACES), end(list[spot]), &list[spot]))
#define PLACE(list, end) PLACE_AT(list, end, spots[0])

static atomic_ulong made, freed;

static int32_t work(void *data) { return *(uint64_t *)data % 16 == 0 ? 1 : 0; }

static void drop(void *data) {
  freed++;
  free(data);
}

static void *new_data(void) {
  uint64_t *data = malloc(sizeof *data);
  *data = any(1000);
  made++;
  return data;
}

static sl_result call(void) {
  sl_point points[4];
  for (int i = 0; i < 4; i++) {
    points[i] = at(ONE(timelines), any(20) == 0 ? any(UINT64_MAX) : any(60));
  }
  size_t waits = any(3), signals = any(3), index;
  bool answer;
  uint64_t value, tick = any(3) * 1000;
  sl_device_info info = {.size = any(20) == 0 ? any(400) : sizeof info};
  sl_buffer_info of_buffer = {.size = sizeof of_buffer};
  sl_time time;
  int64_t gone;
  char text[32];
  switch (any(38)) {
  case 0: return sl_device_open_host(PLACE(devices, sl_device_free));
  case 1: return sl_queue_open(ONE(devices), (uint32_t)any(4), "q", PLACE(queues, sl_queue_free));
  case 2: case 3: return sl_timeline_make(ONE(devices), "t", any(5), PLACE(timelines, sl_timeline_free));
  case 4: return sl_timeline_clone(ONE(timelines), PLACE(timelines, sl_timeline_free));
  case 5: return sl_timeline_free(ONE(timelines));
  case 6: return sl_queue_free(ONE(queues));
  case 7: return any(4) ? SL_SUCCESS : sl_device_free(ONE(devices));
  case 8: case 9: case 10: case 11: case 12:
    return SUBMIT(ONE(queues), any(2) ? NULL : PLACE(submissions, sl_submission_free),
                  .waits = points, .wait_count = waits, .signals = points + 2,
                  .signal_count = signals, .host_work = any(3) ? work : NULL, .data = new_data(),
                  .free = drop);
  case 13: case 14: case 15: return sl_timeline_signal(points[0].timeline, points[0].value);
  case 16: return any(10) ? SL_SUCCESS : sl_timeline_fail(ONE(timelines), "chance");
  case 17: return sl_timeline_value(ONE(timelines), &value);
  case 18: return sl_point_is_reached(points[0], &answer);
  case 19: return sl_point_is_pending(points[0], &answer);
  case 20: return sl_point_wait(points[0], tick);
  case 21: return sl_point_wait_pending(points[0], tick);
  case 22: return sl_wait_all(points, waits, tick);
  case 23: return sl_wait_any(points, waits, tick, &index);
  case 24: return sl_queue_idle(ONE(queues), tick);
  case 25: return sl_queue_settle(ONE(queues), tick);
  case 26: return sl_link_connect(ONE(devices), ONE(devices), PLACE(links, sl_link_free));
  case 27: return sl_link_timeline(ONE(links), "l", any(5), PLACE(timelines, sl_timeline_free));
  case 28: return sl_link_buffer(ONE(links), any(4) * 2, PLACE(buffers, sl_buffer_free),
                                 PLACE_AT(buffers, sl_buffer_free, spots[1]));
  case 29: return any(2) ? sl_link_free(ONE(links)) : sl_link_why(ONE(links), text, any(33), &index);
  case 30: return sl_fence_make(ONE(devices), (uint32_t)any(2), NULL, PLACE(fences, sl_fence_free));
  case 31: return any(2) ? sl_queue_record(ONE(queues), ONE(fences))
                         : sl_queue_wait_fence(ONE(queues), ONE(fences));
  case 32: return any(2) ? sl_fence_free(ONE(fences)) : sl_fence_elapsed(ONE(fences), ONE(fences), &gone);
  case 33: return any(2) ? sl_buffer_free(ONE(buffers)) : sl_buffer_get_info(ONE(buffers), &of_buffer);
  case 34: return any(2) ? sl_submission_free(ONE(submissions))
                         : sl_submission_wait_submitted(ONE(submissions), tick);
  case 35: {
    int event = eventfd(0, EFD_CLOEXEC);
    sl_result result = sl_point_notify(points[0], event, PLACE(notifications, sl_notification_free));
    if (result != SL_SUCCESS) {
      close(event);
    }
    return result;
  }
  case 36: return any(2) ? sl_notification_free(ONE(notifications))
                         : sl_timeline_claim(ONE(timelines), any(60), any(60), PLACE(claims, sl_claim_free));
  default:
    return any(2) ? sl_device_get_info(ONE(devices), &info)
                  : any(2) ? sl_queue_lock(ONE(queues), NULL, PLACE(locks, sl_queue_unlock))
                           : sl_point_time(points[0], &time);
  }
}

int main(int argc, char **argv) {
  state = argc > 1 ? strtoull(argv[1], NULL, 0) * 2654435761 + 1 : 1;
  const char *length = argc > 2 ? argv[2] : "20000";
  bool seconds = strchr(length, 's') != NULL;
  uint64_t end = strtoull(length, NULL, 0), calls = 0, kinds[128] = {0};
  time_t begin = time(NULL);
  while (seconds ? (uint64_t)(time(NULL) - begin) < end : calls < end) {
    sl_result result = call();
    calls++;
    if (strcmp(sl_result_name(result), "unknown") == 0 || result == SL_ERROR_INTERNAL) {
      CHECK("random", !"the result is one of the header, and no defect");
    }
    kinds[-result]++;
    // So that queues do not get long.
    if (calls % 4096 == 0) {
      for (int i = 0; i < PLACES; i++) {
        sl_timeline_free(timelines[i]);
        sl_queue_free(queues[i]);
      }
    }
  }
  for (int i = 0; i < PLACES; i++) {
    sl_timeline_free(timelines[i]);
    sl_submission_free(submissions[i]);
    sl_fence_free(fences[i]);
    sl_notification_free(notifications[i]);
    sl_link_free(links[i]);
    sl_buffer_free(buffers[i]);
    sl_queue_free(queues[i]);
    sl_device_free(devices[i]);
  }
  // What was held waits for what never comes now, and is skipped.
  for (int i = 0; i < 60000 && freed < made; i++) {
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  printf("%lu calls, %lu data made and %lu freed\n", (unsigned long)calls, made, freed);
  for (int i = 0; i < 128; i++) {
    if (kinds[i] != 0) {
      printf("%s %lu\n", sl_result_name(-i), (unsigned long)kinds[i]);
    }
  }
  CHECK("Q5", freed == made);
  CHECK("random", kinds[0] > calls / 20);
  return done();
}
