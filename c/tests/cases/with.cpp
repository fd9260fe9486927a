// A file of a program whose other file is built without exceptions.

#include "syncline.hpp"

bool signals_without_exceptions();

int main() {
  if (!signals_without_exceptions()) {
    return 1;
  }
  try {
    syncline::Timeline().signal(1);
  } catch (const syncline::Error &error) {
    return error.code() == SL_ERROR_INVALID_HANDLE ? 0 : 2;
  }
  return 3;
}
