#include "dear/train/c10d/last_words.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/train/c10d/message.h"

namespace dear::train {

struct LastWords::Word {
  Kind kind = Kind::left;
  std::uint32_t length = 0;
  std::array<char, 1016> text{};
};

LastWords::LastWords(ProcessGroup group, Listener listener)
    : group_(std::move(group)), watcher_(group_), listener_(std::move(listener)) {
  static_assert(sizeof(Word) == 1024);
  for (int rank = 0; rank < group_->getSize(); ++rank) {
    if (rank == group_->getRank()) continue;
    auto peer = std::make_unique<Peer>();
    peer->rank = rank;
    peer->heard = std::make_unique<Word>();
    std::vector<at::Tensor> tensors{bytes_at(peer->heard.get(), sizeof(Word))};
    peer->hearing = group_->recv(tensors, rank, kLastWordsTag);
    peers_.push_back(std::move(peer));
  }
  try {
    for (const auto& peer : peers_) {
      peer->thread = std::thread([this, at = peer.get()] { listen(*at); });
    }
  } catch (const std::system_error& error) {
    close();
    throw TransportError(fmt::format("rank {} cannot start a thread for each of its peers: {}",
                                     group_->getRank(), error.what()));
  }
}

LastWords::~LastWords() { close(); }

void LastWords::close() noexcept {
  closing_ = true;
  for (const auto& peer : peers_) watcher_.interrupt(peer->hearing);
  for (const auto& peer : peers_) {
    if (peer->thread.joinable()) peer->thread.join();
  }
  for (const auto& peer : peers_) {
    if (watcher_.forgets_memory()) continue;
    watcher_.abandon(std::move(peer->hearing));
    watcher_.abandon(std::move(peer->saying));
    static_cast<void>(peer->heard.release());
    static_cast<void>(peer->said.release());
  }
}

void LastWords::listen(Peer& peer) {
  try {
    while (!watcher_.wait(peer.hearing, closing_)) {
      if (!closing_) continue;
      // Nobody will be here to receive it: the peer must learn that now.
      watcher_.must_be_complete(peer.hearing);
      return;
    }
  } catch (const std::exception& error) {
    if (!closing_) conclude(peer, Kind::lost, error.what());
    return;
  }
  const std::string text(peer.heard->text.data(),
                         std::min<std::size_t>(peer.heard->length, peer.heard->text.size()));
  if (peer.heard->kind == Kind::left) say(peer, Kind::left, "");
  conclude(peer, peer.heard->kind, text);
}

void LastWords::conclude(Peer& peer, Kind kind, const std::string& text) {
  listener_(peer.rank, kind, text);
  const std::lock_guard lock(mutex_);
  peer.is_through = true;
  changed_.notify_all();
}

void LastWords::say(Peer& peer, Kind kind, const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  if (peer.said) return;
  try {
    peer.said = std::make_unique<Word>();
    peer.said->kind = kind;
    peer.said->length = static_cast<std::uint32_t>(std::min(text.size(), peer.said->text.size()));
    std::memcpy(peer.said->text.data(), text.data(), peer.said->length);
    std::vector<at::Tensor> tensors{bytes_at(peer.said.get(), sizeof(Word))};
    peer.saying = group_->send(tensors, peer.rank, kLastWordsTag);
  } catch (const std::exception&) {  // it is gone, and needs no word
  }
}

void LastWords::say_failed(const std::string& why, Deadline deadline) noexcept {
  for (const auto& peer : peers_) say(*peer, Kind::failed, why);
  for (const auto& peer : peers_) {
    Work saying;
    {
      const std::lock_guard lock(mutex_);
      saying = peer->saying;
    }
    if (saying) watcher_.wait_until(saying, deadline);
  }
}

void LastWords::leave(Deadline deadline) noexcept {
  for (const auto& peer : peers_) say(*peer, Kind::left, "");
  for (const auto& peer : peers_) wait_for(peer->rank, deadline);
}

bool LastWords::wait_for(int rank, Deadline deadline) noexcept {
  const auto peer =
      std::find_if(peers_.begin(), peers_.end(), [&](const auto& p) { return p->rank == rank; });
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.at(), [&] { return (*peer)->is_through; });
}

}  // namespace dear::train
