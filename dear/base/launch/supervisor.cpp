#include "dear/base/launch/supervisor.h"

#include <poll.h>
#include <span>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/launch/rank_program.h"
#include "dear/base/launch/strays.h"

namespace dear::launch {
namespace {

Job job_on(const Hosts* hosts, const std::vector<int>& host_of, int ranks) {
  if (hosts == nullptr) return describe_job(ranks);
  Job job = describe_job(ranks, hosts->at(0).address);
  job.local_ranks = static_cast<int>(std::count(host_of.begin(), host_of.end(), 0));
  job.hosts = hosts->count();
  return job;
}

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options, Restarts& restarts, Hosts* hosts)
    : options_(options),
      restarts_(restarts),
      hosts_(hosts),
      host_of_(hosts == nullptr ? std::vector<int>() : hosts->hosts_of(options.ranks)),
      job_(job_on(hosts, host_of_, options.ranks)),
      limit_(job_.local_ranks, options.restarts),
      records_(job_.local_ranks, folder_of_start(options.record, restarts.restarts())),
      output_(STDOUT_FILENO, options),
      error_(STDERR_FILENO, options) {
  const std::string secret =
      hosts == nullptr ? random_secret() : secret_of_ranks(*options.hosts, job_.run_id);
  if (!secret.empty()) {
    secret_ = make_secret(secret);
    job_.secret_file = secret_file(secret_);
  }
  job_.restarts = restarts.restarts();
  if (options.least_ranks < options.ranks) registrar_.emplace(options.ranks, places());
  for (int host = 1; hosts_ != nullptr && host < hosts_->count(); ++host) tell_of_job(host);
  for (int rank = 0; rank < options.ranks; ++rank) start(rank);
}

int Supervisor::run() {
  while (!over()) {
    wait();
    while (const std::optional<int> signal = signals_.next()) on_signal(*signal);
    if (hosts_ != nullptr) hear_hosts();
    causes_.read();
    pass_on_output();
    if (registrar_) follow_members();
    if (!failed_) {
      notice_failure();
    }
    keep_time();
  }
  kill_strays(mark_of(causes_));
  say_verdict();
  write_records();
  if (failed_) return failed_->ending->exit_code();
  return members_.all_ended() ? 0 : 128 + SIGKILL;
}

std::optional<int> Supervisor::next_start() {
  if (!failed_ || told_to_end_) return std::nullopt;
  const JobFailure failure = failure_of(*failed_);
  const std::optional<int> ranks = over_ ? std::nullopt : restarts_.after(failure);
  if (ranks && restarts_.left_out_host()) leave_out(*restarts_.left_out_host());
  if (ranks)
    error_.say(fmt::format("restart {} of {}, with {} ranks: rank {} failed, and the job had come to step {}",
                           restarts_.restarts(), options_.restarts, *ranks, failure.rank, failure.step));
  else if (!restarts_.why().empty())
    error_.say(restarts_.why());
  return ranks;
}

void Supervisor::on_signal(int signal) {
  const bool ends = signal != SIGUSR1 && signal != SIGUSR2;
  if (signal != SIGUSR1 && !failed_) look(ends);  // before ranks act on it
  members_.send(signal);
  if (ends) end_by(signal);
}

void Supervisor::end_by(int signal) {
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

void Supervisor::pass_on_output() {
  for (const auto& member : members_) {
    if (!member->process) continue;
    output_.read_from(member->rank, member->process->output);
    error_.read_from(member->rank, member->process->error);
  }
  next_show_.reset();
  for (Sink* sink : {&output_, &error_}) {
    if (const auto next = sink->show_held_back(); next && (!next_show_ || *next < *next_show_))
      next_show_ = next;
    if (ended()) sink->finish();
    sink->write();
  }
}

void Supervisor::wait() {
  std::vector<pollfd> files{{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
  for (const Sink* sink : {&output_, &error_})
    files.push_back({.fd = sink->empty() ? -1 : sink->fd(), .events = POLLOUT, .revents = 0});
  const std::size_t first = files.size();
  members_.add_to(files, output_.takes(), error_.takes());
  files.push_back({.fd = causes_.fd(), .events = POLLIN, .revents = 0});
  files.push_back({.fd = registrar_ ? registrar_->board().fd() : -1, .events = POLLIN, .revents = 0});
  if (hosts_ != nullptr) hosts_->add_to(files);
  std::optional<Deadline> until = grace_ ? grace_ : last_wait_;
  if (next_show_ && (!until || *next_show_ < until->at())) until = Deadline(*next_show_);
  poll_until(files, until);
  members_.take_endings(std::span(files).subspan(first));
}

void Supervisor::notice_failure() {
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

void Supervisor::look(bool ends) {
  if (hosts_ != nullptr) hosts_->tell_all({"look"});
  try {
    records_.look(members_.seen());
  } catch (const std::exception& error) {
    error_.say(fmt::format("cannot write the records: {}", error.what()));
  }
  for (const auto& member : members_) member->told_to_end = ends && !member->ending;
  write_records();
}

void Supervisor::write_records() {
  try {
    const auto& first = causes_.first();
    records_.write(members_.seen(), first ? first->rank : -1, first ? first->why : "");
  } catch (const std::exception& error) {
    error_.say(fmt::format("cannot write the records: {}", error.what()));
  }
}

void Supervisor::say_verdict() {
  causes_.read();
  if (!failed_ || told_to_end_ || !causes_.first()) return;
  const Causes::First& first = *causes_.first();
  for (const auto& member : members_)
    if (member->rank == first.rank && member->ending && member->ending->code != 0) failed_ = member.get();
  error_.say(fmt::format("rank {} failed first, {:.1f} s after the start: {}", first.rank, first.seconds,
                         first.why));
}

bool Supervisor::is_explained(const Ending& ending) const {
  if (killed_ || (told_to_end_ && ending.exit_code() == 128 + *told_to_end_)) return true;
  return options_.ranks_say_why && ending.signal == 0 && error_.knows_why();
}

void Supervisor::keep_time() {
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
    kill_strays(mark_of(causes_));
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

void Supervisor::start_grace() {
  if (!grace_ && !killed_) {
    grace_ = Deadline::after(options_.grace);
  }
}

}  // namespace dear::launch
