#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "dear/base/vocabulary/ids.h"

namespace dear::autograd {

// Counts the gradients that have arrived since the last step, and so knows which layers can be sent.
// Parameters are given by their index. For the program's thread.
//
// The largest number of gradients that a parameter got in one iteration is the number to wait for in the next
// ones. A layer is complete, and sent, when all its parameters have got that many.
class GradientArrivals {
 public:
  explicit GradientArrivals(std::size_t parameters = 0)
      : arrivals_(parameters), expected_(parameters), used_(parameters) {}
  // Is for other parameters, and knows what `before` knows of those that were there: `was[i]` is the
  // index that parameter i had.
  GradientArrivals(const GradientArrivals& before, const std::vector<std::optional<std::size_t>>& was);
  // Sets the layer of each parameter, numbered from 0, before the first iteration ends.
  void set_layers(std::vector<LayerId> layer_of);

  // Counts a gradient of the first iteration, where nothing is sent. The count begins anew unless `again`.
  void count(std::size_t parameter, bool again) {
    arrivals_[parameter] = again ? arrivals_[parameter] + 1 : 1;
  }
  // Every gradient is told to arrived(); in later iterations those to be counted are told to counted(), which
  // returns what is complete with them.
  void arrived(std::size_t parameter);
  enum class Complete { nothing, parameter, layer };
  [[nodiscard]] Complete counted(std::size_t parameter);

  // Whether the layer of the parameter was sent; then no gradient of it may arrive.
  [[nodiscard]] bool sent(std::size_t parameter) const { return missing_[layer_of_[parameter]] == 0; }
  [[nodiscard]] bool layer_sent(LayerId layer) const { return missing_[layer] == 0; }
  [[nodiscard]] bool nothing_sent() const { return missing_ == layer_sizes_; }
  // Keeps, until the iteration ends, that a gradient arrived after its layer was sent.
  void refuse(std::size_t parameter) { late_ = parameter; }
  [[nodiscard]] std::optional<std::size_t> late() const { return late_; }

  [[nodiscard]] bool any() const { return last_.has_value(); }
  // Whether every gradient so far was deferred, so that no rank that makes the same calls has sent anything.
  [[nodiscard]] bool all_deferred() const;
  [[nodiscard]] int arrivals(std::size_t parameter) const { return arrivals_[parameter]; }
  [[nodiscard]] int expected(std::size_t parameter) const { return expected_[parameter]; }
  [[nodiscard]] bool used(std::size_t parameter) const { return used_[parameter]; }
  void set_used(std::size_t parameter, bool used) { used_[parameter] = used; }
  [[nodiscard]] LayerId layers() const { return static_cast<LayerId>(missing_.size()); }

  // [Note: dropped gradients]: asked at the first gradient of a pass, that of parameter `but`. Whether every
  // gradient that arrived before is gone, as `gone` says of each.
  [[nodiscard]] bool were_dropped(std::size_t but, const std::function<bool(std::size_t)>& gone) const;

  void end_iteration();  // by step(): what arrived is what to wait for
  void forget();         // as if no gradient had arrived
  void all_sent();       // every layer was sent, whatever arrived

  void defer() { ++deferrals_; }  // no_sync(): gradients arrive and are not counted
  void resume() { --deferrals_; }
  [[nodiscard]] bool deferred() const { return deferrals_ > 0; }

 private:
  std::vector<int> arrivals_, expected_;  // by parameter: in this iteration, and at most in any before
  std::vector<bool> used_;                // by parameter: a gradient arrived since the last step
  std::vector<LayerId> layer_of_;
  std::vector<int> missing_, layer_sizes_;  // by layer: parameters that have not got all; all
  std::optional<std::size_t> last_;         // parameter whose gradient arrived
  std::optional<std::size_t> late_;
  int deferrals_ = 0;
};

}  // namespace dear::autograd
