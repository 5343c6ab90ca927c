#include <algorithm>
#include <cstring>
#include <utility>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/mpi/channels/mpi_channels.h"

// How ranks learn of each other's failures and farewells.
namespace dear::channels {
namespace {

constexpr auto kTellingTakes = std::chrono::milliseconds(200);

}  // namespace

void MpiChannels::abort(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(reason_mutex_);
    if (!aborted_) {
      reason_ = reason;
      aborted_ = true;
    }
  }
  // Whoever waits has the turn, and looks up soon.
  const std::unique_lock turn(turn_, kTellingTakes);
  if (turn) {
    tell_peers(Notice::Kind::aborted, reason_);
  }
}

void MpiChannels::look_for_abort() {
  if (!aborted_) {
    return;
  }
  std::string reason;
  {
    const std::lock_guard lock(reason_mutex_);
    reason = reason_;
  }
  tell_peers(Notice::Kind::aborted, reason);
  throw TransportError(reason);
}

void MpiChannels::take_notices() {
  Notice notice;
  int peer = 0;
  std::int64_t bytes = 0;
  for (;;) {
    check(world_.binding->take_control(&notice, sizeof notice, &peer, &bytes), "look for notices");
    if (bytes < 0) {
      return;
    }
    if (bytes != sizeof notice || notice.session != world_.session) {
      continue;
    }
    if (notice.kind == Notice::Kind::aborted) {
      notice.text[sizeof notice.text - 1] = '\0';
      throw TransportError(notice.text);
    }
    left_[static_cast<std::size_t>(peer)] = SteadyClock::now();
  }
}

// Once. Lets MPI move the messages on for a moment: nobody may call it afterwards. A peer that is gone does
// not take its own.
void MpiChannels::tell_peers(Notice::Kind kind, const std::string& text) noexcept {
  if (std::exchange(told_, true)) {
    return;
  }
  Notice& notice = *outgoing_;
  notice.kind = kind;
  notice.session = world_.session;
  const std::size_t length = std::min(text.size(), sizeof notice.text - 1);
  std::memcpy(notice.text, text.data(), length);
  const MpiBinding& mpi = *world_.binding;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) {
      mpi.send(&notice, sizeof notice, peer, 0, MpiLane::control, nullptr);
    }
  }
  const auto on_its_way = [&] {
    const MpiCompletion* completions = nullptr;
    int count = 0;
    if (mpi.poll(&completions, &count) != 0) {
      return false;
    }
    void* const* const cookies = mpi.outstanding(&count);
    return std::find(cookies, cookies + count, nullptr) != cookies + count;
  };
  const Deadline patience = Deadline::after(kTellingTakes);
  Backoff backoff(processors_);
  while (on_its_way() && !patience.expired()) {
    backoff.pause(patience);
  }
}

}  // namespace dear::channels
