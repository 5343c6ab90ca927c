#include "dear/base/launch/follower.h"

#include <algorithm>
#include <csignal>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/launch/keeper.h"
#include "dear/base/launch/members.h"
#include "dear/base/launch/open_file_limit.h"
#include "dear/base/launch/pipe.h"
#include "dear/base/launch/rank_program.h"
#include "dear/base/launch/strays.h"
#include "dear/base/membership/board.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {
namespace {

constexpr int kLost = 1, kNotFound = 127;
constexpr auto kLeftovers = std::chrono::seconds(5);
constexpr auto kLastWait = std::chrono::seconds(10);  // after SIGKILL

Job job_in(const Words& words) {
  const auto number = [&](std::size_t at) {
    const auto found = number_in(words, at);
    if (!found || *found < 0 || *found > 65'535)
      throw TransportError("the launcher that leads this job does not speak as this version of DeAR");
    return static_cast<int>(*found);
  };
  return {.ranks = number(4),
          .first_rank = number(5),
          .local_ranks = number(6),
          .host = number(7),
          .hosts = number(8),
          .master_address = words.at(2),
          .master_port = {.port = number(3)},
          .run_id = words.at(1),
          .cores = usable_cores(),
          .restarts = number(9)};
}

}  // namespace

struct Follower::Start {
  Start(const Words& words, const LaunchOptions& options)
      : job(job_in(words)),
        limit(job.local_ranks, options.restarts),
        records(job.local_ranks,
                options.record.empty() || job.restarts == 0
                    ? options.record
                    : fmt::format("{}/restart-{}", options.record, job.restarts),
                job.first_rank, false) {
    const std::string text = secret_of_ranks(*options.hosts, job.run_id);
    if (!text.empty()) {
      secret = make_secret(text);
      job.secret_file = secret_file(secret);
    }
    if (words.at(10) == "elastic") board.emplace();
  }

