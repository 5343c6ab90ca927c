#include "dear/tools/launch/launcher.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <poll.h>
#include <span>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/membership/registrar.h"
#include "dear/base/os/memory_folder.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/tools/launch/causes.h"
#include "dear/tools/launch/cores.h"
#include "dear/tools/launch/held_signals.h"
#include "dear/tools/launch/keeper.h"
#include "dear/tools/launch/members.h"
#include "dear/tools/launch/open_file_limit.h"
#include "dear/tools/launch/records.h"
#include "dear/tools/launch/restarts.h"
#include "dear/tools/launch/sink.h"
#include "dear/tools/launch/strays.h"

namespace dear::launch {
namespace {

// Records of a start again lie beside those of the start before.
std::string folder_of(const std::string& record, int restarts) {
  return record.empty() || restarts == 0 ? record : fmt::format("{}/restart-{}", record, restarts);
}

class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, Restarts& restarts)
      : options_(options),
        restarts_(restarts),
        limit_(options.ranks, options.restarts),
        records_(options.ranks, folder_of(options.record, restarts.restarts())),
        output_(STDOUT_FILENO, options),
        error_(STDERR_FILENO, options) {
    job_.secret_file = secret_file(secret_);
    job_.restarts = restarts.restarts();
    if (options.least_ranks < options.ranks) registrar_.emplace(options.ranks);
    for (int rank = 0; rank < options.ranks; ++rank) start(rank);
  }

  // After run(): with how many ranks the job is started again; none where it is over.
  std::optional<int> next_start() {
    if (!failed_ || told_to_end_) return std::nullopt;
    const JobFailure failure = failure_of(*failed_);
    const std::optional<int> ranks = over_ ? std::nullopt : restarts_.after(failure);
    if (ranks)
      error_.say(
          fmt::format("restart {} of {}, with {} ranks: rank {} failed, and the job had come to step {}",
                      restarts_.restarts(), options_.restarts, *ranks, failure.rank, failure.step));
    else if (!restarts_.why().empty())
      error_.say(restarts_.why());
    return ranks;
  }

  int run() {
    while (!over()) {
      wait();
      while (const std::optional<int> signal = signals_.next()) {
        const bool ends = *signal != SIGUSR1 && *signal != SIGUSR2;
        if (*signal != SIGUSR1 && !failed_) look(ends);  // before ranks act on it
        members_.send(*signal);
        if (ends) end_by(*signal);
      }
      causes_.read();
      pass_on_output();
      if (registrar_) follow_members();
      if (!failed_) {
        notice_failure();
      }
      keep_time();
    }
    kill_strays(job_.run_id);
    say_verdict();
    write_records();
    if (failed_) return failed_->ending->exit_code();
    return members_.all_ended() ? 0 : 128 + SIGKILL;
  }

 private:
  void start(int rank) {
    Variables variables = records_.variables(rank);
    variables.insert(variables.end(), options_.environment.begin(), options_.environment.end());
    variables.emplace_back("DEAR_CAUSES", causes_.path());
    if (registrar_) {
      variables.emplace_back("DEAR_MEMBERSHIP", registrar_->place());
      variables.emplace_back("DEAR_MEMBER", std::to_string(rank));
    }
    members_.start(
        rank,
        {.command = options_.command,
         .environment = rank_environment(job_, rank, inherited_environment(), variables),
         .reads_input = rank == 0 && ::isatty(STDIN_FILENO) == 0,
         .piped_output = options_.prefix,
         .piped_error = options_.prefix || options_.ranks_say_why,
         .cores = options_.bind ? cores_of_rank(job_.cores, options_.ranks, rank) : std::vector<int>(),
         .signal_mask = signals_.before(),
         .open_files = limit_.before()},
        keeper_);
  }

  [[nodiscard]] JobFailure failure_of(const Member& member) const {
    // The rank that told its cause first, and not one that was ended with it.
    const std::optional<Causes::First>& told = causes_.first();
    return {.rank = told ? told->rank : member.rank,
            .signal = told ? 0 : member.ending->signal,
            .step = records_.furthest_step(),
            .together = registrar_ && registrar_->fails_with_another(member.rank)};
  }

