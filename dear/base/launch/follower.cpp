#include "dear/base/launch/follower.h"

#include <algorithm>
#include <csignal>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/launch/cores.h"
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

}  // namespace

struct Follower::Start {
  Start(const HostJob& start, const LaunchOptions& options)
      : job(start.job),
        limit(job.local_ranks, options.restarts),
        records(job.local_ranks, folder_of_start(options.record, job.restarts), job.first_rank, false) {
    const std::string text = secret_of_ranks(*options.hosts, job.run_id);
    if (!text.empty()) {
      secret = make_secret(text);
      job.secret_file = secret_file(secret);
    }
    job.cores = usable_cores();
    if (start.elastic) board.emplace();
  }

  Job job;
  os::FileDescriptor secret;
  Causes causes;
  OpenFileLimit limit;
  Records records;
  std::optional<membership::Board> board;
  Members members;
  Keeper keeper;  // after the members: gone before they are reaped (keeper.h)
};

Follower::Follower(const LaunchOptions& options, LeaderWire& leader) : options_(options), leader_(leader) {}
Follower::~Follower() = default;

int Follower::run() {
  while (!over()) {
    wait();
    for (const Words& words : leader_.wire().hear()) hear(words);
    if (leader_.wire().is_gone() && !code_) {
      if (!error_)
        throw TransportError(
            fmt::format("the launcher at {} that leads this job ended before the job began: see what it says",
                        leader_.address()));
      error_->say("the launcher that leads this job is lost: its ranks end here");
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
  if (verb == "job") {
    const auto job = job_in(words);
    if (!job) throw TransportError("the launcher that leads this job does not speak as this version of DeAR");
    return begin(*job);
  }
  const auto number = number_in(words, 1), second = number_in(words, 2);
  if (verb == "over" && number) {
    if (*number != 0 && error_)
      error_->say(
          fmt::format("the job ended with code {}: the launcher at {} says why", *number, leader_.address()));
    return end_ranks(static_cast<int>(*number));
  }
  if (!start_) return;
  if (verb == "left out") {
    error_->say("this host is left out: two of its ranks failed at the same step");
    return end_ranks(kLost);
  }
  if (verb == "start" && number) return start(static_cast<int>(*number));
  if (verb == "roster" && words.size() == 2 && start_->board) return start_->board->publish(words[1]);
  if (verb == "look") return start_->records.look(start_->members.seen());
  if (verb != "signal" || !number || !second) return;
  if (const Member* const member = start_->members.of(static_cast<int>(*number)); member && !member->ending)
    member->send(static_cast<int>(*second));
}

void Follower::begin(const HostJob& job) {
  end_start();
  start_.reset();
  start_ = std::make_unique<Start>(job, options_);
  if (!output_) {
    options_.ranks = job.all_ranks;
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
    leader_.wire().say(words_of(RankEnd{.rank = rank, .ending = {.code = kNotFound}}));
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
    wire.say(words_of(
        RankEnd{.rank = member->rank, .ending = *member->ending, .step = start_->records.furthest_step()}));
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
