#include "dear/cli/launcher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/deadline.h"
#include "dear/base/error.h"
#include "dear/cli/cores.h"
#include "dear/cli/held_signals.h"
#include "dear/cli/keeper.h"
#include "dear/cli/line_prefixer.h"
#include "dear/cli/pipe.h"
#include "dear/cli/rank_process.h"

namespace dear::cli {
namespace {

// Room for three files a rank, for as long as it lives.
class OpenFileLimit {
 public:
  explicit OpenFileLimit(int ranks) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlim_t needed = 64 + 3 * static_cast<rlim_t>(ranks);
    if (needed > before_.rlim_max) {
      throw TransportError(fmt::format("{} ranks need {} open files, and this system allows {} (ulimit -Hn)",
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
  rlimit before_{};
};

struct Stream {
  FileDescriptor& source;
  int sink;
  LinePrefixer lines;

  // As much as a pipe holds, and no more: a rank that never stops writing must not keep us from the others.
  void pass_on() {
    if (!source.is_open()) {
      return;
    }
    std::array<char, 1 << 16> bytes;
    const ssize_t got = ::read(source.get(), bytes.data(), bytes.size());
    if (got > 0) {
      write_all(sink, lines.feed(std::string_view(bytes.data(), static_cast<std::size_t>(got))));
    } else if (got == 0) {
      source.close();
    }
  }
};

struct Member {
  Member(int rank_number, const RankProgram& program, const Keeper& keeper)
      : rank(rank_number), process(program, keeper) {}
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void pass_on_output() {
    output.pass_on();
    error.pass_on();
  }
  [[nodiscard]] bool silent() const { return !output.source.is_open() && !error.source.is_open(); }

  int rank;
  RankProcess process;
  Stream output{process.output, STDOUT_FILENO, LinePrefixer(fmt::format("[{}] ", rank))};
  Stream error{process.error, STDERR_FILENO, LinePrefixer(fmt::format("[{}] ", rank))};
  std::optional<Ending> ending;
};

class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options) : options_(options), limit_(options.ranks) {
    const Job job = describe_job(options.ranks);
    const std::vector<std::string> inherited = inherited_environment();
    for (int rank = 0; rank < options.ranks; ++rank) {
      const RankProgram program{
          .command = options.command,
          .environment = rank_environment(job, rank, inherited, options.environment),
          .reads_input = rank == 0 && ::isatty(STDIN_FILENO) == 0,
          .piped_output = options.prefix,
          .cores = options.bind ? cores_of_rank(job.cores, options.ranks, rank) : std::vector<int>(),
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
      }
      for (const auto& member : members_) {
        member->pass_on_output();
      }
      if (!failed_) {
        notice_failure();
      }
      keep_time();
    }
    for (const auto& member : members_) {
      member->pass_on_output();
      write_all(STDOUT_FILENO, member->output.lines.finish());
      write_all(STDERR_FILENO, member->error.lines.finish());
    }
    return failed_ ? failed_->ending->exit_code() : 0;
  }

 private:
  // Until something happens, or the grace is over.
  void wait() {
    std::vector<pollfd> files{{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    for (const auto& member : members_) {
      for (const int fd : {member->ending ? -1 : member->process.pidfd(), member->output.source.get(),
                           member->error.source.get()}) {
        files.push_back({.fd = fd, .events = POLLIN, .revents = 0});  // poll passes over negative ones
      }
    }
    const std::chrono::nanoseconds left = grace_ ? grace_->remaining() : std::chrono::nanoseconds(0);
    const timespec timeout{.tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
    if (::ppoll(files.data(), files.size(), grace_ ? &timeout : nullptr, nullptr) < 0 && errno != EINTR) {
      throw TransportError(with_errno("cannot wait for the ranks (ppoll)", errno));
    }
    for (std::size_t i = 0; i < members_.size(); ++i) {
      Member& member = *members_[i];
      if (!member.ending && files[1 + 3 * i].revents != 0) {
        member.ending = member.process.ending();
      }
    }
  }

  // Of several that failed at once, one that was killed explains the errors of the others, not they its.
  void notice_failure() {
    for (const auto& member : members_) {
      const bool failed = member->ending && member->ending->failed();
      if (failed && (!failed_ || (failed_->ending->signal == 0 && member->ending->signal != 0))) {
        failed_ = member.get();
      }
    }
    if (failed_) {
      say(fmt::format("rank {} {}{}", failed_->rank, failed_->ending->to_string(),
                      all_ended() ? "" : "; ending the other ranks"));
      send_all(SIGTERM);
      start_grace();
    }
  }

  void keep_time() {
    if (all_ended()) {
      start_grace();  // for what ranks left running, until it closes their output
    }
    if (grace_ && grace_->expired()) {
      std::vector<int> late;
      for (const auto& member : members_) {
        if (!member->ending) {
          late.push_back(member->rank);
        }
      }
      if (!late.empty()) {
        say(fmt::format("rank {} did not end within {:g} s of SIGTERM and is killed", fmt::join(late, ", "),
                        options_.grace.count()));
      }
      send_all(SIGKILL);
      grace_.reset();
      killed_ = true;
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
  // Once killed, nobody of ours can hold the output open; a process that left its group may.
  [[nodiscard]] bool over() const {
    return all_ended() && (killed_ || std::all_of(members_.begin(), members_.end(),
                                                  [](const auto& member) { return member->silent(); }));
  }

  void send_all(int signal) const {
    for (const auto& member : members_) {
      member->process.send(signal);
    }
  }

  void say(const std::string& sentence) const {
    write_all(STDERR_FILENO, fmt::format("{}: {}\n", options_.who, sentence));
  }

  const LaunchOptions& options_;
  HeldSignals signals_;
  OpenFileLimit limit_;
  std::vector<std::unique_ptr<Member>> members_;
  Keeper keeper_;  // after the members: gone before they are reaped (keeper.h)
  Member* failed_ = nullptr;
  std::optional<Deadline> grace_;
  bool killed_ = false;
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

}  // namespace dear::cli
