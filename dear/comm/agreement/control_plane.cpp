#include "dear/comm/agreement/control_plane.h"

#include <array>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"

namespace dear::agreement {
namespace {

constexpr const char* kRemedy = "make the same calls of DataParallel in the same order on every rank";

struct Header {
  std::array<char, 8> magic{'D', 'e', 'A', 'R', 'c', 't', 'l', '\0'};
  std::uint32_t version = 1;  // of all layouts
  Subject subject{};
  std::uint64_t element_bytes = 0;
  friend bool operator==(const Header&, const Header&) = default;
};
static_assert(sizeof(Header) == 24);

std::string describe(const Header& header) {
  constexpr std::array kSubjects{"a call",         "its first step()",        "what it measured",
                                 "cached buckets", "tuned buckets",           "the optimiser's state",
                                 "norms",          "a decision of its tuning"};
  const auto subject = static_cast<std::size_t>(header.subject);
  return fmt::format("{} (layout {} of {} bytes)",
                     subject < kSubjects.size() ? kSubjects[subject] : "nothing known", header.version,
                     header.element_bytes);
}

}  // namespace

void check_together(const Group& group, const std::function<void()>& check) {
  std::exception_ptr mine;
  std::string reason;
  try {
    check();
  } catch (const std::exception& error) {
    mine = std::current_exception();
    reason = error.what();
  }
  const std::vector<std::string> reasons = all_gather_text(group, reason);
  if (mine) std::rethrow_exception(mine);
  for (std::size_t rank = 0; rank < reasons.size(); ++rank)
    if (!reasons[rank].empty())
      throw ConfigError(fmt::format("rank {}: rank {} refused: {}", group.rank(), rank, reasons[rank]));
}

std::exception_ptr with_remedy(const std::exception_ptr& error) {
  if (!error) return error;
  try {
    std::rethrow_exception(error);
  } catch (const MismatchError& known) {
    if (std::string_view(known.what()).ends_with(kRemedy)) return error;
    return std::make_exception_ptr(MismatchError(fmt::format("{}; {}", known.what(), kRemedy)));
  } catch (...) {
    return error;
  }
}

std::vector<std::string> exchange(const Group& group, Subject subject, std::size_t element_bytes,
                                  std::span<const std::byte> mine) {
  const Header header{.subject = subject, .element_bytes = element_bytes};
  std::string message(reinterpret_cast<const char*>(&header), sizeof header);
  message.append(reinterpret_cast<const char*>(mine.data()), mine.size());
  std::vector<std::string> all;
  try {
    all = all_gather_text(group, message);
  } catch (const MismatchError&) {
    std::rethrow_exception(with_remedy(std::current_exception()));
  }
  std::vector<Header> headers;
  for (std::string& one : all) {
    Header& theirs = headers.emplace_back();
    if (one.size() >= sizeof theirs) std::memcpy(&theirs, one.data(), sizeof theirs);
    one.erase(0, sizeof theirs);
    const std::size_t rank = headers.size() - 1;
    if (theirs != headers.front() || one.size() % element_bytes != 0)
      throw MismatchError(
          fmt::format("rank {}: rank {} exchanges {}, rank 0 {}; run one build of DeAR, and {}", group.rank(),
                      rank, describe(theirs), describe(headers.front()), kRemedy));
  }
  return all;
}

void meet(const Group& group, Call call, std::int64_t steps) {
  const std::vector<CallMade> mine{{.call = call, .steps = steps}};
  const auto all = all_gather_values(group, Subject::call, mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw MismatchError(fmt::format("rank {}: rank {} called {}, rank 0 {}; {}", group.rank(), rank,
                                    text_of(all[rank].at(0)), text_of(all[0].at(0)), kRemedy));
  }
}

}  // namespace dear::agreement
