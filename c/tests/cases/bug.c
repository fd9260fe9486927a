// Bugs of the border, planted before the library by LD_PRELOAD. BUG names the one.
//
// Each must make a case fail. So the cases would find it in the library.

#define _GNU_SOURCE

#include "syncline.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool planted(const char *name) {
  const char *bug = getenv("BUG");
  return bug != NULL && strcmp(bug, name) == 0;
}

static void *next(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found == NULL) {
    fprintf(stderr, "no function %s\n", name);
    abort();
  }
  return found;
}

// A code that is lost.
sl_result sl_timeline_signal(sl_timeline timeline, uint64_t value) {
  sl_result (*original)(sl_timeline, uint64_t);
  *(void **)&original = next(__func__);
  sl_result result = original(timeline, value);
  return planted("code-lost") ? SL_SUCCESS : result;
}

// A time limit in another unit.
sl_result sl_point_wait(sl_point point, uint64_t nanoseconds) {
  sl_result (*original)(sl_point, uint64_t);
  *(void **)&original = next(__func__);
  return original(point, planted("unit") ? nanoseconds / 1000 : nanoseconds);
}

// A text of another call.
const char *sl_last_error(void) {
  const char *(*original)(void);
  *(void **)&original = next(__func__);
  return planted("text-lost") ? "" : original();
}

// A reference too few: both owners have one handle.
sl_result sl_timeline_clone(sl_timeline timeline, sl_timeline *clone) {
  sl_result (*original)(sl_timeline, sl_timeline *);
  *(void **)&original = next(__func__);
  if (planted("reference")) {
    *clone = timeline;
    return SL_SUCCESS;
  }
  return original(timeline, clone);
}

// A reference too many: the last handle never ends.
sl_result sl_timeline_free(sl_timeline timeline) {
  sl_result (*original)(sl_timeline);
  *(void **)&original = next(__func__);
  sl_result (*copy)(sl_timeline, sl_timeline *);
  *(void **)&copy = next("sl_timeline_clone");
  sl_timeline leaked;
  if (planted("leak") && timeline.id != 0) {
    copy(timeline, &leaked);
  }
  return original(timeline);
}

// A free function that is called twice, never, or before the work.
typedef struct {
  sl_work work;
  void *data;
  sl_drop free;
} call;

static int32_t run(void *data) { return ((call *)data)->work(((call *)data)->data); }

static void end(void *data) {
  call *own = data;
  if (own->free != NULL && !planted("never-freed") && !planted("freed-early")) {
    own->free(own->data);
    if (planted("freed-twice")) {
      own->free(own->data);
    }
  }
  free(own);
}

sl_result sl_queue_submit(sl_queue queue, const sl_submit_info *info, sl_submission *submission) {
  sl_result (*original)(sl_queue, const sl_submit_info *, sl_submission *);
  *(void **)&original = next(__func__);
  if (info == NULL || info->host_work == NULL || info->size != sizeof *info) {
    return original(queue, info, submission);
  }
  call *own = malloc(sizeof *own);
  *own = (call){info->host_work, info->data, info->free};
  if (planted("freed-early") && info->free != NULL) {
    info->free(info->data);
  }
  sl_submit_info changed = *info;
  changed.host_work = run;
  changed.data = own;
  changed.free = end;
  sl_result result = original(queue, &changed, submission);
  if (planted("called-twice") && result == SL_SUCCESS) {
    info->host_work(info->data);
  }
  return result;
}

// A structure that is written without its size.
sl_result sl_device_get_info(sl_device device, sl_device_info *info) {
  sl_result (*original)(sl_device, sl_device_info *);
  *(void **)&original = next(__func__);
  if (planted("size")) {
    info->size = sizeof *info;
  }
  return original(device, info);
}

// A descriptor that is closed after an error.
sl_result sl_point_notify(sl_point point, int32_t eventfd, sl_notification *notification) {
  sl_result (*original)(sl_point, int32_t, sl_notification *);
  *(void **)&original = next(__func__);
  sl_result result = original(point, eventfd, notification);
  if (planted("descriptor") && result != SL_SUCCESS) {
    extern int close(int);
    close(eventfd);
  }
  return result;
}
