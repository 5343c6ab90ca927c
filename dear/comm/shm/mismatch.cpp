#include "dear/comm/shm/mismatch.h"

#include <tuple>

#include <fmt/format.h>

#include "dear/base/os/peers.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/bit_field.h"

namespace dear::backends {
namespace {

constexpr std::size_t kMostListed = 16;  // of the ranks that agree with rank 0

// Fields of the first word of a packed summary. The highest bit of that word is set.
constexpr comm::BitField kCount = {0, 20};
constexpr comm::BitField kLabel = {20, 19};    // plus 1, so that none is 0
constexpr comm::BitField kSequence = {39, 8};  // its last bits
constexpr comm::BitField kRoot = {47, 7};
constexpr comm::BitField kOperation = {54, 3};
constexpr comm::BitField kDType = {57, 3};
constexpr comm::BitField kReduction = {60, 3};
constexpr std::uint64_t kThere = std::uint64_t{1} << 63;
// Fields of the second word.
constexpr comm::BitField kBuffer = {0, 24};
constexpr comm::BitField kOffset = {24, 40};

auto key(const RequestSummary& one) {
  return std::tie(one.heading, one.buffer, one.offset_bytes, one.output_buffer, one.output_offset_bytes);
}

// Adds where the data lies. A message says so only when the collectives are alike in all else.
std::string describe_place(const RequestSummary& one) {
  std::string text =
      fmt::format("{} at byte {} of buffer {}", describe(one.heading), one.offset_bytes, one.buffer);
  if (one.output_buffer != 0) {
    text += fmt::format(" to byte {} of buffer {}", one.output_offset_bytes, one.output_buffer);
  }
  return text;
}

}  // namespace

PackedSummary packed(const RequestSummary& one) {
  const comm::Heading& heading = one.heading;
  const auto count = static_cast<std::uint64_t>(heading.count);
  const auto label = static_cast<std::uint64_t>(heading.label + 1);
  const auto root = static_cast<std::uint64_t>(heading.root);
  const auto offset = static_cast<std::uint64_t>(one.offset_bytes);
  const bool has_room =
      kCount.fits(count) && kLabel.fits(label) && kRoot.fits(root) && kOperation.fits(heading.collective) &&
      kDType.fits(heading.dtype) && kReduction.fits(heading.reduction) && kBuffer.fits(one.buffer) &&
      kOffset.fits(offset) && one.output_buffer == 0 && one.output_offset_bytes == 0 && heading.chunks == 0;
  if (!has_room) {
    return {};
  }
  return {.what = kThere | kCount.at_its_place(count) | kLabel.at_its_place(label) |
                  kSequence.at_its_place(heading.sequence) | kRoot.at_its_place(root) |
                  kOperation.at_its_place(heading.collective) | kDType.at_its_place(heading.dtype) |
                  kReduction.at_its_place(heading.reduction),
          .where = kBuffer.at_its_place(one.buffer) | kOffset.at_its_place(offset)};
}

bool asks_the_same(const RequestSummary& one, const RequestSummary& other) { return key(one) == key(other); }

RequestSummary summarize(std::uint64_t sequence, const Request& request, std::uint64_t buffer,
                         std::uint64_t output_buffer) {
  RequestSummary mine{.heading = comm::heading_of(sequence, request)};
  if (request.collective == Collective::barrier) return mine;
  mine.buffer = buffer;
  mine.offset_bytes = request.view.offset_bytes;
  if (has_output(request.collective)) {
    mine.output_buffer = output_buffer;
    mine.output_offset_bytes = request.output.offset_bytes;
  }
  return mine;
}

void throw_on_mismatch(const std::vector<RequestSummary>& by_rank, const std::vector<int>& names) {
  const RequestSummary& first = by_rank.front();
  const RequestSummary* other = nullptr;
  std::vector<int> differ, agree;  // with rank 0
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const RequestSummary& one = by_rank[rank];
    const int name = names.empty() ? static_cast<int>(rank) : names[rank];
    if (key(one) == key(first)) {
      agree.push_back(name);
      continue;
    }
    if (other == nullptr) other = &one;
    if (key(one) == key(*other)) differ.push_back(name);
  }
  if (other == nullptr) {
    return;
  }
  if (agree.size() > kMostListed) agree.erase(agree.begin() + 1, agree.end());
  std::string theirs = describe(other->heading);
  std::string expected = describe(first.heading);
  if (theirs == expected) {
    theirs = describe_place(*other);
    expected = describe_place(first);
  }
  throw MismatchError(fmt::format("collective {}: {} {} for {}, {} for {}: {}", first.heading.sequence,
                                  os::list_ranks(differ), differ.size() == 1 ? "asks" : "ask", theirs,
                                  os::list_ranks(agree), expected, comm::kSameOrder));
}

}  // namespace dear::backends
