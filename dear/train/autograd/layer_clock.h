#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "dear/base/vocabulary/ids.h"

namespace dear::autograd {

// Turns what the observer and the gradient hooks see of a training program into spans of layers. A layer's
// forward lasts from the first operator that reads a parameter of it to the first that reads one of another
// layer, or to the start of the backward pass; its backward from the end of the layer's before to its last
// gradient.
class LayerClock {
 public:
  struct LayerSpan {
    bool backward;  // else forward
    LayerId layer;
    std::int64_t iteration;
    double begin_seconds, end_seconds;
  };

  void forward_ended(double at_seconds);  // of the layer that runs, if one does
  void forward_began(LayerId layer, double at_seconds);
  void backward_began(double at_seconds);  // a node of the backward graph runs
  void backward_ended();                   // the whole pass
  void gradients_there(LayerId layer, double at_seconds);
  void next_iteration(double at_seconds);

  [[nodiscard]] bool in_backward() const { return backward_mark_.has_value(); }
  [[nodiscard]] bool forward_seen() const { return forward_seen_; }  // in this iteration
  [[nodiscard]] std::optional<LayerId> running() const { return running_; }
  [[nodiscard]] const std::vector<LayerSpan>& spans() const { return spans_; }
  // Where the times that were given are marks of another clock: makes seconds of all spans, by the length
  // from one mark to another.
  void in_seconds(const std::function<double(double from, double to)>& length);
  void forget_spans() { spans_.clear(); }
  void forget_layers() { spans_.clear(), running_.reset(); }  // they are numbered otherwise from now on

 private:
  std::vector<LayerSpan> spans_;
  std::optional<LayerId> running_;
  double running_since_ = 0;
  std::optional<double> backward_mark_;
  bool forward_seen_ = false;
  std::int64_t iteration_ = 0;
};

using ByIteration = std::map<std::int64_t, double>;  // seconds

double median_of(const ByIteration& values);  // 0 of none

// How long each layer is at work in a pass, from what it took in each iteration. The sum is the median of
// whole passes. Medians of layers do not add up to that: a layer that is interrupted in every fourth
// iteration has a median without the interruption, though each pass has its share of them. So they only say
// what part of the pass a layer is.
std::map<LayerId, double> share_of_pass(const std::map<LayerId, ByIteration>& seconds);

}  // namespace dear::autograd
