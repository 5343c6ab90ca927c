#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The members of a job whose ranks come and go. [Note: membership] A launcher keeps a roster, in memory
// that the processes of the job read, and they tell it in a pipe where they stand. Each change of the roster
// is an epoch. An epoch is open when all of its members have said that they left the groups of the epoch
// before: only then do they meet, and all at once, so nobody waits in a meeting for one that is still in a
// step. Ranks of different epochs cannot meet: the epoch is part of the name of the meeting.
namespace dear::membership {

struct Roster {
  std::int64_t epoch = 0;
  bool open = false;
  bool begun = false;        // an epoch before was open: some members may have the state of the work
  std::vector<int> members;  // by rank: the number of the process in its job
  std::vector<int> hosts{};  // by rank: the number of its host; empty where there is one
  // Where ranks of several hosts meet: at the host of rank 0.
  std::string address{};
  int port = 0;

  [[nodiscard]] std::optional<int> rank_of(int member) const;
  // How many ranks below this one are on its host.
  [[nodiscard]] int local_rank(int rank) const;
  // How many ranks are on the host of this one.
  [[nodiscard]] int local_size(int rank) const;
};

// A line, and back; none of a text that is no whole line, as one that is just being written.
std::string to_text(const Roster& roster);
std::optional<Roster> roster_in(std::string_view text);

}  // namespace dear::membership
