// A file of a program that is built without exceptions.

#include "syncline.hpp"

bool signals_without_exceptions();

bool signals_without_exceptions() {
  syncline::Device device = syncline::Device::open_host();
  syncline::Timeline line = device.timeline("without");
  line.signal(1);
  return line.value() == 1;
}
