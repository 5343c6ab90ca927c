#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/launch/hosts.h"
#include "dear/base/launch/rank_environment.h"

namespace dear::launch {

inline constexpr int kMostRanks = 1024;

struct LaunchOptions {
  std::string who = "dear launch";        // stands before what the launcher itself says on standard error
  int ranks = 1;                          // 1 to kMostRanks
  std::vector<std::string> command = {};  // the program, looked up in PATH, and its arguments
  Variables environment = {};             // for every rank, besides torchrun's variables
  bool prefix = true;  // "[r] " before every line; without it ranks write to the output of this process
  // The ranks are this command itself, called `who`, and say themselves why they fail: that is shown when all
  // have ended, each reason once, and who exited with which code is not.
  bool ranks_say_why = false;
  bool bind = false;  // keep each rank on its part of the cores
  // A folder for the flight records of the ranks (records.h); none: they stay in memory.
  std::string record = {};
  // A job that fails is started again so often, in a new process for each rank, with as many ranks or, where
  // a rank fails again without progress, one less, but not below `least_ranks` (restarts.h); 0: as many as at
  // first. Ranks find the number of the restart in TORCHELASTIC_RESTART_COUNT, and go on from a checkpoint of
  // their own.
  int restarts = 0;
  int least_ranks = 0;
  // The launchers of a job on several hosts meet so (hosts.h). `ranks` and `least_ranks` then count those of
  // all hosts; without `elastic` the hosts say how many they are.
  std::optional<HostsOptions> hosts = {};
  bool elastic = false;  // ranks may come and go
  // From SIGTERM, or another signal that ends the job, to SIGKILL.
  std::chrono::duration<double> grace = std::chrono::seconds(30);
};

// Runs one program as all ranks of a job on this host, or on several, [Note: hosts], and sees to it that they
// end together.
//
// Rank 0 reads the launcher's standard input unless that is a terminal; the other ranks read nothing. SIGINT,
// SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to all ranks. The job ends, or goes on, as its
// ranks do; what has not ended within the grace after a signal other than SIGUSR1 and SIGUSR2 is killed, and
// a second one kills at once. A slow reader of the output holds up the ranks that write, and nothing else:
// once the job was told to end, output that is not read within the grace is dropped. The first rank that
// fails is named on standard error, unless it ended by a signal that was passed on; where a rank has said why
// (causes.h), rank and cause are the last line. The other ranks get SIGTERM and, after the grace, SIGKILL.
// Each rank has a process group of its own. What is left of a group when the job ends, or the launcher is
// killed, is killed (keeper.h); when the job ends, also what has left its group (strays.h).
class Launcher {
 public:
  explicit Launcher(LaunchOptions options);  // ConfigError for a number of ranks out of range, or no program

  // Returns 0 when every rank exited with 0, else the exit code of the first rank that failed, which is 128 +
  // signal for a rank that was killed. ConfigError when the program cannot be run, TransportError when the
  // system refuses a resource; on several hosts also TimeoutError where one does not come. The calling
  // thread must outlive the job.
  int run() const;

 private:
  // On the host that leads, of several; null for one host.
  [[nodiscard]] int run(LaunchOptions options, Hosts* hosts) const;
  LaunchOptions options_;
};

}  // namespace dear::launch
