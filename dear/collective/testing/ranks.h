#pragma once

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "dear/collective/group.h"
#include "dear/transport/testing/ranks.h"

// Worlds of ranks for tests: as threads of this process, and as processes of their own.
namespace dear::collective::testing {

using transport::testing::has_children;
using transport::testing::RankBody;
using transport::testing::report_of;
using transport::testing::run_in_processes;
using transport::testing::run_on_threads;

using GroupBody = std::function<void(Group&)>;

// Runs `body` on threads, on groups over these backends; the reports by rank.
std::vector<std::string> run_on_threads(std::vector<std::unique_ptr<Backend>> backends,
                                        Group::Options options, const GroupBody& body);

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
bool is_listening(const std::string& rendezvous);

}  // namespace dear::collective::testing
