// Cases of two processes, on the devices of the host.

#include "case.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAMES 5


static sl_device host(void) {
  sl_device device = {0};
  CHECK("D1", sl_device_open_host(&device) == SL_SUCCESS);
  return device;
}

// The child paints frames, and the parent takes them.
static int paint(const char *path) {
  sl_device device = host();
  sl_endpoint parent;
  sl_timeline ready, taken;
  sl_words words;
  void *pointer = NULL;
  uint64_t bytes = 0;
  sl_result connected = SL_ERROR_DRIVER;
  // The parent may not have bound the path yet.
  for (int i = 0; i < 60000 && connected == SL_ERROR_DRIVER; i++) {
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
    connected = sl_endpoint_connect(path, "parent", LONG, &parent);
  }
  CHECK("P1", connected == SL_SUCCESS);
  uint32_t process = 0;
  CHECK("P1", sl_endpoint_peer(parent, &process) == SL_SUCCESS && process == (uint32_t)getppid());
  CHECK("P1", sl_endpoint_timeline(parent, "ready", device, SL_ACCESS_SIGNAL, LONG, &ready) ==
                  SL_SUCCESS);
  CHECK("P1", sl_endpoint_timeline(parent, "taken", device, SL_ACCESS_WAIT, LONG, &taken) ==
                  SL_SUCCESS);
  CHECK("X8", sl_words_make(4, &words) == SL_SUCCESS);
  CHECK("X8", sl_words_get(words, &pointer, &bytes) == SL_SUCCESS && bytes == 4);
  CHECK("X8", sl_endpoint_send_words(parent, "words", words, LONG) == SL_SUCCESS);
  // X7: it signals, and may not wait. The other one may not be signalled.
  uint64_t value = 0;
  CHECK("X7", sl_point_wait(at(ready, 1), 1) == SL_ERROR_UNSUPPORTED && says("SL_ACCESS_BOTH"));
  CHECK("X7", sl_timeline_value(ready, &value) == SL_ERROR_UNSUPPORTED);
  CHECK("X7", sl_timeline_signal(taken, 1) == SL_ERROR_UNSUPPORTED && says("another process"));
  sl_queue queue;
  sl_point signal = at(taken, 1);
  CHECK("X7", sl_queue_open(device, SL_QUEUE_COMPUTE, NULL, &queue) == SL_SUCCESS);
  CHECK("X7", SUBMIT(queue, NULL, SIGNAL(signal)) == SL_ERROR_UNSUPPORTED);
  VkSemaphore semaphore;
  CHECK("X7", sl_timeline_vk_semaphore(ready, device, &semaphore) == SL_ERROR_UNSUPPORTED);
  for (uint32_t frame = 1; frame <= FRAMES; frame++) {
    CHECK("P1", sl_point_wait(at(taken, frame - 1), LONG) == SL_SUCCESS);
    *(_Atomic uint32_t *)pointer = frame * frame;
    CHECK("P1", sl_timeline_signal(ready, frame) == SL_SUCCESS);
  }
  CHECK("P1", sl_point_wait(at(taken, FRAMES), LONG) == SL_SUCCESS);
  if (failures == 0) {
    raise(SIGKILL); // while the parent waits for one more frame
  }
  return done();
}

