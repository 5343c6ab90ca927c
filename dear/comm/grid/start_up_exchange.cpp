#include "dear/comm/grid/start_up_exchange.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/error.h"

namespace dear::grid {
namespace {

constexpr std::int64_t kBlock = 1024;
constexpr std::size_t kMostText = 1000;

// Block r of the result is what rank r gave; a block is of whole cache lines, so that it is a shard.
Buffer gather(Backend& whole, const void* mine, std::size_t bytes, std::int64_t block, Deadline deadline) {
  Buffer all = whole.allocate(block * whole.size(), deadline);
  if (bytes > 0) std::memcpy(all.data() + block * whole.rank(), mine, bytes);
  whole.run({.collective = Collective::all_gather,
             .view = {.buffer = all, .count = block * whole.size(), .dtype = DType::u8}},
            deadline);
  return all;
}

}  // namespace

std::vector<std::string> gather_texts(Backend& whole, const std::string& text, Deadline deadline) {
  if (text.size() > kMostText) {
    throw ConfigError(fmt::format("rank {} has {} bytes to say at the start, more than {}: '{}...'",
                                  whole.name(), text.size(), kMostText, text.substr(0, 80)));
  }
  const Buffer all = gather(whole, text.data(), text.size(), kBlock, deadline);
  std::vector<std::string> texts;
  for (int rank = 0; rank < whole.size(); ++rank) {
    texts.emplace_back(reinterpret_cast<const char*>(all.data()) + kBlock * rank);  // zeros follow
  }
  return texts;
}

std::vector<std::vector<double>> gather_numbers(Backend& whole, const std::vector<double>& mine,
                                                Deadline deadline) {
  const std::size_t bytes = mine.size() * sizeof(double);
  const std::int64_t block =
      std::max(os::kCacheLineBytes, os::whole_cache_lines(static_cast<std::int64_t>(bytes)));
  const Buffer all = gather(whole, mine.data(), bytes, block, deadline);
  std::vector<std::vector<double>> numbers;
  for (int rank = 0; rank < whole.size(); ++rank) {
    std::vector<double>& theirs = numbers.emplace_back(mine.size());
    if (bytes > 0) std::memcpy(theirs.data(), all.data() + block * rank, bytes);
  }
  return numbers;
}

}  // namespace dear::grid
