#include "dear/base/liveness/judge.h"

#include <chrono>

#include <fmt/format.h>

namespace dear::liveness {
namespace {

// How long a cause may take to overtake what follows from it. A connection is lost before the kernel of the
// other host has said why.
constexpr std::chrono::milliseconds kSettle{50}, kSettleLost{500}, kPlace{400};

}  // namespace

std::string Judge::name(int rank) const {
  return rank >= 0 && std::cmp_less(rank, names_.size()) ? names_[static_cast<std::size_t>(rank)]
                                                         : fmt::format("rank {}", rank);
}

void Judge::hear(int reporter, Word word, SteadyTime now) {
  // A rank that told of a failure, or left, ends as a consequence.
  if (word.cause == Cause::died && (reporters_.contains(word.culprit) || left_.contains(word.culprit)))
    return;
  reporters_.insert(reporter);
  if (!best_) began_ = now;
  if (!best_ || word.cause < best_->cause) best_ = std::move(word);
}

// Of a death and of a leave all ranks say the same, whoever noticed it.
Word Judge::first() const {
  Word word = *best_;
  if (word.cause == Cause::lost && !left_.empty()) {
    word.culprit = *left_.begin();
    word.cause = Cause::left;
  }
  if (word.cause == Cause::died)
    word.text = fmt::format("{} died: its own output says why", name(word.culprit));
  if (word.cause == Cause::left)
    word.text = fmt::format("{} left the group while others wait: every rank must issue the same collectives",
                            name(word.culprit));
  return word;
}

std::optional<int> Judge::asks() const {
  if (!best_ || best_->cause != Cause::timeout || best_->culprit < 0 || places_.contains(best_->culprit))
    return std::nullopt;
  return best_->culprit;
}

std::optional<SteadyTime> Judge::due() const {
  if (!best_) return std::nullopt;
  if (best_->cause == Cause::lost && left_.empty()) return began_ + kSettleLost;
  return began_ + (asks() ? kPlace : kSettle);
}

Verdict Judge::decide() const {
  Verdict verdict{.epoch = epoch_, .first = first()};
  verdict.realtime = std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  if (const auto at = places_.find(verdict.first.culprit); at != places_.end()) verdict.place = at->second;
  if (verdict.first.cause == Cause::timeout && !verdict.place.empty())
    verdict.first.text += fmt::format("; rank {} {}", verdict.first.culprit, verdict.place);
  return verdict;
}

}  // namespace dear::liveness
