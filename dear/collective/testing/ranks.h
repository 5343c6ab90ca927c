#pragma once

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "dear/collective/group.h"

// Worlds of ranks for tests: as threads of this process, and as processes of their own.
namespace dear::collective::testing {

// "ok", or what the rank threw: "TimeoutError: rank 2 did not come ...". Of a process that reported nothing,
// how it ended: "killed by signal 9".
std::string report_of(const std::function<void()>& body);

using RankBody = std::function<void(int rank)>;
using GroupBody = std::function<void(Group&)>;

// Runs body(rank) on `size` threads; the reports by rank.
std::vector<std::string> run_on_threads(int size, const RankBody& body);
// The same on groups over these backends.
std::vector<std::string> run_on_threads(std::vector<std::unique_ptr<Backend>> backends,
                                        Group::Options options, const GroupBody& body);

// Runs body(rank) in `size` child processes and reaps them all. A gtest failure in a child is the report
// "failed" (its text goes to stderr). Ranks in `stopped` are expected to stop themselves: they are killed
// once the others are done. Call it while the process has one thread only.
std::vector<std::string> run_in_processes(int size, const RankBody& body,
                                          const std::vector<int>& stopped = {});

// A text that no other test of any process uses.
std::string fresh_rendezvous();

struct Patience {
  std::chrono::duration<double> meeting = std::chrono::seconds(60);
  std::chrono::duration<double> collective = std::chrono::seconds(60);
};
// A group over shared memory for this thread or process.
Group meet_as(int rank, int size, const std::string& rendezvous, const Patience& patience = {});

// What must not be left behind: open files, mapped segments, and sockets of this process.
struct Holdings {
  int open_files = 0;
  int segments = 0;
  friend bool operator==(const Holdings&, const Holdings&) = default;
};
Holdings holdings();
bool has_children();
bool is_listening(const std::string& rendezvous);

}  // namespace dear::collective::testing
