#include "dear/train/engine/sparse_buckets.h"

#include "dear/comm/buckets/sparse_gradients.h"
#include "dear/schedule/fusion/set_apart.h"
#include "dear/train/engine/bucket_storage.h"
#include "dear/train/model/model_scan.h"
#include "dear/train/streams/host_copy.h"

namespace dear::train {
namespace {

bool is_worthwhile(const TrainedParameter& parameter, int ranks) {
  return parameter.tensor.dim() > 0 &&
         buckets::SparseBucket::worthwhile(static_cast<std::int64_t>(parameter.tensor.nbytes()),
                                           parameter.tensor.size(0), ranks);
}

}  // namespace

Grouping set_sparse_apart(const Workload& workload, Grouping grouping, const std::vector<std::size_t>& order,
                          const EngineOptions& options, const std::vector<TrainedParameter>& parameters,
                          int ranks) {
  std::vector<bool> apart(order.size());
  bool any = false;
  for (std::size_t i = 0; i < order.size() && !options.sparse.empty(); ++i) {
    const TrainedParameter& parameter = parameters[order[i]];
    if (!options.sparse[order[i]] || ranks == 1) continue;
    if (options.compression) {
      options.sparse_gradients->never(parameter.name, "it travels compressed");
    } else if (!is_worthwhile(parameter, ranks)) {
      options.sparse_gradients->never(parameter.name, "it is small");
    } else {
      any = apart[i] = true;
    }
  }
  return any ? set_apart(workload, grouping, apart) : grouping;
}

std::shared_ptr<buckets::SparseBucket> make_sparse(const BucketStorage& bucket,
                                                   const std::vector<TrainedParameter>& parameters,
                                                   const std::vector<std::size_t>& order,
                                                   const EngineOptions& options, const Group& group,
                                                   streams::BucketStreams* streams) {
  const buckets::TensorPlacement& placement = bucket.layout().placements.front();
  const std::size_t index = order[placement.tensor];
  const TrainedParameter& parameter = parameters[index];
  if (options.sparse.empty() || !options.sparse[index] || options.compression ||
      !is_worthwhile(parameter, group.size()))
    return nullptr;
  const buckets::SparseBucket::Tensor tensor{
      .elements = {placement.offset, placement.offset + placement.elements},
      .rows = parameter.tensor.size(0)};
  View gradients = bucket.flat().gradients;
  std::unique_ptr<streams::FlatHostCopy> copy;
  if (streams != nullptr) {
    gradients.buffer = group.allocate(gradients.count * size_of(gradients.dtype));
    copy = std::make_unique<streams::FlatHostCopy>(bucket.gradients(), gradients, *streams);
  }
  return std::make_shared<buckets::SparseBucket>(
      gradients, tensor, group,
      [gradients = options.sparse_gradients, name = parameter.name, rows = tensor.rows](
          const buckets::SparseBucket::Choice& choice) { gradients->chosen(name, rows, choice); },
      std::move(copy));
}

}  // namespace dear::train
