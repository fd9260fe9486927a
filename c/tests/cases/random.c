// Random calls in random order from several threads, with live, freed and invented handles, on the
// host's devices. Callbacks make such calls, too.
//
// Arguments: a seed, the calls of each thread or the seconds followed by "s", and the threads. It
// must not crash or hang. Every result is one of the header, a failed call writes no result, and
// every data is freed once.

#include "case.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PLACES 24

enum kind {
  DEVICE, QUEUE, LOCK, LINK, TIMELINE, CLAIM, SUBMISSION, FENCE, NOTIFICATION, BUFFER, IMAGE,
  ALLOCATION, WORDS, KINDS
};

// Each place keeps the number of its handle after another thread has freed it.
static atomic_uint_least64_t handles[KINDS][PLACES];

static uint64_t seed, length;
static bool seconds;
static time_t begin;
static atomic_bool ending;
static atomic_ulong threads, calls, made, freed, results[128];

static _Thread_local uint64_t state;
static _Thread_local int depth;

static uint64_t any(uint64_t below) {
  if (state == 0) {
    state = (seed + ++threads) * 0x9e3779b97f4a7c15 | 1;
  }
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state % below;
}

// A handle that is perhaps freed, of another kind, or invented.
static uint64_t pick(enum kind kind) {
  enum kind from = any(40) == 0 ? (enum kind)any(KINDS) : kind;
  return handles[from][any(PLACES)] ^ (any(100) == 0);
}
#define A(type, kind) ((sl_##type){pick(kind)})
#define A_DEVICE A(device, DEVICE)
#define A_QUEUE A(queue, QUEUE)
#define A_LINK A(link, LINK)
#define A_TIMELINE A(timeline, TIMELINE)
#define A_SUBMISSION A(submission, SUBMISSION)
#define A_FENCE A(fence, FENCE)
#define A_BUFFER A(buffer, BUFFER)
#define A_POINT at(A_TIMELINE, any(20) == 0 ? any(UINT64_MAX) : any(60))

static sl_result end(enum kind kind, uint64_t id) {
  switch (kind) {
  case DEVICE: return sl_device_free((sl_device){id});
  case QUEUE: return sl_queue_free((sl_queue){id});
  case LOCK: return sl_queue_unlock((sl_lock){id});
  case LINK: return sl_link_free((sl_link){id});
  case TIMELINE: return sl_timeline_free((sl_timeline){id});
  case CLAIM: return sl_claim_free((sl_claim){id});
  case SUBMISSION: return sl_submission_free((sl_submission){id});
  case FENCE: return sl_fence_free((sl_fence){id});
  case NOTIFICATION: return sl_notification_free((sl_notification){id});
  case BUFFER: return sl_buffer_free((sl_buffer){id});
  case IMAGE: return sl_image_free((sl_image){id});
  case ALLOCATION: return sl_allocation_free((sl_allocation){id});
  default: return sl_words_free((sl_words){id});
  }
}

// Where a call writes a handle.
typedef union {
  uint64_t id;
  sl_device device;
  sl_queue queue;
  sl_lock lock;
  sl_link link;
  sl_timeline timeline;
  sl_claim claim;
  sl_submission submission;
  sl_fence fence;
  sl_notification notification;
  sl_buffer buffer;
  sl_image image;
  sl_allocation allocation;
  sl_words words;
} handle;

#define UNWRITTEN 0x5c5c5c5c5c5c5c5c
#define TO(place, member) (any(200) == 0 ? NULL : &(place).member)

// Keeps a handle that a call has made, and frees the one that had the place.
static void keep(enum kind kind, sl_result result, handle made_by_call) {
  if (result != SL_SUCCESS && made_by_call.id != UNWRITTEN) {
    CHECK("random", !"a call that fails writes no result");
  } else if (made_by_call.id != UNWRITTEN) {
    end(kind, atomic_exchange(&handles[kind][any(PLACES)], made_by_call.id));
  }
}

static void call(void);

// A callback must not wait, which a call at this depth does not.
static void call_inside(void) {
  depth++;
  call();
  depth--;
}

typedef struct {
  atomic_int called;
  uint64_t value;
} work_data;

static int32_t work(void *data) {
  work_data *own = data;
  if (own->called++ != 0) {
    CHECK("Q6", !"work is called once at most");
  }
  call_inside();
  return own->value % 16 == 0 ? 1 : 0;
}

static void drop(void *data) {
  freed++;
  free(data);
  call_inside();
}

static void *new_data(void) {
  work_data *data = calloc(1, sizeof *data);
  data->value = any(1000);
  made++;
  return data;
}

