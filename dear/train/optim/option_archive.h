#pragma once

#include <string>

#include <torch/serialize/archive.h>

#include "dear/train/optim/tensor_norm_optimizer.h"

namespace dear::optim {

// Options of a parameter group in an archive of libtorch, by name.
class OptionWriter {
 public:
  explicit OptionWriter(torch::serialize::OutputArchive& archive) : archive_(archive) {}
  template <typename Value>
  OptionWriter& add(const std::string& name, Value value) {
    archive_.write(name, c10::IValue(value));
    return *this;
  }
  OptionWriter& add(WeightDecay decay) { return add("decoupled", decay == WeightDecay::decoupled); }

 private:
  torch::serialize::OutputArchive& archive_;
};

class OptionReader {
 public:
  explicit OptionReader(torch::serialize::InputArchive& archive) : archive_(archive) {}
  [[nodiscard]] double number(const std::string& name) const { return value(name).toDouble(); }
  [[nodiscard]] bool flag(const std::string& name) const { return value(name).toBool(); }
  [[nodiscard]] WeightDecay decay() const {
    return flag("decoupled") ? WeightDecay::decoupled : WeightDecay::scaled;
  }

 private:
  [[nodiscard]] c10::IValue value(const std::string& name) const {
    c10::IValue value;
    archive_.read(name, value);
    return value;
  }
  torch::serialize::InputArchive& archive_;
};

}  // namespace dear::optim
