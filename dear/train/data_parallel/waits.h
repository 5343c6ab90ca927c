#pragma once

#include <functional>

#include "dear/train/engine/engine.h"

namespace dear::train {

class Trainer;

// Who waits for what is on its way: the host for the conductor, and on a device one stream for another.
class Waits {
 public:
  explicit Waits(Trainer& own) : own_(own) {}

  void await_last_step();
  void wait_for_all();  // the host waits, for the device too
  void order_all();     // what the program does next comes after all; the host waits for the group alone
  void wait_for(Engine& engine, const ParametersInBuckets::Storage& place) const;
  void blocking(const std::function<void()>& wait) const;  // see DataParallelOptions::around_wait
  void follow_program();                  // what is sent next waits for what the program has enqueued
  [[nodiscard]] bool nothing_to_await();  // for no operator of any thread
  [[nodiscard]] bool programs_thread() const;

 private:
  void wait_for_steps();

  Trainer& own_;
};

}  // namespace dear::train
