#include <algorithm>

#include "dear/comm/group/group_lane.h"

// What a group's failures are called where the lives of its ranks are watched.
namespace dear {
namespace {

// How long a rank waits for others to decide what it is that has failed; never longer than half its timeout,
// since who waits for this rank has a deadline of its own.
constexpr std::chrono::duration<double> kVerdict = std::chrono::seconds(3),
                                        kVerdictOnWhole = std::chrono::seconds(1),
                                        kVerdictOfTheLate = std::chrono::milliseconds(300);

}  // namespace

void Group::Lane::State::watch(const std::shared_ptr<State>& state,
                               const std::shared_ptr<liveness::Liveness>& with, bool is_whole) {
  {
    const std::lock_guard lock(state->mutex);
    state->liveness = with;
    state->is_whole = is_whole;
  }
  with->listen([group = std::weak_ptr(state)](const liveness::Verdict& verdict) {
    if (const auto at = group.lock()) at->fail_with(liveness::error_of(verdict));
  });
}

std::shared_ptr<liveness::Liveness> Group::Lane::State::watched() {
  const std::lock_guard lock(mutex);
  return liveness;
}

void Group::Lane::State::tell(const std::string& failure) noexcept {
  const auto with = watched();
  if (with && is_whole) with->tell(liveness::read_sentence(failure, with->rank(), liveness::Cause::failed));
}

// A part of the group may fail alone, but where a rank is gone.
std::exception_ptr Group::Lane::State::explained(std::exception_ptr error) {
  const auto with = watched();
  const auto word = with ? liveness::word_of(error, with->rank()) : std::nullopt;
  if (!word) return error;
  if (is_whole) {
    with->tell(*word);
  } else if (word->cause == liveness::Cause::mismatch || word->cause == liveness::Cause::timeout) {
    return error;
  }
  auto patience = std::min<std::chrono::duration<double>>(is_whole ? kVerdict : kVerdictOnWhole, timeout / 2);
  // It may be stopped.
  if (word->cause == liveness::Cause::timeout && with->hears_through(word->culprit))
    patience = std::min(patience, kVerdictOfTheLate);
  const auto verdict = with->wait(Deadline::after(patience));
  return verdict ? liveness::error_of(*verdict) : error;
}

}  // namespace dear
