#include "dear/base/error.h"

// A module for the test of modules.
extern "C" {

int dear_example_double(int value) { return 2 * value; }

void dear_example_throw() { throw dear::TimeoutError("a module gave up, as it was asked to"); }

}  // extern "C"
