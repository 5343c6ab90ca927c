#include "dear/train/data_parallel/verifier.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"

namespace dear::train {
namespace {

template <typename Integer>
std::uint64_t digest_of(const torch::Tensor& contiguous) {
  const auto* const bits = static_cast<const Integer*>(contiguous.const_data_ptr());
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < contiguous.numel(); ++i)
    sum += static_cast<std::uint64_t>(bits[i]) * (2 * static_cast<std::uint64_t>(i) + 1);
  return sum;
}

// With room for so many elements, as 64-bit integers, at a time.
std::uint64_t digest_on_device(const torch::Tensor& bits) {
  constexpr std::int64_t kRoom = std::int64_t{1} << 22;
  torch::Tensor sum = torch::zeros({}, bits.options().dtype(at::kLong));
  for (std::int64_t begin = 0; begin < bits.numel(); begin += kRoom) {
    const std::int64_t end = std::min(begin + kRoom, bits.numel());
    const torch::Tensor odd = torch::arange(2 * begin + 1, 2 * end + 1, 2, sum.options());
    sum += (bits.slice(0, begin, end).to(at::kLong) * odd).sum();
  }
  return static_cast<std::uint64_t>(sum.item<std::int64_t>());
}

// "rank 2", or "ranks 1, 3": those with a digest that fewer ranks have than another one; or all by digest.
std::string culprits(const std::vector<std::uint64_t>& by_rank) {
  std::map<std::uint64_t, std::vector<std::size_t>> ranks;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) ranks[by_rank[rank]].push_back(rank);
  const auto most = std::max_element(ranks.begin(), ranks.end(), [](const auto& one, const auto& other) {
    return one.second.size() < other.second.size();
  });
  std::vector<std::size_t> minority;
  std::vector<std::string> sides;
  for (const auto& [digest, of_digest] : ranks) {
    if (digest != most->first) minority.insert(minority.end(), of_digest.begin(), of_digest.end());
    sides.push_back(fmt::format("{}", fmt::join(of_digest, ", ")));
  }
  std::sort(minority.begin(), minority.end());
  std::sort(sides.begin(), sides.end());
  if (2 * most->second.size() <= by_rank.size())
    return fmt::format("ranks {} each have another value, and no side is the larger one",
                       fmt::join(sides, " and "));
  return fmt::format("{} {} {} another value than the other {}", minority.size() == 1 ? "rank" : "ranks",
                     fmt::join(minority, ", "), minority.size() == 1 ? "has" : "have", most->second.size());
}

}  // namespace

std::uint64_t digest_of_bits(const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor flat = tensor.detach().contiguous().view(-1);
  const std::size_t size = flat.element_size();
  if (!flat.is_cpu())
    return digest_on_device(flat.view(size == 8   ? at::kLong
                                      : size == 4 ? at::kInt
                                      : size == 2 ? at::kShort
                                                  : at::kChar));
  if (size == 8) return digest_of<std::int64_t>(flat);
  if (size == 4) return digest_of<std::int32_t>(flat);
  return size == 2 ? digest_of<std::int16_t>(flat) : digest_of<std::int8_t>(flat);
}

void Verifier::send(const std::vector<TrainedParameter>& parameters) {
  digests_.clear();
  names_.clear();
  for (const TrainedParameter& one : parameters) {
    names_.push_back(one.name);
    digests_.push_back(digest_of_bits(one.tensor));
  }
  sent_at_ = steps_;
  const auto count = static_cast<std::int64_t>(2 * digests_.size());
  const std::int64_t bytes = count * size_of(DType::i64);
  if (buffer_.bytes() != bytes) buffer_ = group_.allocate(bytes);
  // The largest digest, and the complement of the smallest.
  auto* const numbers = reinterpret_cast<std::int64_t*>(buffer_.data());
  for (std::size_t i = 0; i < digests_.size(); ++i) {
    numbers[2 * i] = static_cast<std::int64_t>(digests_[i]);
    numbers[2 * i + 1] = ~numbers[2 * i];
  }
  pending_ = group_.all_reduce({.buffer = buffer_, .count = count, .dtype = DType::i64}, Reduction::max);
}

void Verifier::hear() {
  if (!pending_) return;
  std::exchange(pending_, std::nullopt)->wait();
  const auto* const numbers = reinterpret_cast<const std::int64_t*>(buffer_.data());
  for (std::size_t i = 0; i < digests_.size(); ++i) {
    if (numbers[2 * i] == ~numbers[2 * i + 1]) continue;
    throw MismatchError(
        fmt::format("after step {} the parameter '{}' is not the same on all ranks: {}. A rank's memory, "
                    "processor or program changed "
                    "it: look at that rank, and go on from the last checkpoint",
                    sent_at_, names_[i], culprits(comm::all_gather_values(group_, digests_[i]))));
  }
}

}  // namespace dear::train
