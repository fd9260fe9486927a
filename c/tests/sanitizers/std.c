// What the thread sanitizer does not see, because Rust's standard library is not instrumented.
//
// The linker calls these functions in place of those of std (--wrap). `run` defines their names.
// The quick path of a lock is inlined into the library, and is seen there.

#include <stdbool.h>
#include <stdint.h>

#define JOIN_NAMES(first, second) first##second
#define JOIN(first, second) JOIN_NAMES(first, second)
#define REAL(name) JOIN(__real_, name)
#define WRAP(name) JOIN(__wrap_, name)

void __tsan_acquire(void *address);
void __tsan_release(void *address);

// Mutex and RwLock, if the lock is not free.
void REAL(MUTEX_LOCK)(void *lock);
void WRAP(MUTEX_LOCK)(void *lock) {
  REAL(MUTEX_LOCK)(lock);
  __tsan_acquire(lock);
}

void REAL(RWLOCK_READ)(void *lock);
void WRAP(RWLOCK_READ)(void *lock) {
  REAL(RWLOCK_READ)(lock);
  __tsan_acquire(lock);
}

void REAL(RWLOCK_WRITE)(void *lock);
void WRAP(RWLOCK_WRITE)(void *lock) {
  REAL(RWLOCK_WRITE)(lock);
  __tsan_acquire(lock);
}

// A Condvar unlocks the mutex, and locks it again.
void REAL(CONDVAR_WAIT)(void *condvar, void *lock);
void WRAP(CONDVAR_WAIT)(void *condvar, void *lock) {
  __tsan_release(lock);
  REAL(CONDVAR_WAIT)(condvar, lock);
  __tsan_acquire(lock);
}

bool REAL(CONDVAR_WAIT_TIMEOUT)(void *condvar, void *lock, uint64_t seconds, uint32_t nanoseconds);
bool WRAP(CONDVAR_WAIT_TIMEOUT)(void *condvar, void *lock, uint64_t seconds, uint32_t nanoseconds) {
  __tsan_release(lock);
  bool in_time = REAL(CONDVAR_WAIT_TIMEOUT)(condvar, lock, seconds, nanoseconds);
  __tsan_acquire(lock);
  return in_time;
}

// The last owner of an Arc passes a fence, which the sanitizer does not know. An instrumented std
// acquires the counter in its place.
uint64_t REAL(__tsan_atomic64_fetch_sub)(volatile uint64_t *counter, uint64_t value, int order);
uint64_t WRAP(__tsan_atomic64_fetch_sub)(volatile uint64_t *counter, uint64_t value, int order) {
  return REAL(__tsan_atomic64_fetch_sub)(counter, value,
                                         order == __ATOMIC_RELEASE ? __ATOMIC_ACQ_REL : order);
}

// A Once runs the function and says so. The function is a pointer and its table.
typedef void once_function(void *data, void *state);
typedef struct {
  void *once;
  void *data;
  void **table;
} once_call;

void REAL(ONCE_CALL)(void *once, bool ignores_poison, void *data, void **table);

static void once_run(void *call, void *state) {
  once_call *own = call;
  // Of a table, the function FnMut::call_mut is behind drop, size, alignment and FnOnce::call_once.
  ((once_function *)own->table[4])(own->data, state);
  __tsan_release(own->once);
}

void WRAP(ONCE_CALL)(void *once, bool ignores_poison, void *data, void **table) {
  once_call own = {once, data, table};
  void *wrapped[5] = {0, (void *)sizeof own, (void *)_Alignof(once_call), (void *)once_run,
                      (void *)once_run};
  REAL(ONCE_CALL)(once, ignores_poison, &own, wrapped);
  __tsan_acquire(once);
}
