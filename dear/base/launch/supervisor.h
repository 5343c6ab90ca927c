#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/launch/causes.h"
#include "dear/base/launch/held_signals.h"
#include "dear/base/launch/hosts.h"
#include "dear/base/launch/keeper.h"
#include "dear/base/launch/launcher.h"
#include "dear/base/launch/members.h"
#include "dear/base/launch/open_file_limit.h"
#include "dear/base/launch/rank_environment.h"
#include "dear/base/launch/records.h"
#include "dear/base/launch/restarts.h"
#include "dear/base/launch/sink.h"
#include "dear/base/membership/registrar.h"
#include "dear/base/vocabulary/deadline.h"

namespace dear::launch {

// One start of a job: its ranks from their start to their end. One thread.
class Supervisor {
 public:
  // Starts them. `hosts`: of a job on several; null for none.
  Supervisor(const LaunchOptions& options, Restarts& restarts, Hosts* hosts);

  // Until all have ended: the exit code of the job.
  int run();
  // After run(): with how many ranks the job is started again; none where it is over.
  std::optional<int> next_start();

 private:
  void start(int rank);
  // Whether its host takes ranks.
  [[nodiscard]] bool can_start(int rank) const;
  [[nodiscard]] JobFailure failure_of(const Member& member) const;
  [[nodiscard]] std::int64_t furthest_step() const;

  // The roster follows the processes that ended, [Note: membership].
  void follow_members();
  // Whether those that work give up the step in which a rank failed, and go on; another process may take its
  // place.
  bool go_on_without(Member& failed);
  // Likewise where the host of a rank is lost: others take its place when the host comes back.
  bool go_on_without_host(Member& failed);
  // Tells a host that is at fault to end its ranks and itself.
  void leave_out(int host);
  void hear_hosts();
  void hear_rank(const Hosts::Event& event, int rank);
  void take_back(int host);  // that was lost
  void tell_of_job(int host);
  [[nodiscard]] membership::Registrar::Hosts places();
  [[nodiscard]] int host_of(int rank) const {
    return host_of_.empty() ? 0 : host_of_.at(static_cast<std::size_t>(rank));
  }

  void on_signal(int signal);
  // The first signal begins the grace. A second one ends the job at once; one of another kind that comes
  // along with the first is none.
  void end_by(int signal);
  void pass_on_output();
  // Waits until something happens, the grace is over, or held-back lines are to be shown.
  void wait();
  // Notes the first failure. Where several ranks failed at once, one that was killed explains the errors of
  // the others, and not the reverse.
  void notice_failure();
  // `ends`: the ranks that live are told to end next.
  void look(bool ends);
  void write_records();
  // The last line: the first cause that a rank gave, of a job that failed and was not told to end.
  void say_verdict();
  // Whether the rank ended as it was told to, or has said why it did.
  [[nodiscard]] bool is_explained(const Ending& ending) const;
  void keep_time();
  void start_grace();

  // Whether every rank has ended and its output is closed. The output of killed ranks is not waited for: a
  // process that left their group may hold it open.
  [[nodiscard]] bool ended() const { return members_.all_ended() && (killed_ || members_.all_silent()); }
  // Whether the job has ended and all output is written, or nobody reads it though the job was told to end.
  [[nodiscard]] bool over() const {
    if (given_up_) return true;
    return ended() && ((output_.empty() && error_.empty()) || (killed_ && told_to_end_));
  }

  static constexpr auto kOneEvent = std::chrono::seconds(1);
  static constexpr auto kLeftovers = std::chrono::seconds(5);
  static constexpr auto kLastWait = std::chrono::seconds(10);  // after SIGKILL

  [[nodiscard]] static double seconds_since(SteadyTime then) {
    return std::round(10 * std::chrono::duration<double>(SteadyClock::now() - then).count()) / 10;
  }

  const LaunchOptions& options_;
  Restarts& restarts_;
  Hosts* const hosts_;
  std::vector<int> host_of_;  // by rank, of a job on several hosts
  Job job_;
  os::FileDescriptor secret_;  // ranks read it as long as it is open here
  Causes causes_;
  HeldSignals signals_;
  OpenFileLimit limit_;
  Records records_;
  std::optional<membership::Registrar> registrar_;  // where ranks may come and go
  Sink output_, error_;
  Members members_;
  Keeper keeper_;  // after the members: gone before they are reaped (keeper.h)
  Member* failed_ = nullptr;
  std::optional<Deadline> grace_;
  std::optional<SteadyTime> next_show_;  // of what was held back
  std::optional<int> told_to_end_;       // by this signal
  SteadyTime told_at_;
  std::optional<Deadline> last_wait_;
  std::int64_t furthest_elsewhere_ = 0;  // step
  bool over_ = false;                    // no restart helps
  bool all_ended_before_ = false, killed_ = false, given_up_ = false;
};

}  // namespace dear::launch
