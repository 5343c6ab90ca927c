// Updates that the program's optimiser makes itself.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "dear/comm/agreement/control_plane.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/data_parallel_impl.h"
#include "dear/train/model/buffer_exchange.h"

namespace dear {

// One under which a program that reads a gradient after the backward pass finds the mean; updates in the
// backward pass are none of it.
void DataParallel::Impl::choose_policy() {
  if (!update_rules_.by_program()) return;
  updates_in_backward_ = false;
  options_.policy = "wfbp";
}

// [Note: gradients of the first iteration] Nothing is sent before the first step(), which makes the buckets.
// A program that changes gradients before it, or whose optimiser has a method beside step(), must find means
// there, too: so each backward pass of the first iteration ends with an exchange of its own. The means of
// equal gradients that the step then makes are these.
bool DataParallel::Impl::averages_first_gradients() const {
  return update_rules_.by_program() && group_.size() > 1 && !engine_ && !options_.compression &&
         !attendance_.joined() && !watching_.looks_at_gradients();
}

void DataParallel::Impl::average_first_gradients() {
  if (!averages_first_gradients()) return;
  const autograd::Unobserved unobserved;
  std::vector<std::uint8_t> mine;
  for (const train::TrainedParameter& one : scanned_.trained) {
    const torch::Tensor& gradient = one.tensor.grad();
    mine.push_back(!gradient.defined() ? 0 : gradient.layout() != torch::kStrided ? 2 : 1);
  }
  blocking([&] {
    or_fail([&] {
      const auto all = agreement::all_gather_values(group_, agreement::Subject::layer_order, mine);
      std::vector<torch::Tensor> gradients;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        std::uint8_t most = 0;
        for (const auto& theirs : all) most = std::max(most, theirs.at(i));
        if (most != 1) continue;  // of no rank, or sparse
        torch::Tensor& gradient = scanned_.trained[i].tensor.mutable_grad();
        if (!gradient.defined()) gradient = torch::zeros_like(scanned_.trained[i].tensor.detach());
        weigh(i);
        gradients.push_back(gradient);
      }
      model::BufferExchange(group_, std::move(gradients), BufferSync::averaged).at_synchronize(0);
    });
  });
  whole_first_gradients_ = true;
}

void DataParallel::Impl::update_by_program() {
  on_streams() ? engine_->streams()->await_all() : wait_for_all();
  engine_->give_gradients_to_program();
  optimizer_->step();
  engine_->take_gradients_back();
}

}  // namespace dear
