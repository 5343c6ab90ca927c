#include "dear/train/autograd/gradient_arrivals.h"

#include <algorithm>
#include <utility>

namespace dear::autograd {

GradientArrivals::GradientArrivals(const GradientArrivals& before,
                                   const std::vector<std::optional<std::size_t>>& was)
    : GradientArrivals(was.size()) {
  deferrals_ = before.deferrals_;
  for (std::size_t i = 0; i < was.size(); ++i) {
    if (!was[i]) continue;
    arrivals_[i] = before.arrivals_[*was[i]];
    expected_[i] = before.expected_[*was[i]];
    used_[i] = before.used_[*was[i]];
    if (before.last_ == was[i]) last_ = i;
  }
}

void GradientArrivals::set_layers(std::vector<LayerId> layer_of) {
  layer_of_ = std::move(layer_of);
  layer_sizes_.assign(*std::max_element(layer_of_.begin(), layer_of_.end()) + 1, 0);
  for (const LayerId layer : layer_of_) ++layer_sizes_[layer];
  missing_ = layer_sizes_;
}

void GradientArrivals::arrived(std::size_t parameter) {
  used_[parameter] = true;
  last_ = parameter;
}

GradientArrivals::Complete GradientArrivals::counted(std::size_t parameter) {
  if (++arrivals_[parameter] != expected_[parameter]) return Complete::nothing;
  return --missing_[layer_of_[parameter]] > 0 ? Complete::parameter : Complete::layer;
}

bool GradientArrivals::were_dropped(std::size_t but, const std::function<bool(std::size_t)>& gone) const {
  if (!last_ || !gone(*last_)) return false;
  bool one_of_all = false;
  for (std::size_t i = 0; i < used_.size(); ++i) {
    if (!used_[i]) continue;
    if (!gone(i)) return false;
    one_of_all = one_of_all || i != but || sent(i);
  }
  return one_of_all;
}

bool GradientArrivals::all_deferred() const {
  return nothing_sent() && std::all_of(arrivals_.begin(), arrivals_.end(), [](int n) { return n == 0; });
}

void GradientArrivals::end_iteration() {
  for (std::size_t i = 0; i < expected_.size(); ++i) expected_[i] = std::max(expected_[i], arrivals_[i]);
  forget();
}

void GradientArrivals::all_sent() { std::fill(missing_.begin(), missing_.end(), 0); }

void GradientArrivals::forget() {
  std::fill(arrivals_.begin(), arrivals_.end(), 0);
  std::fill(used_.begin(), used_.end(), false);
  last_.reset();
  late_.reset();
  missing_ = layer_sizes_;
}

}  // namespace dear::autograd
