#include "dear/base/liveness/liveness.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <poll.h>
#include <pthread.h>
#include <set>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "dear/base/liveness/connect.h"
#include "dear/base/liveness/judge.h"
#include "dear/base/os/start_thread.h"

namespace dear::liveness {
namespace {

constexpr std::chrono::milliseconds kBeat{500};

}  // namespace

// What the thread shares with others.
struct Liveness::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Word> word;
  bool told = false;
  bool leaving = false;
  std::optional<Verdict> verdict;
  std::vector<Listener> listeners;
  os::FileDescriptor bell{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  void ring() const { ::eventfd_write(bell.get(), 1); }
};

// The thread.
class Liveness::Watch {
 public:
  Watch(int rank, int epoch, Connected connected, std::shared_ptr<Shared> shared)
      : rank_(rank),
        parent_(connected.node.parent),
        neighbours_(std::move(connected.neighbours)),
        judge_(epoch, std::move(connected.names)),
        shared_(std::move(shared)) {}

  void run() {
    SteadyTime next_beat = SteadyClock::now();
    for (bool leaving = false; !leaving;) {
      leaving = take_orders();
      hear();
      judge(leaving);
      if (leaving) say_farewell();
      if (const SteadyTime now = SteadyClock::now(); now >= next_beat) {
        beat();
        next_beat = now + kBeat;
      }
      for (const auto& one : neighbours_) one->send();
      if (!leaving) sleep(next_beat);
    }
  }

 private:
  [[nodiscard]] Neighbour* parent() const {
    for (const auto& one : neighbours_)
      if (one->rank == parent_) return one.get();
    return nullptr;
  }
  [[nodiscard]] Neighbour* child(int rank) const {
    for (const auto& one : neighbours_)
      if (one->rank == rank && rank != parent_) return one.get();
    return nullptr;
  }
  void say_to_children(const Message& message, bool near_too) {
    for (const auto& one : neighbours_)
      if (one->rank != parent_ && (near_too || !one->is_near)) one->say(message);
  }

  bool take_orders() {
    std::uint64_t rings = 0;
    ::eventfd_read(shared_->bell.get(), &rings);
    std::unique_lock lock(shared_->mutex);
    const bool leaving = shared_->leaving;
    const std::optional<Word> word = std::exchange(shared_->word, std::nullopt);
    lock.unlock();
    if (word) accuse(rank_, *word);
    return leaving;
  }

  void hear() {
    std::vector<int> gone;
    for (const auto& one : neighbours_) {
      for (const Message& message : one->hear()) obey(*one, message);
      if (one->is_gone()) gone.push_back(one->rank);
    }
    for (const int rank : gone) {
      const auto at = std::find_if(neighbours_.begin(), neighbours_.end(),
                                   [&](const auto& n) { return n->rank == rank; });
      const bool left = (*at)->has_left;
      neighbours_.erase(at);
      if (!left) accuse(rank_, {.culprit = rank, .cause = Cause::died, .text = {}});
    }
  }

  void obey(Neighbour& from, const Message& message) {
    switch (message.kind) {
      case Message::Kind::beat:
        return;
      case Message::Kind::left:
        from.has_left = from.has_left || message.rank == from.rank;
        judge_.note_left(message.rank);
        if (Neighbour* const up = parent(); up != nullptr && up != &from) up->say(message);
        return;
      case Message::Kind::word:
        if (const auto word = word_from(message.text)) accuse(message.rank, *word);
        return;
      case Message::Kind::verdict:
        if (const auto verdict = verdict_from(message.text)) adopt(*verdict);
        return;
      case Message::Kind::ask:
        return locate(message.rank);
      case Message::Kind::place:
        return note_place(message.rank, message.text);
    }
  }

  // Without a parent this rank decides.
  void accuse(int reporter, const Word& word) {
    judge_.hear(reporter, word, SteadyClock::now());
    if (Neighbour* const up = parent())
      up->say({.kind = Message::Kind::word, .rank = reporter, .text = to_bytes(word)});
  }

