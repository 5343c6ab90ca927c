#pragma once

#include <functional>
#include <utility>

#include "dear/train/model/model_scan.h"
#include "dear/train/optim/sharded_optimizer.h"

namespace dear::train {

class Trainer;

// What is trained, and when that changes: see [Note: trained anew].
class ModelChanges {
 public:
  explicit ModelChanges(Trainer& own) : own_(own) {}

  // `source` returns the model as it is now; an empty one says that nothing can.
  void set_source(std::function<Model()> source) { source_ = std::move(source); }
  void rebuild(const Model& model);
  // Trains what the program has frozen, unfrozen or given to the optimiser since.
  void follow();
  void begin();                                       // what was scanned is trained from now on
  [[nodiscard]] optim::TensorSet in_buckets() const;  // parameters
  // ConfigError for a parameter of the model as it is that is not trained.
  void require_same_model() const;
  void require_no_join(const char* what) const;  // in whose steps a rank without data could not follow

 private:
  Trainer& own_;
  std::function<Model()> source_;
};

}  // namespace dear::train
