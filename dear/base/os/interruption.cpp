#include "dear/base/os/interruption.h"

#include <atomic>

namespace dear::os {
namespace {

std::atomic<void (*)()> interruption_check{nullptr};

}  // namespace

void set_interruption_check(void (*check)()) { interruption_check.store(check); }

void check_interruption() {
  if (auto* const check = interruption_check.load()) check();
}

}  // namespace dear::os
