#include "dear/comm/group/exchange.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/error.h"

namespace dear {
namespace {

// Gathers `mine`, of at most `block` bytes, from every rank: rank r's lies in block r. A block is of whole
// cache lines, so that block r is shard r of the gathered vector.
Buffer gather_blocks(const Group& group, std::span<const std::byte> mine, std::int64_t block) {
  Buffer buffer = group.allocate(block * group.size());
  std::copy(mine.begin(), mine.end(), buffer.data() + block * group.rank());
  group.all_gather({.buffer = buffer, .count = block * group.size(), .dtype = DType::u8}).wait();
  return buffer;
}

[[noreturn]] void refuse(const std::string& thing, std::size_t rank, const std::vector<std::string>& texts) {
  throw MismatchError(fmt::format(
      "the ranks disagree on the {}: rank {} has \"{}\", rank 0 has \"{}\"; give every rank the same", thing,
      rank, texts[rank], texts[0]));
}

}  // namespace

namespace comm {

std::vector<std::byte> all_gather_bytes(const Group& group, std::span<const std::byte> mine) {
  const std::int64_t block = os::whole_cache_lines(static_cast<std::int64_t>(mine.size()));
  const Buffer gathered = gather_blocks(group, mine, block);
  std::vector<std::byte> all;
  all.reserve(mine.size() * static_cast<std::size_t>(group.size()));
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::byte* begin = gathered.data() + block * rank;
    all.insert(all.end(), begin, begin + mine.size());
  }
  return all;
}

void throw_disagreement(const Group& group, const std::string& thing, int rank, const std::string& mine) {
  refuse(thing, static_cast<std::size_t>(rank), all_gather_text(group, mine));
}

}  // namespace comm

std::vector<std::string> all_gather_text(const Group& group, const std::string& text) {
  const std::vector<std::int64_t> lengths =
      comm::all_gather_values(group, static_cast<std::int64_t>(text.size()));
  const std::int64_t block = os::whole_cache_lines(*std::max_element(lengths.begin(), lengths.end()));
  const Buffer gathered = gather_blocks(group, std::as_bytes(std::span(text)), block);
  std::vector<std::string> texts;
  texts.reserve(lengths.size());
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    const auto* begin =
        reinterpret_cast<const char*>(gathered.data()) + block * static_cast<std::int64_t>(rank);
    texts.emplace_back(begin, static_cast<std::size_t>(lengths[rank]));
  }
  return texts;
}

void agree(const Group& group, const std::string& thing, const std::string& text) {
  const std::vector<std::string> texts = all_gather_text(group, text);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0]) refuse(thing, rank, texts);
  }
}

}  // namespace dear
