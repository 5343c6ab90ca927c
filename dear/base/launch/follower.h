#pragma once

#include <memory>
#include <optional>

#include "dear/base/launch/held_signals.h"
#include "dear/base/launch/host_words.h"
#include "dear/base/launch/hosts.h"
#include "dear/base/launch/launcher.h"
#include "dear/base/launch/sink.h"
#include "dear/base/os/memory_folder.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::launch {

// The launcher of a host that does not lead, [Note: hosts]: it starts ranks as the leader says, and tells it
// what becomes of them. SIGINT, SIGTERM, SIGHUP and SIGQUIT end the whole job or, where ranks may come and
// go, those of this host alone. One thread.
class Follower {
 public:
  Follower(const LaunchOptions& options, LeaderWire& leader);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Until the leader says that the job is over: its exit code. 1 where the leader is lost.
  int run();

 private:
  struct Start;  // the ranks of one start of the job
  void hear(const Words& words);
  void begin(const HostJob& job);
  void start(int rank);
  void on_signal(int signal);
  void tell_of_ranks();
  void end_ranks(int code);  // and then this launcher, with this code
  void pass_on_output();
  void wait();
  void keep_time();
  void end_start();  // of which all ranks have ended
  [[nodiscard]] bool over() const;

  LaunchOptions options_;
  LeaderWire& leader_;
  HeldSignals signals_;
  std::optional<Sink> output_, error_;
  std::optional<os::MemoryFolder> folder_;  // of ranks that come and go
  std::unique_ptr<Start> start_;
  std::optional<int> code_;        // of this launcher, which ends
  std::optional<Deadline> grace_;  // then ranks are killed
  std::optional<SteadyTime> next_show_;
  bool leaves_ = false, killed_ = false, given_up_ = false;
};

}  // namespace dear::launch
