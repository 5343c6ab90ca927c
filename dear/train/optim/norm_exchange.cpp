#include "dear/train/optim/norm_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dear/base/os/cache_line.h"

namespace dear::optim {

NormExchange::NormExchange(const Group& group, std::vector<std::vector<TensorId>> cut, std::size_t norms)
    : group_(group.duplicate()), cut_(std::move(cut)), norms_(norms) {
  std::size_t most = 0;
  for (const std::vector<TensorId>& tensors : cut_) most = std::max(most, tensors.size());
  const auto bytes = static_cast<std::int64_t>(most * norms_ * sizeof(ExactSum));
  if (bytes > 0) buffer_ = group_.allocate(os::whole_cache_lines(bytes) * group_.size());
}

// Sums are added in the order of ranks; in any other the bits would be the same.
void NormExchange::sum(std::size_t part, ShardedOptimizer::SumsOfTensors& sums) {
  const std::vector<TensorId>& tensors = cut_[part];
  if (tensors.empty()) return;
  const std::size_t bytes_of_tensor = norms_ * sizeof(ExactSum);
  const std::int64_t block =
      os::whole_cache_lines(static_cast<std::int64_t>(tensors.size() * bytes_of_tensor));
  const auto said_by = [&](int rank) { return buffer_.data() + block * rank; };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<ExactSum>& mine = sums[tensors[i]];
    mine.resize(norms_);
    std::memcpy(said_by(group_.rank()) + i * bytes_of_tensor, mine.data(), bytes_of_tensor);
  }
  group_.perform({.collective = Collective::all_gather,
                  .view = {.buffer = buffer_, .count = block * group_.size(), .dtype = DType::u8}});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<ExactSum> whole(norms_);
    for (int rank = 0; rank < group_.size(); ++rank) {
      std::vector<ExactSum> theirs(norms_);
      std::memcpy(theirs.data(), said_by(rank) + i * bytes_of_tensor, bytes_of_tensor);
      for (std::size_t k = 0; k < norms_; ++k) whole[k].add(theirs[k]);
    }
    sums[tensors[i]] = std::move(whole);
  }
}

}  // namespace dear::optim
