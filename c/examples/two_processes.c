// Two processes share memory and two timelines: one process writes frames, the other reads them.
//
// Usage: two_processes [--kill] [FRAMES]. With --kill the producer dies in the middle of a frame.
// The consumer's waits for it end with an error, and what was submitted behind them is skipped.

#include "must.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 4096u // of a frame
#define SLOTS 3u    // frames in flight

static const uint64_t LIMIT = 60000000000; // in nanoseconds

// A frame in the shared memory, as the callbacks get it.
typedef struct {
  uint32_t number;
  uint32_t dies; // the frame in whose middle the producer dies, or 0
  _Atomic uint32_t *words;
  uint32_t right;
} frame;

static uint32_t word(uint32_t number, uint32_t index) { return number * 0x9e3779b9u ^ index; }

// What both processes have.
typedef struct {
  sl_device device;
  sl_queue queue;
  sl_endpoint endpoint;
  sl_timeline written, read;
  sl_words words;
  frame *frames;
} side;

static side open_side(int socket, bool produces, uint32_t count, uint32_t dies) {
  side own;
  uint64_t bytes = 4 * WORDS * SLOTS;
  MUST(sl_device_open_host(&own.device));
  MUST(sl_queue_open(own.device, SL_QUEUE_COMPUTE, produces ? "writes" : "reads", &own.queue));
  MUST(sl_endpoint_open(socket, produces ? "consumer" : "producer", LIMIT, &own.endpoint));
  // Both processes make the same calls in the same order. One of them signals each timeline.
  MUST(sl_endpoint_timeline(own.endpoint, "written", own.device,
                            produces ? SL_ACCESS_SIGNAL : SL_ACCESS_WAIT, LIMIT, &own.written));
  MUST(sl_endpoint_timeline(own.endpoint, "read", own.device,
                            produces ? SL_ACCESS_WAIT : SL_ACCESS_BOTH, LIMIT, &own.read));
  if (produces) {
    MUST(sl_words_make(bytes, &own.words));
    MUST(sl_endpoint_send_words(own.endpoint, "frames", own.words, LIMIT));
  } else {
    MUST(sl_endpoint_receive_words(own.endpoint, "frames", bytes, LIMIT, &own.words));
  }
  void *memory;
  MUST(sl_words_get(own.words, &memory, &bytes));
  own.frames = calloc(count + 1, sizeof *own.frames);
  if (own.frames == NULL) {
    abort();
  }
  for (uint32_t n = 1; n <= count; n++) {
    _Atomic uint32_t *words = memory;
    own.frames[n] = (frame){n, dies, words + n % SLOTS * WORDS, 0};
  }
  return own;
}

static void close_side(side *own) {
  MUST(sl_queue_idle(own->queue, LIMIT));
  MUST(sl_timeline_free(own->written));
  MUST(sl_timeline_free(own->read));
  MUST(sl_words_free(own->words));
  MUST(sl_endpoint_free(own->endpoint));
  MUST(sl_queue_free(own->queue));
  MUST(sl_device_free(own->device));
  free(own->frames);
}

// On the producer's queue.
static int32_t write_frame(void *data) {
  frame *own = data;
  for (uint32_t i = 0; i < WORDS; i++) {
    if (own->number == own->dies && i == WORDS / 2) {
      raise(SIGKILL);
    }
    atomic_store_explicit(&own->words[i], word(own->number, i), memory_order_relaxed);
  }
  return 0;
}

// Submits the work of frame n.
static void submit(side *own, sl_point wait, sl_work work, uint32_t n, sl_point signal) {
  sl_submit_info info = {.size = sizeof info,
                         .waits = &wait,
                         .wait_count = 1,
                         .signals = &signal,
                         .signal_count = 1,
                         .host_work = work,
                         .data = &own->frames[n]};
  MUST(sl_queue_submit(own->queue, &info, NULL));
}

static int produce(int socket, uint32_t count, uint32_t dies) {
  side own = open_side(socket, true, count, dies);
  for (uint32_t n = 1; n <= count; n++) {
    // The slot is free once the other process has read what was in it.
    sl_point free_again = {own.read, n > SLOTS ? n - SLOTS : 0}, written = {own.written, n};
    submit(&own, free_again, write_frame, n, written);
  }
  sl_point all = {own.read, count};
  MUST(sl_point_wait(all, LIMIT));
  close_side(&own);
  return 0;
}

// On the consumer's queue.
static int32_t read_frame(void *data) {
  frame *own = data;
  for (uint32_t i = 0; i < WORDS; i++) {
    uint32_t seen = atomic_load_explicit(&own->words[i], memory_order_relaxed);
    own->right += seen == word(own->number, i);
  }
  return 0;
}

// Returns whether everything is as it should be.
static bool consume(int socket, uint32_t count, uint32_t dies) {
  side own = open_side(socket, false, count, dies);
  // All frames are submitted at once. Each is held until the other process has written it.
  for (uint32_t n = 1; n <= count; n++) {
    sl_point written = {own.written, n}, read = {own.read, n};
    submit(&own, written, read_frame, n, read);
  }
  sl_point last = {own.read, count};
  sl_result result = sl_point_wait(last, LIMIT);
  if (result != SL_SUCCESS) {
    printf("%s: %s\n", sl_result_name(result), sl_last_error());
  }
  MUST(sl_queue_idle(own.queue, LIMIT)); // the queue goes on
  uint32_t right = 0, skipped = 0;
  for (uint32_t n = 1; n <= count; n++) {
    right += own.frames[n].right == WORDS;
    skipped += own.frames[n].right == 0;
  }
  printf("%u of %u frames are right, and %u reads were skipped\n", right, count, skipped);
  if (dies == 0) {
    close_side(&own);
    return result == SL_SUCCESS && right == count;
  }
  bool lost = sl_endpoint_check(own.endpoint) == SL_ERROR_PEER_LOST;
  close_side(&own);
  // A frame is right or skipped, and never half. The producer has waited for the reads of all but
  // the last frames. Signals that it has not published yet are lost with it.
  return lost && result == SL_ERROR_FAILED && right < dies && right + SLOTS >= dies &&
         right + skipped == count;
}

int main(int argc, char **argv) {
  uint32_t count = 300;
  bool kills = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--kill") == 0) {
      kills = true;
    } else {
      count = (uint32_t)strtoul(argv[i], NULL, 10);
    }
  }
  uint32_t dies = kills ? count / 2 + 1 : 0;
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) {
    perror("socketpair");
    return 1;
  }
  // The child may use the library, because the parent has not used it yet.
  pid_t producer = fork();
  if (producer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(sockets[0]);
    return produce(sockets[1], count, dies);
  }
  close(sockets[1]);
  bool right = consume(sockets[0], count, dies);
  int status = 0;
  waitpid(producer, &status, 0);
  bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  return right && (kills ? died : status == 0) ? 0 : 1;
}