  // The roster follows the processes that ended, [Note: membership].
  void follow_members() {
    registrar_->read();
    std::vector<Member*> ended;
    bool works = false;
    for (const auto& member : members_) {
      works = works || (!member->ending && (registrar_->works(member->rank) || !registrar_->roster().begun));
      if (member->ending && !member->settled) ended.push_back(member.get());
    }
    for (Member* const member : ended) {
      if (failed_ || told_to_end_) return;
      if (member->ending->failed()) {
        if (!go_on_without(*member)) return;
      } else {
        registrar_->leaves(member->rank, true);
        member->settled = true;
      }
    }
    if (works || failed_ || told_to_end_) return;
    // The work is done: who was about to join has none.
    for (const auto& member : members_) {
      if (member->ending || member->settled) continue;
      member->settled = member->told_to_end = true;
      member->process.send(SIGTERM);
      start_grace();
    }
  }

  // Whether those that work give up the step in which a rank failed, and go on; another process may take its
  // place.
  bool go_on_without(Member& failed) {
    int others = 0, coming = 0;
    for (const auto& member : members_) {
      if (member->ending) continue;
      ++(registrar_->works(member->rank) ? others : coming);
    }
    if (others < options_.least_ranks) return false;
    causes_.read();
    const JobFailure failure = failure_of(failed);
    const std::optional<int> ranks = restarts_.after(failure);
    over_ = !ranks && !restarts_.used_up();
    if (over_) return false;
    const bool again = ranks && others + coming < *ranks;
    error_.say(fmt::format(
        "rank {} {}, and the job had come to step {}: it goes on with {} {}{}", failed.rank,
        causes_.first() ? "failed: " + causes_.first()->why : failed.ending->to_string(), failure.step,
        others, others == 1 ? "rank" : "ranks", again ? ", and another process takes its place" : ""));
    failed.settled = true;
    causes_.forget();
    registrar_->leaves(failed.rank, false);
    if (again) {
      registrar_->enters(failed.rank);
      start(failed.rank);
    }
    return true;
  }

  // The first signal begins the grace. A second one ends the job at once; one of another kind that comes
  // along with the first is none.
  void end_by(int signal) {
    const SteadyTime now = SteadyClock::now();
    if (!told_to_end_) {
      told_to_end_ = signal;
      told_at_ = now;
      return start_grace();
    }
    if (signal == *told_to_end_ || now - told_at_ > kOneEvent) {
      if (!killed_) grace_ = Deadline(now);
    }
  }

  void pass_on_output() {
    for (const auto& member : members_) {
      output_.read_from(member->rank, member->process.output);
      error_.read_from(member->rank, member->process.error);
    }
    next_show_.reset();
    for (Sink* sink : {&output_, &error_}) {
      if (const auto next = sink->show_held_back(); next && (!next_show_ || *next < *next_show_))
        next_show_ = next;
      if (ended()) sink->finish();
      sink->write();
    }
  }

