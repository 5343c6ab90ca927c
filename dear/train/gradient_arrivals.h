#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "dear/base/ids.h"

namespace dear::train {

// Which gradients have arrived since the last step, and so which layers can be sent. Parameters go by their
// index. For the program's thread.
//
// The number of gradients that a parameter got in an iteration becomes the number to wait for in the next
// ones, unless it was more before. A layer is complete, and sent, when all its parameters have got as many.
class GradientArrivals {
 public:
  explicit GradientArrivals(std::size_t parameters = 0)
      : arrivals_(parameters), expected_(parameters), used_(parameters) {}
  // Before the first iteration ends: the layer of each parameter, numbered from 0.
  void set_layers(std::vector<LayerId> layer_of);

  // In the first iteration, where nothing is sent: `again` adds to the gradients that were counted, else the
  // count begins anew.
  void count(std::size_t parameter, bool again) {
    arrivals_[parameter] = again ? arrivals_[parameter] + 1 : 1;
  }
  // Every gradient that arrives; and those of later iterations that are to be counted: what they complete.
  void arrived(std::size_t parameter);
  enum class Complete { nothing, parameter, layer };
  [[nodiscard]] Complete counted(std::size_t parameter);

  // The layer of the parameter was sent: no gradient may arrive.
  [[nodiscard]] bool sent(std::size_t parameter) const { return missing_[layer_of_[parameter]] == 0; }
  [[nodiscard]] bool layer_sent(LayerId layer) const { return missing_[layer] == 0; }
  [[nodiscard]] bool nothing_sent() const { return missing_ == layer_sizes_; }
  // A gradient arrived after its layer was sent: kept until the iteration ends.
  void refuse(std::size_t parameter) { late_ = parameter; }
  [[nodiscard]] std::optional<std::size_t> late() const { return late_; }

  [[nodiscard]] bool any() const { return last_.has_value(); }
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

}  // namespace dear::train
