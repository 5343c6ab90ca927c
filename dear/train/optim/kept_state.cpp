#include "dear/train/optim/kept_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dear/base/os/cache_line.h"
#include "dear/comm/group/exchange.h"

namespace dear::optim {
namespace {

std::int64_t bytes_of_part(std::int64_t bytes, int ranks) {
  return os::whole_cache_lines((bytes + ranks - 1) / ranks);
}

// The part of `rank`, as long as every other: what lies beyond the end is zero.
torch::Tensor part_of(const torch::Tensor& whole, int rank, int ranks) {
  const torch::Tensor flat = whole.contiguous();
  const auto bytes = static_cast<std::int64_t>(flat.nbytes());
  const std::int64_t length = bytes_of_part(bytes, ranks);
  const std::int64_t begin = std::min(bytes, length * rank);
  torch::Tensor part = torch::zeros({length}, torch::dtype(torch::kUInt8));
  std::memcpy(part.mutable_data_ptr(), static_cast<const char*>(flat.const_data_ptr()) + begin,
              static_cast<std::size_t>(std::min(bytes - begin, length)));
  return part;
}

}  // namespace

void KeptState::keep(const torch::Tensor& parameter, const OptimizerState& state) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.parameter.is_same(parameter); });
  Entry& entry =
      entries_.emplace_back(Entry{.parameter = parameter, .scalars = state.scalars, .vectors = {}});
  for (const auto& [name, vector] : state.vectors)
    entry.vectors.push_back({.name = name,
                             .part = part_of(vector, group_.rank(), group_.size()),
                             .sizes = vector.sizes().vec(),
                             .type = vector.scalar_type()});
}

torch::Tensor KeptState::gather(const Entry::Vector& vector) const {
  torch::Tensor whole = torch::empty(vector.sizes, torch::dtype(vector.type));
  const auto* mine = static_cast<const std::byte*>(vector.part.const_data_ptr());
  const std::vector<std::byte> all = comm::all_gather_bytes(group_, {mine, vector.part.nbytes()});
  std::memcpy(whole.mutable_data_ptr(), all.data(), whole.nbytes());
  return whole;
}

const KeptState::Entry* KeptState::find(const torch::Tensor& parameter) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.parameter.is_same(parameter); });
  return found == entries_.end() ? nullptr : &*found;
}

std::optional<OptimizerState> KeptState::gather(const torch::Tensor& parameter) const {
  const Entry* entry = find(parameter);
  if (entry == nullptr) return std::nullopt;
  OptimizerState state{.vectors = {}, .scalars = entry->scalars};
  for (const Entry::Vector& vector : entry->vectors) state.vectors[vector.name] = gather(vector);
  return state;
}

std::optional<OptimizerState> KeptState::take(const torch::Tensor& parameter) {
  std::optional<OptimizerState> state = gather(parameter);
  std::erase_if(entries_, [&](const Entry& entry) { return entry.parameter.is_same(parameter); });
  return state;
}

void KeptState::forget_all_but(const TensorSet& parameters) {
  std::erase_if(entries_, [&](const Entry& entry) {
    return !parameters.contains(entry.parameter.unsafeGetTensorImpl());
  });
}

std::vector<torch::Tensor> KeptState::parameters() const {
  std::vector<torch::Tensor> all;
  for (const Entry& entry : entries_) all.push_back(entry.parameter);
  return all;
}

}  // namespace dear::optim
