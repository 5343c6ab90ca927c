// What the first iteration teaches: see [Note: the first step].

#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/collective/exchange.h"
#include "dear/train/data_parallel_impl.h"

namespace dear {

void DataParallel::Impl::learn(const at::Tensor& tensor) {
  const auto found = index_of_.find(tensor.unsafeGetTensorImpl());
  if (found == index_of_.end()) return;
  const std::lock_guard lock(learning_);
  if (seen_[found->second]) return;
  seen_[found->second] = true;
  first_uses_.push_back(found->second);
}

// A gradient that is another tensor than last time replaced one that was dropped.
void DataParallel::Impl::learn_arrival(std::size_t parameter, bool creates_graph) {
  const torch::Tensor& gradient = scanned_.trained[parameter].tensor.grad();
  auto& last = learned_from_[parameter];
  const bool same = last && last->_unsafe_get_target() == gradient.unsafeGetTensorImpl();
  last = WeakTensor(gradient.getIntrusivePtr());  // no other tensor gets its address meanwhile
  if (creates_graph || deferrals_ > 0) return;
  arrivals_[parameter] = same ? arrivals_[parameter] + 1 : 1;
}

void DataParallel::Impl::agree_on_order(std::vector<std::size_t>& order, std::vector<bool>& used) const {
  std::vector<std::size_t> local;
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    if (arrivals_[i] == 0) local.push_back(i);  // see [Note: unused parameters]
  }
  const std::size_t unused = local.size();
  for (const std::size_t i : first_uses_) {
    if (arrivals_[i] > 0) local.push_back(i);
  }
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    if (arrivals_[i] > 0 && !seen_[i]) local.push_back(i);
  }
  std::istringstream text(
      all_gather_text(group_, fmt::format("{} {}", unused, fmt::join(local, " "))).front());
  std::size_t unused_count = 0;
  text >> unused_count;
  for (std::size_t i = 0; text >> i;) {
    used.at(i) = order.size() >= unused_count;
    order.push_back(i);
  }
}

// Neighbours in the order of use that belong to one module are a layer: a module may use parameters of its
// own before and after a child.
void DataParallel::Impl::learn_layers() {
  std::vector<std::size_t> order;
  std::vector<bool> used(scanned_.trained.size());
  or_fail([&] { agree_on_order(order, used); });
  std::vector<LayerId> layer_of(order.size());
  std::vector<int> layer_sizes;
  for (std::size_t n = 0; n < order.size(); ++n) {
    const std::size_t i = order[n];
    const std::size_t before = n > 0 ? order[n - 1] : i;
    if (n == 0 || used[i] != used[before] || scanned_.trained[i].module != scanned_.trained[before].module)
      layer_sizes.push_back(0);
    layer_of[i] = static_cast<LayerId>(layer_sizes.size() - 1);
    ++layer_sizes.back();
  }
  const Workload workload = train::Engine::describe(scanned_.trained, order, layer_of);
  static_cast<void>(fusion_(workload));  // refused here, on every rank, nothing has changed
  order_ = std::move(order);
  layer_of_ = std::move(layer_of);
  layer_sizes_ = std::move(layer_sizes);
}

}  // namespace dear
