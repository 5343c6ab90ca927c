#include "dear/base/launch/members.h"

#include <algorithm>
#include <map>

namespace dear::launch {

void Member::send(int signal) const {
  if (process) return process->send(signal);
  if (!ending) hosts->tell(host, {"signal", std::to_string(rank), std::to_string(signal)});
}

Member* Members::of(int rank) const {
  const auto found =
      std::find_if(all_.rbegin(), all_.rend(), [rank](const auto& member) { return member->rank == rank; });
  return found == all_.rend() ? nullptr : found->get();
}

void Members::add_to(std::vector<pollfd>& files, bool output, bool error) const {
  for (const auto& member : all_)
    for (const int fd : {member->ending || !member->process ? -1 : member->process->pidfd(),
                         output && member->process ? member->process->output.get() : -1,
                         error && member->process ? member->process->error.get() : -1})
      files.push_back({.fd = fd, .events = POLLIN, .revents = 0});  // poll passes over negative ones
}

void Members::take_endings(std::span<const pollfd> files) {
  for (std::size_t i = 0; i < all_.size(); ++i)
    if (!all_[i]->ending && files[3 * i].revents != 0) all_[i]->ending = all_[i]->process->ending();
}

void Members::send(int signal) const {
  for (const auto& member : all_) member->send(signal);
}

bool Members::all_ended() const {
  return std::all_of(all_.begin(), all_.end(), [](const auto& member) { return member->ending.has_value(); });
}

bool Members::all_silent() const {
  return std::all_of(all_.begin(), all_.end(),
                     [](const auto& member) { return member->ending && member->silent(); });
}

std::vector<int> Members::running() const {
  std::vector<int> ranks;
  for (const auto& member : all_)
    if (!member->ending) ranks.push_back(member->rank);
  return ranks;
}

std::vector<SeenRank> Members::seen() const {
  std::map<int, SeenRank> ranks;
  for (const auto& member : all_) {
    SeenRank one{.rank = member->rank, .pid = member->pid, .ended = member->ending.has_value()};
    if (one.ended) {
      one.code = member->ending->code;
      one.signal = member->ending->signal;
      one.told_to_end = member->told_to_end;
    }
    ranks[member->rank] = one;
  }
  std::vector<SeenRank> all;
  for (const auto& [rank, one] : ranks) all.push_back(one);
  return all;
}

}  // namespace dear::launch
