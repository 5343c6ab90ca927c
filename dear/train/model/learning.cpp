#include "dear/train/model/learning.h"

#include <algorithm>

#include "dear/comm/agreement/control_plane.h"

namespace dear::train {

void Learning::read(std::size_t parameter) {
  const std::lock_guard lock(mutex_);
  if (seen_[parameter]) return;
  seen_[parameter] = true;
  first_uses_.push_back(parameter);
}

std::vector<std::size_t> Learning::first_uses() {
  const std::lock_guard lock(mutex_);
  return first_uses_;
}

bool Learning::same_gradient(std::size_t parameter, const torch::Tensor& gradient) {
  auto& last = gradients_[parameter];
  const bool same = last && last->_unsafe_get_target() == gradient.unsafeGetTensorImpl();
  last = WeakTensor(gradient.getIntrusivePtr());
  if (gradient.is_sparse()) sparse_[parameter] = true;
  return same;
}

Learning::Layers Learning::layers(const Group& group, const std::vector<TrainedParameter>& parameters,
                                  const autograd::GradientArrivals& arrivals) const {
  std::vector<std::uint64_t> mine{0};  // how many are unused, see [Note: unused parameters]; and the order
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (arrivals.arrivals(i) == 0) mine.push_back(i);
  mine.front() = mine.size() - 1;
  for (const std::size_t i : first_uses_)
    if (arrivals.arrivals(i) > 0) mine.push_back(i);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (arrivals.arrivals(i) > 0 && !seen_[i]) mine.push_back(i);
  for (std::size_t i = 0; i < parameters.size(); ++i)  // and which are sparse
    if (sparse_[i]) mine.push_back(i);
  const auto all = agreement::all_gather_values(group, agreement::Subject::layer_order, mine);
  const std::vector<std::uint64_t>& agreed = *std::min_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });

  const auto end_of_order = [&](const auto& said) {
    return said.begin() + 1 + static_cast<std::ptrdiff_t>(parameters.size());
  };
  Layers layers{.order = {agreed.begin() + 1, end_of_order(agreed)},
                .layer_of = std::vector<LayerId>(parameters.size()),
                .sparse = std::vector<bool>(parameters.size())};
  for (const auto& said : all)
    std::for_each(end_of_order(said), said.end(), [&](std::uint64_t i) { layers.sparse[i] = true; });
  const auto is_used = [&](std::size_t place) { return place >= agreed.front(); };
  LayerId layer = 0;
  for (std::size_t n = 0; n < layers.order.size(); ++n) {
    const std::size_t i = layers.order[n];
    const bool begins = n > 0 && (is_used(n) != is_used(n - 1) ||
                                  parameters[i].module != parameters[layers.order[n - 1]].module);
    if (begins) ++layer;
    layers.layer_of[i] = layer;
  }
  return layers;
}

Learning::Layers Learning::with_newcomers(const Layers& before,
                                          const std::vector<std::optional<std::size_t>>& was,
                                          const std::vector<TrainedParameter>& parameters) {
  Layers layers{.order = {},
                .layer_of = std::vector<LayerId>(parameters.size()),
                .sparse = std::vector<bool>(parameters.size())};
  for (std::size_t i = 0; i < was.size(); ++i) layers.sparse[i] = was[i] && before.sparse[*was[i]];
  std::vector<std::optional<std::size_t>> now(before.order.size());  // by index in `before`
  for (std::size_t i = 0; i < was.size(); ++i)
    if (was[i]) now[*was[i]] = i;
  for (const std::size_t old : before.order)
    if (now[old]) layers.order.push_back(*now[old]);
  for (std::size_t i = was.size(); i-- > 0;) {
    if (was[i]) continue;
    layers.order.insert(std::find(layers.order.begin(), layers.order.end(), i + 1), i);
  }
  LayerId layer = 0;
  for (std::size_t n = 0; n < layers.order.size(); ++n) {
    const std::size_t i = layers.order[n];
    if (n > 0) {
      const std::size_t last = layers.order[n - 1];
      const bool stays = was[i].has_value();
      if (stays != was[last].has_value() || parameters[i].module != parameters[last].module ||
          (stays && before.layer_of[*was[i]] != before.layer_of[*was[last]]))
        ++layer;
    }
    layers.layer_of[i] = layer;
  }
  return layers;
}

}  // namespace dear::train
