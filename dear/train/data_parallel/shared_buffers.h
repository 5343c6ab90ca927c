#pragma once

namespace dear::train {

class Trainer;

// The model's buffers, made the same on all ranks.
class SharedBuffers {
 public:
  explicit SharedBuffers(Trainer& own) : own_(own) {}

  void exchange_buffers();   // of the scan
  bool buffers_travel();     // looks them up
  void take_buffers();       // that were looked up: all ranks together
  void broadcast_buffers();  // DataParallel's

 private:
  Trainer& own_;
};

}  // namespace dear::train
