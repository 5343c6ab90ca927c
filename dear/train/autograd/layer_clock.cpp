#include "dear/train/autograd/layer_clock.h"

#include <utility>

#include "dear/base/vocabulary/spread.h"

namespace dear::autograd {

void LayerClock::forward_ended(double at_seconds) {
  if (running_) spans_.push_back({false, *running_, iteration_, running_since_, at_seconds});
  running_.reset();
}

void LayerClock::forward_began(LayerId layer, double at_seconds) {
  forward_ended(at_seconds);
  running_ = layer;
  running_since_ = at_seconds;
  forward_seen_ = true;
}

void LayerClock::backward_began(double at_seconds) {
  forward_ended(at_seconds);
  backward_mark_ = at_seconds;
}

void LayerClock::backward_ended() { backward_mark_.reset(); }

void LayerClock::gradients_there(LayerId layer, double at_seconds) {
  spans_.push_back({true, layer, iteration_, backward_mark_.value_or(at_seconds), at_seconds});
  backward_mark_ = at_seconds;
}

void LayerClock::next_iteration(double at_seconds) {
  forward_ended(at_seconds);
  backward_mark_.reset();
  forward_seen_ = false;
  ++iteration_;
}

void LayerClock::in_seconds(const std::function<double(double from, double to)>& length) {
  for (LayerSpan& span : spans_) {
    span.end_seconds = length(span.begin_seconds, span.end_seconds);
    span.begin_seconds = 0;
  }
}

double median_of(const ByIteration& values) {
  std::vector<double> all;
  for (const auto& [iteration, seconds] : values) all.push_back(seconds);
  return spread_of(std::move(all)).median;
}

std::map<LayerId, double> share_of_pass(const std::map<LayerId, ByIteration>& seconds) {
  ByIteration passes;
  std::map<LayerId, double> shares;
  double sum = 0;
  for (const auto& [layer, by_iteration] : seconds) {
    for (const auto& [iteration, value] : by_iteration) passes[iteration] += value;
    sum += shares[layer] = median_of(by_iteration);
  }
  if (sum > 0) {
    for (auto& [layer, share] : shares) share *= median_of(passes) / sum;
  }
  return shares;
}

}  // namespace dear::autograd
