#include "dear/train/batch_norm/statistics.h"

#include <algorithm>
#include <cstring>

#include "dear/base/os/cache_line.h"

namespace dear::batch_norm {
namespace {

constexpr std::int64_t kDouble = sizeof(double);

}  // namespace

// Every rank asks for the same, so every rank allocates together.
double* Statistics::room_for(std::int64_t doubles) {
  const std::int64_t bytes = doubles * kDouble;
  if (buffer_.bytes() < bytes) buffer_ = group_.allocate(std::max(bytes, 2 * buffer_.bytes()));
  return reinterpret_cast<double*>(buffer_.data());
}

Statistics::Moments Statistics::joined(const Moments& mine) {
  const std::int64_t channels = mine.mean.numel();
  const std::int64_t block = os::whole_cache_lines((1 + 2 * channels) * kDouble) / kDouble;
  double* all = room_for(block * group_.size());
  double* own = all + block * group_.rank();
  own[0] = mine.count;
  std::memcpy(own + 1, mine.mean.const_data_ptr(), static_cast<std::size_t>(channels * kDouble));
  std::memcpy(own + 1 + channels, mine.squares.const_data_ptr(),
              static_cast<std::size_t>(channels * kDouble));
  group_.perform({.collective = Collective::all_gather,
                  .view = {.buffer = buffer_, .count = block * group_.size(), .dtype = DType::f64}});
  Moments joined{
      .count = 0, .mean = torch::zeros_like(mine.mean), .squares = torch::zeros_like(mine.squares)};
  auto* mean = static_cast<double*>(joined.mean.mutable_data_ptr());
  auto* squares = static_cast<double*>(joined.squares.mutable_data_ptr());
  for (int rank = 0; rank < group_.size(); ++rank) {
    const double* theirs = all + block * rank;
    const double count = theirs[0];
    if (count == 0) continue;
    const double sum = joined.count + count;
    for (std::int64_t c = 0; c < channels; ++c) {
      const double apart = theirs[1 + c] - mean[c];
      mean[c] += apart * (count / sum);
      squares[c] += theirs[1 + channels + c] + apart * apart * (joined.count * count / sum);
    }
    joined.count = sum;
  }
  return joined;
}

void Statistics::sum(torch::Tensor& a, torch::Tensor& b) {
  const auto bytes_a = static_cast<std::size_t>(a.numel() * kDouble);
  const auto bytes_b = static_cast<std::size_t>(b.numel() * kDouble);
  double* all = room_for(a.numel() + b.numel());
  std::memcpy(all, a.const_data_ptr(), bytes_a);
  std::memcpy(all + a.numel(), b.const_data_ptr(), bytes_b);
  group_.perform({.collective = Collective::all_reduce,
                  .view = {.buffer = buffer_, .count = a.numel() + b.numel(), .dtype = DType::f64},
                  .reduction = Reduction::sum});
  std::memcpy(a.mutable_data_ptr(), all, bytes_a);
  std::memcpy(b.mutable_data_ptr(), all + a.numel(), bytes_b);
}

}  // namespace dear::batch_norm
