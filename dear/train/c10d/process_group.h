#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/torch.h>

#include "dear/base/deadline.h"

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

// What differs between releases of libtorch, and between the engines behind its process groups, in one place.
namespace dear::train {

// What does the work: until libtorch 1.13 a process group itself, from 2.0 on one of the backends in it.
#if TORCH_VERSION_MAJOR >= 2
using ProcessGroup = c10::intrusive_ptr<::c10d::Backend>;
#else
using ProcessGroup = c10::intrusive_ptr<::c10d::ProcessGroup>;
#endif
using Work = c10::intrusive_ptr<::c10d::Work>;

inline std::string engine_of(const ProcessGroup& group) { return group->getBackendName(); }

// Begins to send or to receive memory of ours. Throws what the engine throws: a connection that broke is an
// error, and no SIGPIPE.
Work start_send(const ProcessGroup& group, void* data, std::int64_t bytes, int peer, int tag);
Work start_receive(const ProcessGroup& group, void* data, std::int64_t bytes, int peer, int tag);

// How to learn that a message has arrived. Of Gloo's, only a wait says it; it sleeps, and another thread can
// end it. A wait whose time is over breaks all connections. Of other engines, isCompleted() says it.
class Waiter {
 public:
  explicit Waiter(const ProcessGroup& group) : sleeps_(engine_of(group) == "gloo") {}

  // Sleeps until it is complete. False once interrupted; throws what it failed with.
  bool wait(const Work& work, const std::atomic<bool>& interrupted) const;
  // Ends the wait of another thread for it, now or the next one; `interrupted` has been set.
  void interrupt(const Work& work) const noexcept;
  // Whether it is complete, for when it must be by now. If it is not, it never will be: with Gloo, this
  // breaks the connections to all ranks, and throws.
  bool must_be_complete(const Work& work) const;
  // Drops one that may be unfinished. Gloo forgets its memory; MPI would end the process, so there it is
  // kept for good.
  void abandon(Work work) const noexcept;
  [[nodiscard]] bool forgets_memory() const { return sleeps_; }

 private:
  bool sleeps_;
};

}  // namespace dear::train
