#include <algorithm>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/launch/host_words.h"
#include "dear/base/launch/rank_program.h"
#include "dear/base/launch/supervisor.h"

// The ranks of a job: where they are started, and how the job goes on as they and their hosts come and go.
namespace dear::launch {

void Supervisor::start(int rank) {
  if (hosts_ != nullptr && host_of(rank) != 0) return members_.start(rank, host_of(rank), *hosts_);
  const Surroundings here{.job = job_,
                          .records = records_,
                          .causes = causes_,
                          .board = registrar_ ? &registrar_->board() : nullptr,
                          .signal_mask = signals_.before(),
                          .open_files = limit_.before()};
  members_.start(rank, program_of(options_, rank, here), keeper_);
}

bool Supervisor::can_start(int rank) const { return hosts_ == nullptr || hosts_->takes_ranks(host_of(rank)); }

void Supervisor::tell_of_job(int host) {
  HostJob start{.job = job_, .elastic = registrar_.has_value(), .all_ranks = hosts_->all_ranks()};
  const auto first = std::find(host_of_.begin(), host_of_.end(), host);
  start.job.host = host;
  start.job.local_ranks = static_cast<int>(std::count(first, host_of_.end(), host));
  start.job.first_rank = start.job.local_ranks == 0 ? 0 : static_cast<int>(first - host_of_.begin());
  hosts_->tell(host, words_of(start));
  if (registrar_) hosts_->tell(host, {"roster", membership::to_text(registrar_->roster())});
}

membership::Registrar::Hosts Supervisor::places() {
  if (hosts_ == nullptr) return {};
  return {.of =
              [this](int member) {
                const int host = host_of(member);
                // The leader's own port is that of this start.
                return membership::Registrar::Host{
                    .number = host,
                    .address = hosts_->at(host).address,
                    .port = host == 0 ? job_.master_port.port : hosts_->at(host).port};
              },
          .publish = [this](const std::string& roster) { hosts_->tell_all({"roster", roster}); }};
}

std::int64_t Supervisor::furthest_step() const {
  return std::max(records_.furthest_step(), furthest_elsewhere_);
}

JobFailure Supervisor::failure_of(const Member& member) const {
  // The rank that told its cause first, and not one that was ended with it.
  const std::optional<Causes::First>& told = causes_.first();
  const int rank = told ? told->rank : member.rank;
  JobFailure failure{.rank = rank,
                     .signal = told ? 0 : member.ending->signal,
                     .step = furthest_step(),
                     .together = registrar_ && registrar_->fails_with_another(member.rank)};
  if (hosts_ != nullptr && rank < static_cast<int>(host_of_.size())) {
    failure.host = host_of(rank);
    failure.host_name = hosts_->at(failure.host).name;
    failure.ranks_of_host = static_cast<int>(std::count(host_of_.begin(), host_of_.end(), failure.host));
  }
  return failure;
}

void Supervisor::follow_members() {
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
      if (member->ending->with_host ? !go_on_without_host(*member) : !go_on_without(*member)) return;
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
    member->send(SIGTERM);
    start_grace();
  }
}

bool Supervisor::go_on_without(Member& failed) {
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
  const bool again = ranks && others + coming < *ranks && can_start(failed.rank);
  error_.say(fmt::format("rank {} {}, and the job had come to step {}: it goes on with {} {}{}", failed.rank,
                         causes_.first() ? "failed: " + causes_.first()->why : failed.ending->to_string(),
                         failure.step, others, others == 1 ? "rank" : "ranks",
                         again ? ", and another process takes its place" : ""));
  failed.settled = true;
  causes_.forget();
  registrar_->leaves(failed.rank, false);
  if (again) {
    registrar_->enters(failed.rank);
    start(failed.rank);
  }
  if (const auto host = restarts_.left_out_host()) leave_out(*host);
  return true;
}

bool Supervisor::go_on_without_host(Member& failed) {
  const auto works = [&](const auto& member) { return !member->ending && registrar_->works(member->rank); };
  if (std::count_if(members_.begin(), members_.end(), works) < options_.least_ranks) return false;
  failed.settled = true;
  registrar_->leaves(failed.rank, false);
  return true;
}

void Supervisor::leave_out(int host) {
  error_.say(
      fmt::format("host {} is left out: two of its ranks failed at the same step", hosts_->at(host).name));
  hosts_->leaves(host);
  hosts_->tell(host, {"left out"});
  for (const auto& member : members_) {
    if (member->host != host || member->settled) continue;
    member->settled = member->told_to_end = true;
    if (registrar_) registrar_->leaves(member->rank, false);
  }
}

// ---- other hosts

void Supervisor::hear_hosts() {
  for (const Hosts::Event& event : hosts_->hear()) {
    const std::string& name = hosts_->at(event.host).name;
    const std::string& verb = event.words.front();
    if (verb == "lost") {
      error_.say(fmt::format(
          "host {} {}", name,
          hosts_->at(event.host).leaves ? "has left" : "is lost: its launcher ended, or nothing reaches it"));
      for (const auto& member : members_)
        if (member->host == event.host && !member->ending)
          member->ending = Ending{.code = 1, .with_host = true};
    } else if (verb == "came") {
      take_back(event.host);
    } else if (verb == "leaves") {
      error_.say(fmt::format("host {} leaves: it was told to end", name));
      hosts_->leaves(event.host);
    } else if (verb == "said" && registrar_ && event.words.size() == 2) {
      registrar_->hear(event.words[1]);
    } else if (const auto number = number_in(event.words, 1); number && verb == "signal") {
      on_signal(static_cast<int>(*number));
    } else if (number) {
      hear_rank(event, static_cast<int>(*number));
    }
  }
}

void Supervisor::hear_rank(const Hosts::Event& event, int rank) {
  const std::string& verb = event.words.front();
  Member* const member = members_.of(rank);
  if (member == nullptr || member->host != event.host) return;
  if (verb == "cause" && event.words.size() == 3) causes_.note(rank, event.words[2]);
  if (const auto pid = number_in(event.words, 2); pid && verb == "started")
    member->pid = static_cast<pid_t>(*pid);
  const auto end = end_in(event.words);
  if (!end) return;
  member->ending = end->ending;
  furthest_elsewhere_ = std::max(furthest_elsewhere_, end->step);
}

void Supervisor::take_back(int host) {
  error_.say(fmt::format("host {} has come{}", hosts_->at(host).name,
                         registrar_ && !failed_ ? ": its ranks join" : ""));
  if (!registrar_ || failed_ || told_to_end_) return;
  tell_of_job(host);
  for (int rank = 0; rank < job_.ranks; ++rank) {
    if (host_of(rank) != host) continue;
    registrar_->enters(rank);
    start(rank);
  }
}

}  // namespace dear::launch
