#include "dear/base/vocabulary/error.h"

// A module for the test of modules.
extern "C" {

int dear_example_double(int value) { return 2 * value; }

// The program has a function of this name, too.
__attribute__((noinline)) int dear_example_common() { return 1; }

int dear_example_call_common() { return dear_example_common(); }

void dear_example_throw() { throw dear::TimeoutError("a module gave up, as it was asked to"); }

}  // extern "C"