  // Waits until something happens, the grace is over, or held-back lines are to be shown.
  void wait() {
    std::vector<pollfd> files{{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    for (const Sink* sink : {&output_, &error_})
      files.push_back({.fd = sink->empty() ? -1 : sink->fd(), .events = POLLOUT, .revents = 0});
    const std::size_t first = files.size();
    members_.add_to(files, output_.takes(), error_.takes());
    files.push_back({.fd = causes_.fd(), .events = POLLIN, .revents = 0});
    files.push_back({.fd = registrar_ ? registrar_->fd() : -1, .events = POLLIN, .revents = 0});
    std::optional<Deadline> until = grace_ ? grace_ : last_wait_;
    if (next_show_ && (!until || *next_show_ < until->at())) until = Deadline(*next_show_);
    poll_until(files, until);
    members_.take_endings(std::span(files).subspan(first));
  }

  // Notes the first failure. Where several ranks failed at once, one that was killed explains the errors of
  // the others, and not the reverse.
  void notice_failure() {
    for (const auto& member : members_) {
      const bool failed = member->ending && member->ending->failed() && !member->settled;
      if (failed && (!failed_ || (failed_->ending->signal == 0 && member->ending->signal != 0))) {
        failed_ = member.get();
      }
    }
    if (failed_) {
      causes_.read();  // a rank writes its own before it ends
      if (!causes_.first() && !is_explained(*failed_->ending))
        error_.say(fmt::format("rank {} {}{}", failed_->rank, failed_->ending->to_string(),
                               members_.all_ended() ? "" : "; ending the other ranks"));
      look(true);
      members_.send(SIGTERM);
      start_grace();
    }
  }

  // `ends`: the ranks that live are told to end next.
  void look(bool ends) {
    try {
      records_.look(members_.seen());
    } catch (const std::exception& error) {
      error_.say(fmt::format("cannot write the records: {}", error.what()));
    }
    for (const auto& member : members_) member->told_to_end = ends && !member->ending;
    write_records();
  }
  void write_records() {
    try {
      const auto& first = causes_.first();
      records_.write(members_.seen(), first ? first->rank : -1, first ? first->why : "");
    } catch (const std::exception& error) {
      error_.say(fmt::format("cannot write the records: {}", error.what()));
    }
  }

  // The last line: the first cause that a rank gave, of a job that failed and was not told to end.
  void say_verdict() {
    causes_.read();
    if (!failed_ || told_to_end_ || !causes_.first()) return;
    const Causes::First& first = *causes_.first();
    for (const auto& member : members_)
      if (member->rank == first.rank && member->ending && member->ending->code != 0) failed_ = member.get();
    error_.say(fmt::format("rank {} failed first, {:.1f} s after the start: {}", first.rank, first.seconds,
                           first.why));
  }

  // Whether the rank ended as it was told to, or has said why it did.
  [[nodiscard]] bool is_explained(const Ending& ending) const {
    if (killed_ || (told_to_end_ && ending.exit_code() == 128 + *told_to_end_)) return true;
    return options_.ranks_say_why && ending.signal == 0 && error_.knows_why();
  }

  void keep_time() {
    if (members_.all_ended() && !all_ended_before_ && !killed_) {
      // For what ranks left running, until it closes their output.
      all_ended_before_ = true;
      const Deadline leftovers =
          Deadline::after(std::min<std::chrono::duration<double>>(options_.grace, kLeftovers));
      if (!grace_ || leftovers.at() < grace_->at()) grace_ = leftovers;
    }
    if (grace_ && grace_->expired()) {
      const std::vector<int> late = members_.running();
      if (!late.empty()) {
        error_.say(fmt::format(
            "rank {} did not end within {:g} s of {} and is killed", fmt::join(late, ", "),
            told_to_end_ ? std::min(options_.grace.count(), seconds_since(told_at_)) : options_.grace.count(),
            told_to_end_ ? fmt::format("SIG{}", ::sigabbrev_np(*told_to_end_)) : "SIGTERM"));
      }
      members_.send(SIGKILL);
      kill_strays(job_.run_id);
      grace_.reset();
      killed_ = true;
      last_wait_ = Deadline::after(kLastWait);
    }
    if (last_wait_ && last_wait_->expired()) {
      if (!members_.all_ended())
        error_.say("a rank does not end though it was killed (see ps, state D): it is left to the system");
      last_wait_.reset();
      given_up_ = true;
    }
  }

  void start_grace() {
    if (!grace_ && !killed_) {
      grace_ = Deadline::after(options_.grace);
    }
  }

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
  const os::FileDescriptor secret_ = make_secret();  // ranks read it as long as it is open here
  Job job_ = describe_job(options_.ranks);
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
  bool over_ = false;  // no restart helps
  bool all_ended_before_ = false, killed_ = false, given_up_ = false;
};

}  // namespace

Launcher::Launcher(LaunchOptions options) : options_(std::move(options)) {
  if (options_.ranks < 1 || options_.ranks > kMostRanks) {
    throw ConfigError(
        fmt::format("cannot start {} ranks: give a number from 1 to {}", options_.ranks, kMostRanks));
  }
  if (options_.least_ranks == 0) options_.least_ranks = options_.ranks;
  if (options_.restarts < 0 || options_.least_ranks < 1 || options_.least_ranks > options_.ranks)
    throw ConfigError(
        fmt::format("{} restarts with {} to {} ranks cannot be: give at least 0, and from 1 to {} ranks",
                    options_.restarts, options_.least_ranks, options_.ranks, options_.ranks));
  if (options_.command.empty() || options_.command.front().empty()) {
    throw ConfigError("no program to launch: name it after the options");
  }
}

int Launcher::run() const {
  LaunchOptions options = options_;
  Restarts restarts(options.least_ranks, options.ranks, options.restarts);
  std::optional<os::MemoryFolder> folder;  // of ranks that come and go
  if (options.least_ranks < options.ranks)
    options.environment.emplace_back("DEAR_ELASTIC_FOLDER", folder.emplace().path() + "/state");
  for (;;) {
    Supervisor job(options, restarts);
    const int code = job.run();
    const std::optional<int> ranks = job.next_start();
    if (!ranks) return code;
    options.ranks = *ranks;
  }
}

}  // namespace dear::launch
