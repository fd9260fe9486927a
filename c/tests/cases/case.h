// What all cases share. A case is named by the rule of docs/contract.md that it shows, or by a word.

#include "syncline.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int failures = 0;

static inline bool check(bool holds, const char *rule, const char *what, int line) {
  // No text names an item of Rust, which a reader of C does not know.
  holds = holds && strstr(sl_last_error(), "::") == NULL;
  printf("%s %s: %s (line %d) %s\n", holds ? "ok    " : "FAILED", rule, what, line,
         holds ? "" : sl_last_error());
  failures += holds ? 0 : 1;
  return holds;
}
#define CHECK(rule, holds) check((holds), rule, #holds, __LINE__)

#define SECOND ((uint64_t)1000000000)
#define MILLISECOND (SECOND / 1000)
// Longer than anything takes on a busy machine.
#ifndef LONG
#define LONG (60 * SECOND)
#endif

static inline sl_point at(sl_timeline timeline, uint64_t value) {
  sl_point point = {timeline, value};
  return point;
}

// A submission. The other arguments are fields of an sl_submit_info.
#define SUBMIT(queue, submission, ...)                                                             \
  sl_queue_submit(queue, &(sl_submit_info){.size = sizeof(sl_submit_info), __VA_ARGS__}, submission)
#define WAIT(point) .waits = &(point), .wait_count = 1
#define SIGNAL(point) .signals = &(point), .signal_count = 1

// Data of a callback: how often it was called and freed, and what it returns.
typedef struct {
  atomic_int called;
  atomic_int freed;
  int32_t returns;
} counts;

static inline void free_counts(void *data) { ((counts *)data)->freed++; }

// Waits until the data was freed, which a thread of the library may do.
static inline bool freed_once(counts *data) {
  for (uint64_t i = 0; i < LONG / MILLISECOND && data->freed == 0; i++) {
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  return data->freed == 1;
}

static inline bool says(const char *part) { return strstr(sl_last_error(), part) != NULL; }

#ifdef SANITIZED
#include <dirent.h>

// Waits until the threads of the library have ended. What a thread that ends has in its hands is
// no leak, but the leak sanitizer may call it one. SANITIZED is the number of threads that stay.
static inline void wait_for_threads(void) {
  for (uint64_t i = 0; i < LONG / MILLISECOND; i++) {
    int threads = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
      threads += task->d_name[0] != '.';
    }
    closedir(tasks);
    if (threads == SANITIZED) {
      return;
    }
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  CHECK("threads", !"the threads of the library end");
}
#endif

static inline int done(void) {
#ifdef SANITIZED
  wait_for_threads();
#endif
  printf("%d failed\n", failures);
  return failures ? 1 : 0;
}