  void judge(bool at_once) {
    if (verdict_ || parent() != nullptr) return;
    if (const auto wanted = judge_.asks(); wanted && asked_.insert(*wanted).second) locate(*wanted);
    const auto due = judge_.due();
    if (due && (at_once || SteadyClock::now() >= *due)) adopt(judge_.decide());
  }

  // A rank that runs says itself where it is.
  void locate(int rank) {
    if (rank == rank_) return note_place(rank, describe(recorder::standing()));
    Neighbour* const one = child(rank);
    const Message ask{.kind = Message::Kind::ask, .rank = rank};
    if (one == nullptr) return say_to_children(ask, false);
    if (one->is_stopped()) return note_place(rank, one->place());
    one->say(ask);
  }
  void note_place(int rank, const std::string& place) {
    if (place.empty()) return;
    judge_.note_place(rank, place);
    if (Neighbour* const up = parent()) up->say({.kind = Message::Kind::place, .rank = rank, .text = place});
  }

  // The others hear of it before this rank acts on it.
  void adopt(const Verdict& verdict) {
    if (verdict_) return;
    verdict_ = verdict;
    say_to_children({.kind = Message::Kind::verdict, .text = to_bytes(verdict)}, true);
    for (const auto& one : neighbours_) one->send();
    std::vector<Listener> listeners;
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->verdict = verdict;
      listeners.swap(shared_->listeners);
    }
    shared_->changed.notify_all();
    for (const Listener& listener : listeners) listener(verdict);
  }

  void beat() {
    const recorder::Standing standing = recorder::standing();
    for (const auto& one : neighbours_)
      if (one->rank == parent_ || !one->is_near) one->beat(standing);
  }

  void say_farewell() {
    for (const auto& one : neighbours_) one->say({.kind = Message::Kind::left, .rank = rank_});
  }

  void sleep(SteadyTime next_beat) {
    SteadyTime until = next_beat;
    if (const auto due = judge_.due(); due && !verdict_ && parent() == nullptr) until = std::min(until, *due);
    entries_.assign(1, {.fd = shared_->bell.get(), .events = POLLIN});
    for (const auto& one : neighbours_) one->add_to(entries_);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now());
    ::poll(entries_.data(), entries_.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
  }

  const int rank_;
  const int parent_;
  std::vector<std::unique_ptr<Neighbour>> neighbours_;
  Judge judge_;
  std::set<int> asked_;
  std::optional<Verdict> verdict_;
  std::vector<pollfd> entries_;
  const std::shared_ptr<Shared> shared_;
};

std::shared_ptr<Liveness> Liveness::make(const Options& options, const Exchange& exchange) {
  if (options.size == 1) return nullptr;
  std::optional<Connected> connected = connect(options, exchange);
  if (!connected) return nullptr;
  const auto shared = std::make_shared<Shared>();
  std::shared_ptr<Liveness> made(new Liveness(options.rank, connected->node.parent, shared));
  const auto watch = std::make_shared<Watch>(options.rank, options.epoch, *std::move(connected), shared);
  made->thread_ = os::start_thread("that watches whether ranks live", [watch] { watch->run(); });
  ::pthread_setname_np(made->thread_.native_handle(), "dear-liveness");
  return made;
}

Liveness::~Liveness() {
  if (getpid() != process_) {
    thread_.detach();  // it is not here, and what it shares stays
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->leaving = true;
  }
  shared_->ring();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Liveness::listen(Listener listener) {
  std::unique_lock lock(shared_->mutex);
  if (!shared_->verdict) {
    shared_->listeners.push_back(std::move(listener));
    return;
  }
  const Verdict verdict = *shared_->verdict;
  lock.unlock();
  listener(verdict);
}

void Liveness::tell(const Word& word) noexcept {
  if (getpid() != process_) return;
  {
    const std::lock_guard lock(shared_->mutex);
    if (std::exchange(shared_->told, true)) return;
    shared_->word = word;
  }
  shared_->ring();
}

std::optional<Verdict> Liveness::wait(Deadline deadline) noexcept {
  if (getpid() != process_ || thread_.get_id() == std::this_thread::get_id()) return std::nullopt;
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_until(lock, deadline.at(), [&] { return shared_->verdict.has_value(); });
  return shared_->verdict;
}

}  // namespace dear::liveness
