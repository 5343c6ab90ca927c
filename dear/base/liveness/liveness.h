#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <vector>

#include "dear/base/liveness/verdict.h"
#include "dear/base/os/host_key.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::liveness {

// [Note: liveness] Whether ranks live is known apart from the data that they exchange. Each rank has a
// connection to the lowest rank of its host (a local socket), and those lead their hosts: they have
// connections in a tree to rank 0 (TCP). A thread of each rank sleeps on them. A beat goes up every 500 ms,
// between hosts down, too, and says where the rank is.
//
// A rank is dead when its connection ends without a word, or when its process has ended, which the kernel
// tells at once, also where a process that was forked from it lives on. A rank that is stopped or starved is
// not dead: its kernel keeps its connections. A host is dead when its kernel acknowledges nothing for 30 s.
//
// Rank 0 decides what the failure is of all that it is told (judge.h), once, and all ranks are given that
// verdict. Below a rank that died, or left before the others, each of its children decides for the ranks
// behind it; what it says of that rank is what the others say.
class Liveness {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    int epoch = 0;           // of the job: how often it was started again
    std::string key{};       // of the job (admission/handshake.h)
    std::string address{};   // of this host for others; "" where it is not known
    bool takes_part = true;  // else no rank has a Liveness
    std::string host = os::host_key();
    Deadline deadline;  // for ranks to connect
  };
  // Gives every rank the text of every rank, by rank. All ranks call it.
  using Exchange = std::function<std::vector<std::string>(const std::string& mine)>;

  // All ranks call it; it exchanges up to three texts. Null on all ranks where one has no connection or
  // takes no part, and where there is one rank: then failures are told as the group tells them. Nothing
  // listens when it returns. Errors are those of the exchange.
  static std::shared_ptr<Liveness> make(const Options& options, const Exchange& exchange);

  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;
  // Tells the others that this rank leaves. Does nothing in a process that was forked.
  ~Liveness();

  // Called once, on a thread of its own, with the verdict; at once where there is one. No lock is held.
  using Listener = std::function<void(const Verdict&)>;
  void listen(Listener listener);

  // Tells of a failure. The first word of a rank counts.
  void tell(const Word& word) noexcept;
  // Waits for the verdict, at most until the deadline.
  std::optional<Verdict> wait(Deadline deadline) noexcept;

  [[nodiscard]] int rank() const { return rank_; }
  // Whether a verdict comes to this rank by that one.
  [[nodiscard]] bool hears_through(int rank) const { return rank == 0 || rank == parent_; }

 private:
  struct Shared;
  class Watch;
  Liveness(int rank, int parent, std::shared_ptr<Shared> shared)
      : rank_(rank), parent_(parent), shared_(std::move(shared)) {}

  int rank_, parent_;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
  pid_t process_ = getpid();
};

}  // namespace dear::liveness
