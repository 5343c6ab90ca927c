#include "dear/train/layer_clock.h"

namespace dear::train {

void LayerClock::forward_ended(double at_seconds) {
  if (running_) spans_.push_back({false, *running_, iteration_, running_since_, at_seconds});
  running_.reset();
}

void LayerClock::forward_began(LayerId layer, double at_seconds) {
  forward_ended(at_seconds);
  running_ = layer;
  running_since_ = at_seconds;
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
  ++iteration_;
}

}  // namespace dear::train
