#pragma once

#include <functional>
#include <string>
#include <vector>

// Worlds of ranks for tests: as threads of this process, and as processes of their own.
namespace dear::os::testing {

// "ok", or what the rank threw: "TimeoutError: rank 2 did not come ...". Of a process that reported nothing,
// how it ended: "killed by signal 9".
std::string report_of(const std::function<void()>& body);

using RankBody = std::function<void(int rank)>;

// Runs body(rank) on `size` threads; the reports by rank.
std::vector<std::string> run_on_threads(int size, const RankBody& body);

// Runs body(rank) in `size` child processes and reaps them all. A gtest failure in a child is the report
// "failed" (its text goes to stderr). Ranks in `stopped` are expected to stop themselves: they are killed
// once the others are done. Call it while the process has one thread only.
std::vector<std::string> run_in_processes(int size, const RankBody& body,
                                          const std::vector<int>& stopped = {});

// Not reaped yet.
bool has_children();

}  // namespace dear::os::testing
