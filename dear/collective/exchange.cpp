#include "dear/collective/exchange.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "dear/base/cache_line.h"
#include "dear/base/error.h"

namespace dear {
namespace {

// A cache line: with blocks of whole lines, shard r of the gathered vector is block r.

// Gathers one block of `block` bytes (a multiple of a line) from every rank.
Buffer gather_blocks(const Group& group, const void* mine, std::int64_t bytes, std::int64_t block) {
  Buffer buffer = group.allocate(block * group.size());
  if (bytes > 0) {
    std::memcpy(buffer.data() + block * group.rank(), mine, static_cast<std::size_t>(bytes));
  }
  group.all_gather({.buffer = buffer, .count = block * group.size(), .dtype = DType::u8}).wait();
  return buffer;
}

}  // namespace

std::vector<std::string> all_gather_text(const Group& group, const std::string& text) {
  const auto length = static_cast<std::int64_t>(text.size());
  const Buffer gathered_lengths = gather_blocks(group, &length, sizeof length, kCacheLineBytes);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(group.size()));
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    std::memcpy(&lengths[rank], gathered_lengths.data() + kCacheLineBytes * static_cast<std::int64_t>(rank),
                sizeof length);
  }
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const std::int64_t block = whole_cache_lines(longest);
  const Buffer gathered = gather_blocks(group, text.data(), length, block);
  std::vector<std::string> texts;
  texts.reserve(lengths.size());
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    const auto* begin =
        reinterpret_cast<const char*>(gathered.data()) + block * static_cast<std::int64_t>(rank);
    texts.emplace_back(begin, static_cast<std::size_t>(lengths[rank]));
  }
  return texts;
}

void agree(const Group& group, const std::string& thing, const std::string& value) {
  const std::vector<std::string> values = all_gather_text(group, value);
  const auto other =
      std::find_if(values.begin(), values.end(), [&](const auto& one) { return one != values[0]; });
  if (other != values.end()) {
    throw MismatchError(fmt::format(
        "the ranks disagree on the {}: rank {} has \"{}\", rank 0 has \"{}\"; give every rank the same",
        thing, other - values.begin(), *other, values[0]));
  }
}

}  // namespace dear