static void take(const char *path, pid_t child) {
  sl_device device = host();
  sl_listener listener;
  sl_endpoint endpoint;
  sl_timeline ready, taken;
  sl_words words;
  void *pointer = NULL;
  uint64_t bytes = 0;
  CHECK("P1", sl_listener_bind(NULL, &listener) == SL_ERROR_INVALID_ARGUMENT);
  CHECK("P1", sl_listener_bind(path, &listener) == SL_SUCCESS);
  CHECK("P1", sl_listener_accept(listener, "child", LONG, &endpoint) == SL_SUCCESS);
  CHECK("P1", sl_endpoint_check(endpoint) == SL_SUCCESS);
  CHECK("P1", sl_endpoint_timeline(endpoint, "ready", device, 9, LONG, &ready) ==
                  SL_ERROR_INVALID_ARGUMENT);
  CHECK("P1", sl_endpoint_timeline(endpoint, "ready", device, SL_ACCESS_WAIT, LONG, &ready) ==
                  SL_SUCCESS);
  CHECK("P1", sl_endpoint_timeline(endpoint, "taken", device, SL_ACCESS_BOTH, LONG, &taken) ==
                  SL_SUCCESS);
  CHECK("X8", sl_endpoint_receive_words(endpoint, "words", 4, LONG, &words) == SL_SUCCESS);
  CHECK("X8", sl_words_get(words, &pointer, &bytes) == SL_SUCCESS && bytes == 4);
  for (uint32_t frame = 1; frame <= FRAMES; frame++) {
    CHECK("P1", sl_point_wait(at(ready, frame), LONG) == SL_SUCCESS);
    CHECK("P1", *(_Atomic uint32_t *)pointer == frame * frame);
    CHECK("P1", sl_timeline_signal(taken, frame) == SL_SUCCESS);
  }
  CHECK("X7", sl_point_wait(at(taken, FRAMES), LONG) == SL_SUCCESS);
  // P3: the death of the child ends the wait, and skips what was submitted behind it.
  sl_queue queue;
  sl_timeline shown;
  CHECK("P3", sl_queue_open(device, SL_QUEUE_COMPUTE, "shows", &queue) == SL_SUCCESS);
  CHECK("P3", sl_timeline_make(device, "shown", 0, &shown) == SL_SUCCESS);
  sl_point wait = at(ready, FRAMES + 1), signal = at(shown, 1);
  CHECK("P3", SUBMIT(queue, NULL, WAIT(wait), SIGNAL(signal)) == SL_SUCCESS);
  CHECK("P3", sl_point_wait(wait, LONG) == SL_ERROR_FAILED && says("lost process"));
  CHECK("P3", sl_point_wait(signal, LONG) == SL_ERROR_FAILED && says("lost process"));
  CHECK("P3", sl_endpoint_check(endpoint) == SL_ERROR_PEER_LOST);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK("P3", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  CHECK("free", sl_endpoint_free(endpoint) == SL_SUCCESS && sl_words_free(words) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(ready) == SL_SUCCESS && sl_timeline_free(taken) == SL_SUCCESS);
  CHECK("free", sl_timeline_free(shown) == SL_SUCCESS && sl_queue_free(queue) == SL_SUCCESS);
  CHECK("free", sl_listener_free(listener) == SL_SUCCESS && access(path, F_OK) != 0);
  CHECK("free", sl_device_free(device) == SL_SUCCESS);
}

// A child that connects and then does nothing.
static int stand(int socket) {
  sl_device device = host();
  sl_endpoint parent;
  sl_timeline line;
  CHECK("P1", sl_endpoint_open(socket, NULL, LONG, &parent) == SL_SUCCESS);
  CHECK("P1", sl_endpoint_timeline(parent, "line", device, SL_ACCESS_SIGNAL, LONG, &line) ==
                  SL_SUCCESS);
  if (failures == 0) {
    pause();
  }
  return done();
}

typedef struct {
  sl_listener listener;
  sl_endpoint endpoint;
  sl_result result;
} call;

static void *accept_one(void *data) {
  call *own = data;
  own->result = sl_listener_accept(own->listener, NULL, LONG, &own->endpoint);
  return NULL;
}

static void *receive_one(void *data) {
  call *own = data;
  sl_words words;
  own->result = sl_endpoint_receive_words(own->endpoint, "none", 4, LONG, &words);
  return NULL;
}

// P1: another thread closes the listener, which ends the accept.
static void close_listener(const char *path) {
  call own = {.result = SL_ERROR_INTERNAL};
  pthread_t thread;
  CHECK("P1", sl_listener_bind(path, &own.listener) == SL_SUCCESS);
  pthread_create(&thread, NULL, accept_one, &own);
  struct timespec pause = {0, 20000000};
  nanosleep(&pause, NULL); // so that it waits in most runs
  CHECK("P1", sl_listener_close(own.listener) == SL_SUCCESS);
  pthread_join(thread, NULL);
  CHECK("P1", own.result == SL_ERROR_CANCELLED);
  CHECK("P1", sl_listener_accept(own.listener, NULL, LONG, &own.endpoint) == SL_ERROR_CANCELLED &&
                  says("was closed"));
  CHECK("P1", sl_endpoint_connect(path, NULL, LONG, &own.endpoint) == SL_ERROR_DRIVER);
  CHECK("free", sl_listener_free(own.listener) == SL_SUCCESS && access(path, F_OK) != 0);
}

// P3: a process that lives and does not answer is given up.
static void give_up(pid_t child, int socket) {
  sl_device device = host();
  sl_endpoint endpoint;
  sl_timeline line;
  int pipes[2];
  CHECK("P1", pipe(pipes) == 0);
  CHECK("P1", sl_endpoint_open(pipes[0], NULL, LONG, &endpoint) == SL_ERROR_UNSUPPORTED);
  CHECK("X4", close(pipes[0]) == 0 && close(pipes[1]) == 0);
  CHECK("P1", sl_endpoint_open(socket, "child", LONG, &endpoint) == SL_SUCCESS);
  CHECK("P1", sl_endpoint_timeline(endpoint, "line", device, SL_ACCESS_WAIT, LONG, &line) ==
                  SL_SUCCESS);
  CHECK("P3", sl_point_wait(at(line, 1), SECOND / 100) == SL_ERROR_TIMED_OUT);
  call blocked = {.endpoint = endpoint, .result = SL_ERROR_INTERNAL};
  pthread_t thread;
  pthread_create(&thread, NULL, receive_one, &blocked);
  struct timespec pause = {0, 20000000};
  nanosleep(&pause, NULL); // so that it waits in most runs
  CHECK("P3", sl_endpoint_give_up(endpoint) == SL_SUCCESS);
  pthread_join(thread, NULL);
  CHECK("P3", blocked.result == SL_ERROR_PEER_LOST);
  CHECK("P3", sl_point_wait(at(line, 1), LONG) == SL_ERROR_FAILED && says("given up"));
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  CHECK("free", sl_endpoint_free(endpoint) == SL_SUCCESS && sl_timeline_free(line) == SL_SUCCESS);
  CHECK("free", sl_device_free(device) == SL_SUCCESS);
}

int main(void) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/syncline-c-%d", (int)getpid());
  // The library is not used yet, so the children may use it.
  int sockets[2];
  CHECK("P1", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
  fflush(stdout);
  pid_t painter = fork();
  if (painter == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return paint(path);
  }
  pid_t standing = fork();
  if (standing == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return stand(sockets[1]);
  }
  close(sockets[1]);
  take(path, painter);
  give_up(standing, sockets[0]);
  close_listener(path);
  return done();
}
