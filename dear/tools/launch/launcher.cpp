#include "dear/tools/launch/launcher.h"

#include <algorithm>
#include <array>
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

#include <climits>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/tools/launch/causes.h"
#include "dear/tools/launch/cores.h"
#include "dear/tools/launch/failure_lines.h"
#include "dear/tools/launch/held_signals.h"
#include "dear/tools/launch/keeper.h"
#include "dear/tools/launch/pipe.h"
#include "dear/tools/launch/rank_output.h"
#include "dear/tools/launch/rank_process.h"
#include "dear/tools/launch/strays.h"

namespace dear::launch {
namespace {

// Raises the limit of open files while it lives, so that there is room for three files a rank.
class OpenFileLimit {
 public:
  explicit OpenFileLimit(int ranks) : before_(limit_of_open_files()) {
    const rlim_t needed = 64 + 3 * static_cast<rlim_t>(ranks);
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

// Standard output or standard error, to which the same stream of every rank goes.
class Sink {
 public:
  // `who` is the name under which the launcher itself writes.
  Sink(int fd, const LaunchOptions& options)
      : fd_(fd), lines_(prefixes(options)), launcher_(static_cast<std::size_t>(options.ranks)) {
    if (options.ranks_say_why) failures_.emplace(options.who);
    begun_.resize(launcher_);
  }

  // Whether more output is taken from the ranks: no more than its reader takes.
  [[nodiscard]] bool takes() const { return lines_.pending().size() < kMostPending; }
  [[nodiscard]] bool empty() const { return lines_.pending().empty(); }
  [[nodiscard]] int fd() const { return fd_; }

  // Reads as much as a pipe holds, and no more: a rank that never stops writing must not keep the launcher
  // from the others.
  void read_from(int rank, os::FileDescriptor& source) {
    if (!source.is_open() || !takes()) return;
    std::array<char, 1 << 16> bytes;
    const ssize_t got = ::read(source.get(), bytes.data(), bytes.size());
    if (got > 0) {
      take(static_cast<std::size_t>(rank), {bytes.data(), static_cast<std::size_t>(got)});
    } else if (got == 0) {
      source.close();
    }
  }
  // Writes what the reader takes now. A pipe that can be written takes PIPE_BUF bytes at once.
  void write() {
    for (pollfd writable{.fd = fd_, .events = POLLOUT, .revents = 0};
         !empty() && ::poll(&writable, 1, 0) > 0;) {
      const std::string_view next = lines_.pending().substr(0, PIPE_BUF);
      write_all(fd_, next);
      lines_.written(next.size());
    }
  }
  std::optional<SteadyTime> show_held_back() { return lines_.show_held_back(SteadyClock::now()); }
  void finish() {
    for (std::size_t rank = 0; rank < begun_.size(); ++rank)
      if (!begun_[rank].empty()) lines_.feed(rank, std::exchange(begun_[rank], ""), SteadyClock::now());
    if (failures_)
      for (const std::string& line : failures_->said_once()) lines_.feed(0, line + "\n", SteadyClock::now());
    failures_.reset();
    lines_.finish();
  }
  // Whether a rank has said why it failed.
  [[nodiscard]] bool knows_why() const { return knows_why_; }
  void say(const std::string& sentence) {
    lines_.feed(launcher_, sentence + "\n", SteadyClock::now());
    write();
  }

 private:
  static constexpr std::size_t kMostPending = 1 << 18;

  static std::vector<std::string> prefixes(const LaunchOptions& options) {
    std::vector<std::string> prefixes;
    for (int rank = 0; rank < options.ranks; ++rank)
      prefixes.push_back(options.prefix ? fmt::format("[{}] ", rank) : "");
    prefixes.push_back(options.who + ": ");
    return prefixes;
  }
  // Passes on what a rank wrote, but for lines that say why it fails.
  void take(std::size_t rank, std::string_view bytes) {
    if (!failures_) return lines_.feed(rank, bytes, SteadyClock::now());
    std::string& begun = begun_[rank];
    begun += bytes;
    for (std::size_t end = 0; (end = begun.find('\n')) != std::string::npos; begun.erase(0, end + 1))
      if (failures_->take(std::string_view(begun).substr(0, end))) {
        knows_why_ = true;
      } else {
        lines_.feed(rank, std::string_view(begun).substr(0, end + 1), SteadyClock::now());
      }
    if (begun.size() >= RankOutput::kLongestLine)
      lines_.feed(rank, std::exchange(begun, ""), SteadyClock::now());
  }

  int fd_;
  RankOutput lines_;
  std::size_t launcher_;                  // as a writer
  std::optional<FailureLines> failures_;  // of ranks that say why, until they are shown
  bool knows_why_ = false;
  std::vector<std::string> begun_;  // by rank, lines without their end, where failures are kept
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
};

class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options)
      : options_(options),
        limit_(options.ranks),
        output_(STDOUT_FILENO, options),
        error_(STDERR_FILENO, options) {
    job_.secret_file = secret_file(secret_);
    const std::vector<std::string> inherited = inherited_environment();
    Variables variables = options.environment;
    variables.emplace_back("DEAR_CAUSES", causes_.path());
    for (int rank = 0; rank < options.ranks; ++rank) {
      const RankProgram program{
          .command = options.command,
          .environment = rank_environment(job_, rank, inherited, variables),
          .reads_input = rank == 0 && ::isatty(STDIN_FILENO) == 0,
          .piped_output = options.prefix,
          .piped_error = options.prefix || options.ranks_say_why,
          .cores = options.bind ? cores_of_rank(job_.cores, options.ranks, rank) : std::vector<int>(),
          .signal_mask = signals_.before(),
          .open_files = limit_.before()};
      members_.push_back(std::make_unique<Member>(rank, program, keeper_));
    }
  }

  int run() {
    while (!over()) {
      wait();
      while (const std::optional<int> signal = signals_.next()) {
        send_all(*signal);
        if (*signal != SIGUSR1 && *signal != SIGUSR2) end_by(*signal);
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
      send_all(SIGTERM);
      start_grace();
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
  if (options_.command.empty() || options_.command.front().empty()) {
    throw ConfigError("no program to launch: name it after the options");
  }
}

int Launcher::run() const { return Supervisor(options_).run(); }

}  // namespace dear::launch
