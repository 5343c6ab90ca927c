#include "dear/tools/launch/launcher.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/tools/launch/causes.h"
#include "dear/tools/launch/cores.h"
#include "dear/tools/launch/held_signals.h"
#include "dear/tools/launch/keeper.h"
#include "dear/tools/launch/rank_process.h"
#include "dear/tools/launch/records.h"
#include "dear/tools/launch/restarts.h"
#include "dear/tools/launch/sink.h"
#include "dear/tools/launch/strays.h"

namespace dear::launch {
namespace {

// Raises the limit of open files while it lives, so that there is room for four files a rank.
class OpenFileLimit {
 public:
  explicit OpenFileLimit(int ranks) : before_(limit_of_open_files()) {
    const rlim_t needed = 64 + 4 * static_cast<rlim_t>(ranks);
    if (needed > before_.rlim_max) {
      throw TransportError(
          fmt::format("{} ranks need {} open files, and this system allows {}; start fewer ranks, or raise "
                      "the limit (ulimit -Hn)",
                      ranks, needed, before_.rlim_max));
    }
    const rlimit wanted{.rlim_cur = std::max(needed, before_.rlim_cur), .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &wanted);
  }
  ~OpenFileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  OpenFileLimit(const OpenFileLimit&) = delete;
  OpenFileLimit& operator=(const OpenFileLimit&) = delete;

  [[nodiscard]] const rlimit& before() const { return before_; }

 private:
  rlimit before_;
};

struct Member {
  Member(int rank_number, const RankProgram& program, const Keeper& keeper)
      : rank(rank_number), process(program, keeper) {}
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  [[nodiscard]] bool silent() const { return !process.output.is_open() && !process.error.is_open(); }

  int rank;
  RankProcess process;
  std::optional<Ending> ending;
  bool told_to_end = false;
};

// Records of a start again lie beside those of the start before.
std::string folder_of(const std::string& record, int restarts) {
  return record.empty() || restarts == 0 ? record : fmt::format("{}/restart-{}", record, restarts);
}

class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, int restarts)
      : options_(options),
        limit_(options.ranks),
        records_(options.ranks, folder_of(options.record, restarts)),
        output_(STDOUT_FILENO, options),
        error_(STDERR_FILENO, options) {
    job_.secret_file = secret_file(secret_);
    job_.restarts = restarts;
    const std::vector<std::string> inherited = inherited_environment();
    Variables variables = options.environment;
    variables.emplace_back("DEAR_CAUSES", causes_.path());
    for (int rank = 0; rank < options.ranks; ++rank) {
      Variables of_rank = records_.variables(rank);
      of_rank.insert(of_rank.end(), variables.begin(), variables.end());
      const RankProgram program{
          .command = options.command,
          .environment = rank_environment(job_, rank, inherited, of_rank),
          .reads_input = rank == 0 && ::isatty(STDIN_FILENO) == 0,
          .piped_output = options.prefix,
          .piped_error = options.prefix || options.ranks_say_why,
          .cores = options.bind ? cores_of_rank(job_.cores, options.ranks, rank) : std::vector<int>(),
          .signal_mask = signals_.before(),
          .open_files = limit_.before()};
      members_.push_back(std::make_unique<Member>(rank, program, keeper_));
    }
  }

  // After run(): of a job that failed and was not told to end.
  [[nodiscard]] std::optional<JobFailure> failure() const {
    if (!failed_ || told_to_end_) return std::nullopt;
    // The rank that told its cause first, and not one that was ended with it.
    const std::optional<Causes::First>& told = causes_.first();
    return JobFailure{.rank = told ? told->rank : failed_->rank,
                      .signal = told ? 0 : failed_->ending->signal,
                      .step = records_.furthest_step()};
  }
  void say(const std::string& sentence) { error_.say(sentence); }

  int run() {
    while (!over()) {
      wait();
      while (const std::optional<int> signal = signals_.next()) {
        const bool ends = *signal != SIGUSR1 && *signal != SIGUSR2;
        if (*signal != SIGUSR1 && !failed_) look(ends);  // before ranks act on it
        send_all(*signal);
        if (ends) end_by(*signal);
      }
      causes_.read();
      pass_on_output();
      if (!failed_) {
        notice_failure();
      }
      keep_time();
    }
    kill_strays(job_.run_id);
    say_verdict();
    write_records();
    if (failed_) return failed_->ending->exit_code();
    return all_ended() ? 0 : 128 + SIGKILL;
  }

