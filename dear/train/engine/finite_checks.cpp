#include "dear/train/engine/finite_checks.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/comm/process_group/torch_types.h"
#include "dear/train/engine/parameters_in_buckets.h"

namespace dear::train {

std::string nonfinite_text(const metrics::NonFinite& found, std::int64_t elements, const char* what,
                           const std::string& tensor, const std::string& layer) {
  return fmt::format("{} of {} elements of the {} '{}', layer {}, are NaN or infinite, the first at index {}",
                     found.count, elements, what, tensor, layer, found.first);
}

metrics::NonFinite find_nonfinite(const torch::Tensor& flat, const Range& range) {
  const auto* data = static_cast<const std::byte*>(flat.const_data_ptr());
  return metrics::find_nonfinite(data + range.begin * flat.element_size(), range.size(),
                                 *process_group::dtype_of(flat.scalar_type()));
}

BucketGradients ParametersInBuckets::gradients_of(BucketId bucket, std::optional<Range> part) const {
  const BucketStorage& storage = buckets_[bucket];
  const buckets::BucketLayout& layout = storage.layout();
  const Range elements = part.value_or(Range{0, layout.elements});
  BucketGradients found{.bucket = bucket,
                        .flat = storage.gradients().narrow(0, elements.begin, elements.size()),
                        .tensors = {}};
  for (std::size_t i = 0; i < layout.placements.size(); ++i) {
    const buckets::TensorPlacement& placement = layout.placements[i];
    const std::int64_t begin = std::max(elements.begin, placement.offset);
    const std::int64_t end = std::min(elements.end, placement.offset + placement.elements);
    if (begin >= end) continue;
    const bool whole = end - begin == placement.elements;
    found.tensors.push_back({.name = workload_.tensors[placement.tensor].name,
                             .values = whole ? storage.tensor_in(storage.gradients(), i)
                                             : storage.gradients().narrow(0, begin, end - begin),
                             .begin = begin - placement.offset});
  }
  return found;
}

namespace {

// Most often one pass finds nothing.
std::string nonfinite_in(const torch::Tensor& flat, const Range& range, const buckets::BucketLayout& layout,
                         const Workload& workload, const char* what) {
  if (find_nonfinite(flat, range).count == 0) return "";
  for (const buckets::TensorPlacement& placement : layout.placements) {
    const std::int64_t begin = std::max(range.begin, placement.offset);
    const std::int64_t end = std::min(range.end, placement.offset + placement.elements);
    if (begin >= end) continue;
    metrics::NonFinite found = find_nonfinite(flat, {begin, end});
    if (found.count == 0) continue;
    found.first += begin - placement.offset;
    const TensorId tensor = placement.tensor;
    const auto layer = std::find_if(workload.layers.begin(), workload.layers.end(), [&](const Layer& one) {
      return std::find(one.tensors.begin(), one.tensors.end(), tensor) != one.tensors.end();
    });
    return nonfinite_text(found, placement.elements, what, workload.tensors[tensor].name, layer->name);
  }
  return "";  // padding, which nobody reads
}

}  // namespace

std::string ParametersInBuckets::nonfinite_gradients(BucketId bucket) const {
  const buckets::BucketLayout& layout = buckets_[bucket].layout();
  return nonfinite_in(buckets_[bucket].gradients(), {0, layout.elements}, layout, workload_, "gradient of");
}

std::string ParametersInBuckets::nonfinite_parameters(BucketId bucket, const Range& elements) const {
  return nonfinite_in(buckets_[bucket].parameters(), elements, buckets_[bucket].layout(), workload_,
                      "parameter");
}

std::string ParametersInBuckets::nonfinite_parameter(std::size_t parameter) const {
  buckets::TensorPlacement alone = place_of(parameter);
  alone.offset = 0;
  const buckets::BucketLayout layout{.elements = alone.elements, .placements = {alone}, .runs = {}};
  return nonfinite_in(parameters_[parameter].tensor.detach().contiguous().view({-1}), {0, alone.elements},
                      layout, workload_, "parameter");
}

}  // namespace dear::train
