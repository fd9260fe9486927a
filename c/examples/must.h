// Ends an example with the whole text of an error.

#ifndef MUST_H
#define MUST_H

#include <stdio.h>
#include <stdlib.h>
#include <syncline.h>

static inline void must(sl_result result, const char *call) {
  if (result != SL_SUCCESS) {
    fprintf(stderr, "%s: %s\n%s\n", call, sl_result_name(result), sl_last_error());
    exit(1);
  }
}
#define MUST(call) must((call), #call)

#endif
