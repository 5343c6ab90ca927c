#pragma once

#include <string>
#include <sys/types.h>

#include "dear/comm/group/testing/groups.h"

// Worlds of ranks for tests: as threads of this process, and as processes of their own.
namespace dear::backends::testing {

using comm::testing::GroupBody;
using comm::testing::run_on_threads;
using os::testing::has_children;
using os::testing::RankBody;
using os::testing::report_of;
using os::testing::run_in_processes;

// A text that no other test of any process uses.
std::string fresh_rendezvous();

struct Patience {
  std::chrono::duration<double> meeting = std::chrono::seconds(60);
  std::chrono::duration<double> collective = std::chrono::seconds(60);
};
// A group over shared memory for this thread or process.
Group meet_as(int rank, int size, const std::string& rendezvous, const Patience& patience = {});

// Holdings count the open files, sockets and mapped segments of this process, none of which may be left
// behind.
struct Holdings {
  int open_files = 0;
  int segments = 0;
  friend bool operator==(const Holdings&, const Holdings&) = default;
};
Holdings holdings();
bool is_listening(const std::string& rendezvous);

}  // namespace dear::backends::testing