static sl_result submit(handle *one) {
  sl_point points[4] = {A_POINT, A_POINT, A_POINT, A_POINT};
  return SUBMIT(A_QUEUE, any(2) ? NULL : &one->submission, .waits = points, .wait_count = any(3),
                .signals = points + 2, .signal_count = any(3), .host_work = any(3) ? work : NULL,
                .data = new_data(), .free = drop);
}

static sl_result notify(handle *one) {
  int event = eventfd(0, EFD_CLOEXEC);
  sl_result result = sl_point_notify(A_POINT, event, any(4) ? &one->notification : NULL);
  if (result != SL_SUCCESS && event >= 0) {
    close(event);
  }
  return result;
}

// What makes handles. Nothing of it waits.
static sl_result make(void) {
  handle one = {UNWRITTEN}, two = {UNWRITTEN};
  enum kind kind = TIMELINE;
  sl_result result = SL_SUCCESS;
  sl_vulkan_allocation_info memory = {.size = sizeof memory};
  sl_image_info image = {sizeof image, 1, 0, 37, 8, 8, 1, 1, 1, 8, 0};
  switch (any(17)) {
  case 0: result = sl_device_open_host(TO(one, device)); kind = DEVICE; break;
  case 1: result = sl_queue_open(A_DEVICE, (uint32_t)any(4), "q", TO(one, queue)); kind = QUEUE; break;
  case 2: result = sl_timeline_make(A_DEVICE, "t", any(5), TO(one, timeline)); break;
  case 3: result = sl_timeline_make_clocked(A_DEVICE, NULL, any(5), TO(one, timeline)); break;
  case 4: result = sl_timeline_clone(A_TIMELINE, TO(one, timeline)); break;
  case 5: case 6: case 7: case 8: result = submit(&one); kind = SUBMISSION; break;
  case 9: result = sl_link_connect(A_DEVICE, A_DEVICE, TO(one, link)); kind = LINK; break;
  case 10: result = sl_link_timeline(A_LINK, "l", any(5), TO(one, timeline)); break;
  case 11:
    result = any(4) ? sl_link_buffer(A_LINK, any(4) * 2, TO(one, buffer), TO(two, buffer))
                    : sl_link_image(A_LINK, &image, TO(one, image), TO(two, image));
    keep(BUFFER, result, two);
    kind = BUFFER;
    break;
  case 12: result = sl_buffer_make(A_DEVICE, any(4) * 4, TO(one, buffer)); kind = BUFFER; break;
  case 13: result = sl_buffer_view(A_BUFFER, any(3) * 4, any(3) * 4, TO(one, buffer)); kind = BUFFER; break;
  case 14: result = sl_fence_make(A_DEVICE, (uint32_t)any(4), "f", TO(one, fence)); kind = FENCE; break;
  case 15: result = notify(&one); kind = NOTIFICATION; break;
  default:
    switch (any(5)) {
    case 0: result = sl_timeline_claim(A_TIMELINE, any(60), any(60), TO(one, claim)); kind = CLAIM; break;
    case 1: result = sl_queue_lock(A_QUEUE, NULL, TO(one, lock)); kind = LOCK; break;
    case 2: result = sl_words_make(any(4) * 2, TO(one, words)); kind = WORDS; break;
    case 3:
      result = sl_allocation_adopt_vulkan(A_DEVICE, &memory, new_data(), drop, TO(one, allocation));
      kind = ALLOCATION;
      break;
    default:
      result = sl_timeline_adopt_word(A_DEVICE, 64, 32, 0, "w", new_data(), drop, TO(one, timeline));
    }
  }
  keep(kind, result, one);
  return result;
}