 private:
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
    for (const auto& member : members_) {
      for (const int fd : {member->ending ? -1 : member->process.pidfd(),
                           output_.takes() ? member->process.output.get() : -1,
                           error_.takes() ? member->process.error.get() : -1}) {
        files.push_back({.fd = fd, .events = POLLIN, .revents = 0});  // poll passes over negative ones
      }
    }
    files.push_back({.fd = causes_.fd(), .events = POLLIN, .revents = 0});
    std::optional<Deadline> until = grace_ ? grace_ : last_wait_;
    if (next_show_ && (!until || *next_show_ < until->at())) until = Deadline(*next_show_);
    poll_until(files, until);
    for (std::size_t i = 0; i < members_.size(); ++i) {
      Member& member = *members_[i];
      if (!member.ending && files[first + 3 * i].revents != 0) {
        member.ending = member.process.ending();
      }
    }
  }

  // Notes the first failure. Where several ranks failed at once, one that was killed explains the errors of
  // the others, and not the reverse.
  void notice_failure() {
    for (const auto& member : members_) {
      const bool failed = member->ending && member->ending->failed();
      if (failed && (!failed_ || (failed_->ending->signal == 0 && member->ending->signal != 0))) {
        failed_ = member.get();
      }
    }
    if (failed_) {
      causes_.read();  // a rank writes its own before it ends
      if (!causes_.first() && !is_explained(*failed_->ending))
        error_.say(fmt::format("rank {} {}{}", failed_->rank, failed_->ending->to_string(),
                               all_ended() ? "" : "; ending the other ranks"));
      look(true);
      send_all(SIGTERM);
      start_grace();
    }
  }

  [[nodiscard]] std::vector<SeenRank> seen() const {
    std::vector<SeenRank> ranks;
    for (const auto& member : members_) {
      SeenRank& one = ranks.emplace_back(SeenRank{.rank = member->rank, .pid = member->process.pid()});
      one.ended = member->ending.has_value();
      if (!one.ended) continue;
      one.code = member->ending->code;
      one.signal = member->ending->signal;
      one.told_to_end = member->told_to_end;
    }
    return ranks;
  }
  // `ends`: the ranks that live are told to end next.
  void look(bool ends) {
    try {
      records_.look(seen());
    } catch (const std::exception& error) {
      error_.say(fmt::format("cannot write the records: {}", error.what()));
    }
    for (const auto& member : members_) member->told_to_end = ends && !member->ending;
    write_records();
  }
  void write_records() {
    try {
      const auto& first = causes_.first();
      records_.write(seen(), first ? first->rank : -1, first ? first->why : "");
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
    if (all_ended() && !all_ended_before_ && !killed_) {
      // For what ranks left running, until it closes their output.
      all_ended_before_ = true;
      const Deadline leftovers =
          Deadline::after(std::min<std::chrono::duration<double>>(options_.grace, kLeftovers));
      if (!grace_ || leftovers.at() < grace_->at()) grace_ = leftovers;
    }
    if (grace_ && grace_->expired()) {
      std::vector<int> late;
      for (const auto& member : members_) {
        if (!member->ending) {
          late.push_back(member->rank);
        }
      }
      if (!late.empty()) {
        error_.say(fmt::format(
            "rank {} did not end within {:g} s of {} and is killed", fmt::join(late, ", "),
            told_to_end_ ? std::min(options_.grace.count(), seconds_since(told_at_)) : options_.grace.count(),
            told_to_end_ ? fmt::format("SIG{}", ::sigabbrev_np(*told_to_end_)) : "SIGTERM"));
      }
      send_all(SIGKILL);
      kill_strays(job_.run_id);
      grace_.reset();
      killed_ = true;
      last_wait_ = Deadline::after(kLastWait);
    }
    if (last_wait_ && last_wait_->expired()) {
      if (!all_ended())
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

  [[nodiscard]] bool all_ended() const {
    return std::all_of(members_.begin(), members_.end(),
                       [](const auto& member) { return member->ending.has_value(); });
  }
  // Whether every rank has ended and its output is closed. The output of killed ranks is not waited for: a
  // process that left their group may hold it open.
  [[nodiscard]] bool ended() const {
    return all_ended() && (killed_ || std::all_of(members_.begin(), members_.end(),
                                                  [](const auto& member) { return member->silent(); }));
  }
  // Whether the job has ended and all output is written, or nobody reads it though the job was told to end.
  [[nodiscard]] bool over() const {
    if (given_up_) return true;
    return ended() && ((output_.empty() && error_.empty()) || (killed_ && told_to_end_));
  }

  void send_all(int signal) const {
    for (const auto& member : members_) {
      member->process.send(signal);
    }
  }

  static constexpr auto kOneEvent = std::chrono::seconds(1);
  static constexpr auto kLeftovers = std::chrono::seconds(5);
  static constexpr auto kLastWait = std::chrono::seconds(10);  // after SIGKILL

  [[nodiscard]] static double seconds_since(SteadyTime then) {
    return std::round(10 * std::chrono::duration<double>(SteadyClock::now() - then).count()) / 10;
  }

  const LaunchOptions& options_;
  const os::FileDescriptor secret_ = make_secret();  // ranks read it as long as it is open here
  Job job_ = describe_job(options_.ranks);
  Causes causes_;
  HeldSignals signals_;
  OpenFileLimit limit_;
  Records records_;
  Sink output_, error_;
  std::vector<std::unique_ptr<Member>> members_;
  Keeper keeper_;  // after the members: gone before they are reaped (keeper.h)
  Member* failed_ = nullptr;
  std::optional<Deadline> grace_;
  std::optional<SteadyTime> next_show_;  // of what was held back
  std::optional<int> told_to_end_;       // by this signal
  SteadyTime told_at_;
  std::optional<Deadline> last_wait_;
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
  for (;;) {
    Supervisor job(options, restarts.restarts());
    const int code = job.run();
    const std::optional<JobFailure> failure = job.failure();
    if (!failure) return code;
    const std::optional<int> ranks = restarts.after(*failure);
    if (!ranks) {
      if (!restarts.why().empty()) job.say(restarts.why());
      return code;
    }
    options.ranks = *ranks;
    job.say(fmt::format("restart {} of {}, with {} ranks: rank {} failed, and the job had come to step {}",
                        restarts.restarts(), options.restarts, *ranks, failure->rank, failure->step));
  }
}

}  // namespace dear::launch
