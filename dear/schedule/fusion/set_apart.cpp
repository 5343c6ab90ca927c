#include "dear/schedule/fusion/set_apart.h"

#include <utility>

namespace dear {

Grouping set_apart(const Workload& workload, const Grouping& grouping, const std::vector<bool>& apart) {
  std::vector<Bucket> buckets;
  for (const Bucket& bucket : grouping.buckets()) {
    Bucket rest = bucket;
    std::erase_if(rest.tensors, [&](TensorId tensor) { return apart.at(tensor); });
    for (const TensorId tensor : bucket.tensors)
      if (apart.at(tensor)) buckets.push_back({.tensors = {tensor}});
    if (!rest.tensors.empty()) buckets.push_back(std::move(rest));
  }
  return {workload, std::move(buckets)};
}

}  // namespace dear