// What uses handles, and does not wait.
static sl_result use(void) {
  bool answer;
  uint64_t value, bytes;
  int64_t gone;
  size_t count;
  uint32_t number;
  void *pointer;
  sl_time time;
  char text[32];
  VkSemaphore semaphore;
  sl_device_info info = {.size = any(20) == 0 ? any(400) : sizeof info};
  sl_buffer_info of_buffer = {.size = sizeof of_buffer};
  enum kind kind;
  switch (any(28)) {
  case 0: case 1: case 2: case 3: return sl_timeline_signal(A_TIMELINE, any(60));
  case 4: return any(10) ? SL_SUCCESS : sl_timeline_fail(A_TIMELINE, "chance");
  case 5: return sl_timeline_value(A_TIMELINE, &value);
  case 6: return sl_point_is_reached(A_POINT, &answer);
  case 7: return sl_point_is_pending(A_POINT, &answer);
  case 8: return sl_point_time(A_POINT, &time);
  case 9: return sl_queue_record(A_QUEUE, A_FENCE);
  case 10: return sl_queue_wait_fence(A_QUEUE, A_FENCE);
  case 11: return sl_fence_is_complete(A_FENCE, &answer);
  case 12: return sl_fence_elapsed(A_FENCE, A_FENCE, &gone);
  case 13: return any(2) ? sl_fence_time(A_FENCE, &time) : sl_fence_since(A_FENCE, A_FENCE, &time);
  case 14: return sl_device_get_info(A_DEVICE, &info);
  case 15: return any(2) ? sl_device_check(A_DEVICE) : sl_queue_held(A_QUEUE, &count);
  case 16: return sl_buffer_get_info(A_BUFFER, &of_buffer);
  case 17: return sl_buffer_copy(A_BUFFER, A_BUFFER);
  case 18: return any(2) ? sl_link_why(A_LINK, text, any(33), &count) : sl_link_mechanism(A_LINK, &number);
  case 19: return sl_submission_was_held(A_SUBMISSION, &answer);
  case 20: return sl_timeline_vk_semaphore(A_TIMELINE, A_DEVICE, &semaphore);
  case 21: return sl_timeline_signalled_by_others(A_TIMELINE, any(60));
  case 22: return any(2) ? sl_work_failed("chance") : sl_words_get(A(words, WORDS), &pointer, &bytes);
  default:
    kind = (enum kind)any(KINDS);
    // Devices end seldom, because everything needs them.
    return kind == DEVICE && any(4) ? SL_SUCCESS : end(kind, pick(kind));
  }
}

static sl_result wait_a_little(void) {
  uint64_t limit = any(3) * 1000;
  sl_point points[2] = {A_POINT, A_POINT};
  size_t index;
  switch (any(9)) {
  case 0: return sl_point_wait(points[0], limit);
  case 1: return sl_point_wait_pending(points[0], limit);
  case 2: return sl_wait_all(points, any(3), limit);
  case 3: return sl_wait_any(points, any(3), limit, &index);
  case 4: return sl_queue_idle(A_QUEUE, limit);
  case 5: return sl_queue_settle(A_QUEUE, limit);
  case 6: return sl_fence_wait(A_FENCE, limit);
  case 7: return sl_submission_wait_submitted(A_SUBMISSION, limit);
  default: return sl_submission_wait_finished(A_SUBMISSION, limit);
  }
}

// One call. At most three are inside each other.
static void call(void) {
  if (ending || depth > 3) {
    return;
  }
  depth++;
  uint64_t which = any(depth > 1 ? 15 : 20);
  sl_result result = which < 7 ? make() : which < 15 ? use() : wait_a_little();
  depth--;
  bool known = strcmp(sl_result_name(result), "unknown") != 0 && result != SL_ERROR_INTERNAL;
  if (!known || (result != SL_SUCCESS && *sl_last_error() == 0)) {
    CHECK("random", !"the result is one of the header, no defect, and has a text");
    return;
  }
  results[-result]++;
  calls++;
}

static bool goes_on(uint64_t own) {
  return seconds ? (uint64_t)(time(NULL) - begin) < length : own < length;
}

static void *run(void *unused) {
  for (uint64_t own = 1; goes_on(own); own++) {
    call();
    // So that queues do not get long.
    if (own % 4096 == 0) {
      for (int i = 0; i < PLACES; i++) {
        end(TIMELINE, handles[TIMELINE][i]);
        end(QUEUE, handles[QUEUE][i]);
      }
    }
  }
  return unused;
}

int main(int argc, char **argv) {
  seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)getpid();
  const char *how_long = argc > 2 ? argv[2] : "20000";
  seconds = strchr(how_long, 's') != NULL;
  length = strtoull(how_long, NULL, 0);
  int count = argc > 3 ? atoi(argv[3]) : 4;
  begin = time(NULL);
  // What hangs must fail.
  alarm((unsigned)(seconds ? length : 0) + 600);
  fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
  pthread_t running[64];
  for (int i = 0; i < count && i < 64; i++) {
    pthread_create(&running[i], NULL, run, NULL);
  }
  for (int i = 0; i < count && i < 64; i++) {
    pthread_join(running[i], NULL);
  }
  ending = true;
  // What was held waits for what never comes now, and is skipped. The last calls of callbacks may
  // have made more handles.
  for (int i = 0; i < 60000 && (i == 0 || freed < made); i++) {
    for (int kind = 0; kind < KINDS; kind++) {
      for (int place = 0; place < PLACES; place++) {
        end((enum kind)kind, handles[kind][place]);
      }
    }
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  printf("%lu calls of %d threads and of callbacks, %lu data made and %lu freed\n", calls, count, made,
         freed);
  for (int i = 0; i < 128; i++) {
    if (results[i] != 0) {
      printf("%s %lu\n", sl_result_name(-i), results[i]);
    }
  }
  CHECK("Q5", freed == made);
  CHECK("random", results[0] > calls / 20);
  return done();
}