  Job job;
  os::FileDescriptor secret;
  Causes causes;
  OpenFileLimit limit;
  Records records;
  std::optional<membership::Board> board;
  Members members;
  std::vector<const Member*> told{};  // of the end of these
  bool told_cause = false;
  Keeper keeper;  // after the members: gone before they are reaped (keeper.h)
};

Follower::Follower(const LaunchOptions& options, LeaderWire& leader) : options_(options), leader_(leader) {}
Follower::~Follower() = default;

int Follower::run() {
  while (!over()) {
    wait();
    for (const Words& words : leader_.wire().hear()) hear(words);
    if (leader_.wire().is_gone() && !code_) {
      if (error_) error_->say("the launcher that leads this job is lost: its ranks end here");
      end_ranks(kLost);
    }
    while (const std::optional<int> signal = signals_.next()) on_signal(*signal);
    if (start_) tell_of_ranks();
    pass_on_output();
    keep_time();
  }
  end_start();
  return *code_;
}

void Follower::keep_time() {
  // For what ranks left running, until it closes their output.
  if (code_ && start_ && start_->members.all_ended() && !grace_ && !killed_)
    grace_ = Deadline::after(std::min<std::chrono::duration<double>>(options_.grace, kLeftovers));
  if (!grace_ || !grace_->expired()) return;
  if (killed_) {
    given_up_ = true;
    if (!code_) code_ = 128 + SIGKILL;
    return;
  }
  killed_ = true;
  grace_ = Deadline::after(kLastWait);
  start_->members.send(SIGKILL);
  kill_strays(mark_of(start_->causes));
}

void Follower::end_start() {
  if (!start_) return;
  kill_strays(mark_of(start_->causes));
  const Deadline deadline = Deadline::after(kLeftovers);
  while (!killed_ && !start_->members.all_silent() && !deadline.expired()) {
    pass_on_output();
    std::vector<pollfd> files;
    start_->members.add_to(files, output_->takes(), error_->takes());
    poll_until(files, deadline);
  }
  start_->records.write(start_->members.seen(), -1, "");
}

void Follower::hear(const Words& words) {
  const std::string& verb = words.front();
  if (verb == "refused" && words.size() == 2)
    throw ConfigError(fmt::format("the launcher that leads this job refuses this host: {}", words[1]));
  if (verb == "job" && words.size() == 12) return begin(words);
  const auto number = number_in(words, 1), second = number_in(words, 2);
  if (verb == "over" && number) {
    if (*number != 0 && error_)
      error_->say(
          fmt::format("the job ended with code {}: the launcher at {} says why", *number, leader_.address()));
    return end_ranks(static_cast<int>(*number));
  }
  if (!start_) return;
  if (verb == "start" && number) return start(static_cast<int>(*number));
  if (verb == "roster" && words.size() == 2 && start_->board) return start_->board->publish(words[1]);
  if (verb == "look") return start_->records.look(start_->members.seen());
  if (verb != "signal" || !number || !second) return;
  if (const Member* const member = start_->members.of(static_cast<int>(*number)); member && !member->ending)
    member->send(static_cast<int>(*second));
}

void Follower::begin(const Words& words) {
  end_start();
  start_.reset();
  start_ = std::make_unique<Start>(words, options_);
  if (!output_) {
    options_.ranks = static_cast<int>(number_in(words, 11).value_or(start_->job.ranks));
    output_.emplace(STDOUT_FILENO, options_);
    error_.emplace(STDERR_FILENO, options_);
  }
  if (start_->board && !folder_)
    options_.environment.emplace_back("DEAR_ELASTIC_FOLDER", folder_.emplace().path() + "/state");
}

void Follower::start(int rank) {
  if (rank < start_->job.first_rank || rank >= start_->job.first_rank + start_->job.local_ranks) return;
  try {
    start_->members.start(rank,
                          program_of(options_, rank,
                                     {.job = start_->job,
                                      .records = start_->records,
                                      .causes = start_->causes,
                                      .board = start_->board ? &*start_->board : nullptr,
                                      .signal_mask = signals_.before(),
                                      .open_files = start_->limit.before()}),
                          start_->keeper);
    leader_.wire().say({"started", std::to_string(rank), std::to_string(start_->members.of(rank)->pid)});
  } catch (const std::exception& error) {
    leader_.wire().say({"cause", std::to_string(rank), error.what()});
    leader_.wire().say({"ended", std::to_string(rank), std::to_string(kNotFound), "0", "0"});
  }
}

void Follower::on_signal(int signal) {
  const bool ends = signal != SIGUSR1 && signal != SIGUSR2;
  if (!start_ || leader_.wire().is_gone()) {
    if (ends) end_ranks(128 + signal);
    return;
  }
  if (!ends || !start_->board) return leader_.wire().say({"signal", std::to_string(signal)});
  if (std::exchange(leaves_, true)) {
    grace_ = Deadline::after(std::chrono::seconds(0));
    return;
  }
  leader_.wire().say({"leaves"});
  start_->members.send(signal);
  grace_ = Deadline::after(options_.grace);
}

void Follower::tell_of_ranks() {
  HostWire& wire = leader_.wire();
  start_->causes.read();
  if (const auto& first = start_->causes.first()) {
    wire.say({"cause", std::to_string(first->rank), first->why});
    start_->causes.forget();
  }
  if (start_->board)
    for (const std::string& line : start_->board->said()) wire.say({"said", line});
  for (const auto& member : start_->members) {
    if (!member->ending || member->settled) continue;
    member->settled = true;
    wire.say({"ended", std::to_string(member->rank), std::to_string(member->ending->code),
              std::to_string(member->ending->signal), std::to_string(start_->records.furthest_step())});
  }
  // A host that was told to end stays until the leader knows that its ranks have.
  if (leaves_ && !code_ && start_->members.all_ended() && !wire.has_to_send()) code_ = 128 + SIGTERM;
}

void Follower::end_ranks(int code) {
  code_ = code;
  if (!start_ || start_->members.all_ended()) return;
  start_->members.send(SIGTERM);
  grace_ = Deadline::after(options_.grace);
}

void Follower::pass_on_output() {
  next_show_.reset();
  if (!output_) return;
  for (const auto& member : start_->members) {
    output_->read_from(member->rank, member->process->output);
    error_->read_from(member->rank, member->process->error);
  }
  for (Sink* sink : {&*output_, &*error_}) {
    if (const auto next = sink->show_held_back(); next && (!next_show_ || *next < *next_show_))
      next_show_ = next;
    if (code_ && start_->members.all_ended()) sink->finish();
    sink->write();
  }
}

void Follower::wait() {
  std::vector<pollfd> files{{.fd = signals_.fd(), .events = POLLIN, .revents = 0}, leader_.wire().to_poll()};
  std::size_t first = files.size();
  if (start_) {
    for (const Sink* sink : {&*output_, &*error_})
      files.push_back({.fd = sink->empty() ? -1 : sink->fd(), .events = POLLOUT, .revents = 0});
    files.push_back({.fd = start_->causes.fd(), .events = POLLIN, .revents = 0});
    files.push_back({.fd = start_->board ? start_->board->fd() : -1, .events = POLLIN, .revents = 0});
    first = files.size();
    start_->members.add_to(files, output_->takes(), error_->takes());
  }
  std::optional<Deadline> until = grace_;
  if (next_show_ && (!until || *next_show_ < until->at())) until = Deadline(*next_show_);
  poll_until(files, until);
  if (start_) start_->members.take_endings(std::span(files).subspan(first));
}

bool Follower::over() const {
  if (given_up_) return true;
  if (!code_ || (start_ && !start_->members.all_ended())) return false;
  return !start_ || killed_ || (start_->members.all_silent() && output_->empty() && error_->empty());
}

}  // namespace dear::launch
