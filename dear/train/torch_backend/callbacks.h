#pragma once

#include <functional>
#include <memory>

namespace dear::torch_backend {

// Runs what programs have attached to futures. [Note: callbacks] A callback may wait for another collective,
// as the hooks of DistributedDataParallel do, so it runs neither on the thread of a group nor behind another
// callback: a job that finds no thread idle gets a thread of its own, which then stays for others.
class Callbacks {
 public:
  Callbacks();
  ~Callbacks();  // waits for the jobs, but for one that it is called from
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;
  void post(std::function<void()> job);  // any thread; the job must not throw

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dear::torch_backend
