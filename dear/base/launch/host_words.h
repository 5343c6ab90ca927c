#pragma once

#include <cstdint>
#include <optional>

#include "dear/base/launch/host_wire.h"
#include "dear/base/launch/rank_environment.h"
#include "dear/base/launch/rank_process.h"

// Launchers of several hosts tell each other these things, [Note: hosts]. Each is made into words, and read
// from words: nothing where they are no such thing.
namespace dear::launch {

// A host that comes.
struct Introduction {
  std::string name{};
  int hosts = 1;          // as its user says
  int ranks = 1;          // that it starts, 1 to kMostRanks
  std::string address{};  // for ranks of other hosts
  int port = 0;           // held there
};
Words words_of(const Introduction& host);
std::optional<Introduction> introduction_in(const Words& words);

// A start of the job, as a host sees it. Cores, the secret and the port's socket are each host's own.
struct HostJob {
  Job job{};
  bool elastic = false;
  int all_ranks = 1;  // that all hosts start together, at most
};
Words words_of(const HostJob& job);
std::optional<HostJob> job_in(const Words& words);

// The end of a rank.
struct RankEnd {
  int rank = 0;
  Ending ending{};
  std::int64_t step = 0;  // the furthest that a rank of its host has come to
};
Words words_of(const RankEnd& end);
std::optional<RankEnd> end_in(const Words& words);

}  // namespace dear::launch
