#include "dear/comm/awaited/channels/failure_detector.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/start_thread.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/awaited/channels/frame.h"

namespace dear::channels {

struct FailureDetector::Word {
  Message message = Message::left;
  std::uint32_t length = 0;
  std::array<char, 1016> text{};
};

FailureDetector::FailureDetector(PointToPoint& point_to_point, Listener listener, Waits waits)
    : point_to_point_(point_to_point), listener_(std::move(listener)), waits_(std::move(waits)) {
  static_assert(sizeof(Word) == 1024);
  for (int rank = 0; rank < point_to_point_.size(); ++rank) {
    if (rank == point_to_point_.rank()) continue;
    auto peer = std::make_unique<Peer>();
    peer->rank = rank;
    peer->heard = std::make_unique<Word>();
    open_ear(*peer);
    peers_.push_back(std::move(peer));
  }
  try {
    for (const auto& peer : peers_) {
      peer->thread = os::start_thread(
          fmt::format("of rank {} that listens to rank {}", point_to_point_.rank(), peer->rank),
          [this, at = peer.get()] { listen(*at); });
    }
  } catch (...) {
    close();
    throw;
  }
}

FailureDetector::~FailureDetector() { close(); }

void FailureDetector::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (const auto& peer : peers_) peer->hearing->interrupt();
  }
  for (const auto& peer : peers_) {
    if (peer->thread.joinable()) peer->thread.join();
  }
  for (const auto& peer : peers_) {
    if (point_to_point_.forgets_memory()) continue;
    static_cast<void>(peer->heard.release());
    for (Said& said : peer->said) static_cast<void>(said.word.release());
  }
}

void FailureDetector::open_ear(Peer& peer) {
  peer.hearing = point_to_point_.receive(peer.heard.get(), sizeof(Word), peer.rank, kLastWordsTag);
}

void FailureDetector::listen(Peer& peer) {
  try {
    while (hear(peer)) {
      const std::lock_guard lock(mutex_);
      open_ear(peer);
      if (closing_) peer.hearing->interrupt();
    }
  } catch (const std::exception& error) {
    if (!closing_) conclude(peer, Kind::lost, error.what());
  }
}

// Whether there will be more to hear.
bool FailureDetector::hear(Peer& peer) {
  while (!peer.hearing->wait(closing_)) {
    if (!closing_) continue;
    // Nobody will be here to receive it: the peer must learn that now.
    peer.hearing->break_off();
    return false;
  }
  const std::string text(peer.heard->text.data(),
                         std::min<std::size_t>(peer.heard->length, peer.heard->text.size()));
  switch (peer.heard->message) {
    case Message::ask:
      say(peer, Message::answer, waits_() ? "waits" : "");
      return true;
    case Message::answer: {
      const std::lock_guard lock(mutex_);
      peer.has_answered = true;
      peer.waits = !text.empty();
      changed_.notify_all();
      return true;
    }
    case Message::left:
      say(peer, Message::left, "");
      conclude(peer, Kind::left, text);
      return false;
    case Message::failed:
      say(peer, Message::left, "");  // it is heard
      conclude(peer, Kind::failed, text);
      return false;
  }
  return false;
}

void FailureDetector::conclude(Peer& peer, Kind kind, const std::string& text) {
  listener_(peer.rank, kind, text);
  const std::lock_guard lock(mutex_);
  peer.is_through = true;
  changed_.notify_all();
}

void FailureDetector::say(Peer& peer, Message message, const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  if (peer.has_my_last_word) return;
  peer.has_my_last_word = message == Message::left || message == Message::failed;
  try {
    Said& said = peer.said.emplace_back();
    said.word = std::make_unique<Word>();
    said.word->message = message;
    said.word->length = static_cast<std::uint32_t>(std::min(text.size(), said.word->text.size()));
    std::memcpy(said.word->text.data(), text.data(), said.word->length);
    said.sending = point_to_point_.send(said.word.get(), sizeof(Word), peer.rank, kLastWordsTag);
  } catch (const std::exception&) {  // it is gone, and needs no word
    if (!peer.said.empty() && !peer.said.back().sending) peer.said.pop_back();
  }
}

// A connection that closes takes what is still on its way with it, so the words have to be heard, not sent.
void FailureDetector::say_failed(const std::string& why, Deadline deadline) noexcept {
  for (const auto& peer : peers_) say(*peer, Message::failed, why);
  for (const auto& peer : peers_) wait_for(peer->rank, deadline);
}

void FailureDetector::leave(Deadline deadline) noexcept {
  for (const auto& peer : peers_) say(*peer, Message::left, "");
  for (const auto& peer : peers_) wait_for(peer->rank, deadline);
}

std::vector<int> FailureDetector::silent_ranks(Deadline deadline) noexcept {
  for (const auto& peer : peers_) say(*peer, Message::ask, "");
  std::vector<int> silent;
  std::unique_lock lock(mutex_);
  for (const auto& peer : peers_) {
    const bool speaks =
        changed_.wait_until(lock, deadline.at(), [&] { return peer->has_answered || peer->is_through; });
    if (!speaks) silent.push_back(peer->rank);
  }
  return silent;
}

std::vector<int> FailureDetector::idle_ranks() noexcept {
  std::vector<int> idle;
  const std::lock_guard lock(mutex_);
  for (const auto& peer : peers_)
    if (peer->has_answered && !peer->waits && !peer->is_through) idle.push_back(peer->rank);
  return idle;
}

bool FailureDetector::wait_for(int rank, Deadline deadline) noexcept {
  const auto peer =
      std::find_if(peers_.begin(), peers_.end(), [&](const auto& p) { return p->rank == rank; });
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.at(), [&] { return (*peer)->is_through; });
}

}  // namespace dear::channels
