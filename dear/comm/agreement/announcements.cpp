#include "dear/comm/agreement/announcements.h"

#include <cstring>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/error.h"

namespace dear::agreement {
namespace {

constexpr std::int64_t kBlock = os::whole_cache_lines(static_cast<std::int64_t>(sizeof(Announcement)));
using Length = std::int64_t;

}  // namespace

Announcements::Announcements(const Group& group, std::int64_t text_bytes)
    : group_(group.duplicate()),
      text_bytes_(text_bytes),
      said_(group_.allocate(kSlots * kBlock * group.size())),
      text_(group_.allocate(os::whole_cache_lines(static_cast<std::int64_t>(sizeof(Length)) + text_bytes))),
      sending_(kSlots) {}

std::byte* Announcements::sent_by(std::int64_t slot, int rank) const {
  return said_.data() + (slot * group_.size() + rank) * kBlock;
}

Announcements::Number Announcements::send(const Announcement& mine) {
  const std::int64_t slot = next_ % kSlots;
  sending_[slot].wait();
  if (const auto kept = kept_.find(next_ - kSlots); kept != kept_.end()) kept->second = receive(kept->first);
  std::memcpy(sent_by(slot, group_.rank()), &mine, sizeof mine);
  sending_[slot] = group_.all_gather({.buffer = said_,
                                      .offset_bytes = slot * kBlock * group_.size(),
                                      .count = kBlock * group_.size(),
                                      .dtype = DType::u8});
  return next_++;
}

std::vector<Announcement> Announcements::receive(Number number) {
  if (const auto kept = kept_.find(number); kept != kept_.end() && !kept->second.empty()) return kept->second;
  const std::int64_t slot = number % kSlots;
  sending_[slot].wait();
  std::vector<Announcement> all(static_cast<std::size_t>(group_.size()));
  for (int rank = 0; rank < group_.size(); ++rank)
    std::memcpy(&all[static_cast<std::size_t>(rank)], sent_by(slot, rank), sizeof(Announcement));
  return all;
}

void Announcements::pass_on(int from, const std::string& text) {
  if (from == group_.rank()) {
    const auto length = static_cast<Length>(text.size());
    if (length > text_bytes_)
      throw ConfigError(
          fmt::format("rank {}: {} bytes were to be passed on in a join, which has room for {}: "
                      "add parameter groups, or name buckets, before the join begins",
                      group_.rank(), length, text_bytes_));
    passing_.wait();
    std::memcpy(text_.data(), &length, sizeof length);
    std::memcpy(text_.data() + sizeof length, text.data(), text.size());
  }
  passing_ = group_.broadcast({.buffer = text_, .count = text_.bytes(), .dtype = DType::u8}, from);
}

std::string Announcements::passed_on() {
  passing_.wait();
  Length length = 0;
  std::memcpy(&length, text_.data(), sizeof length);
  return {reinterpret_cast<const char*>(text_.data()) + sizeof length, static_cast<std::size_t>(length)};
}

}  // namespace dear::agreement
