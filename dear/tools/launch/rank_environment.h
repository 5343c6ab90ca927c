#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/os/file_descriptor.h"

namespace dear::launch {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Holds what the ranks of one job on this host share.
struct Job {
  int ranks = 1;
  std::uint16_t master_port = 0;  // of this host
  // Holds the port, without listening, as long as the job lives: the system gives it to nobody who asks for
  // any port, and rank 0 can listen there (SO_REUSEADDR, as TCPStore does).
  std::shared_ptr<const os::FileDescriptor> held_port = nullptr;
  std::string run_id;            // of this job and of no other
  std::vector<int> cores = {0};  // that this process may run on
  std::string secret_file{};     // that only this user may read; see make_secret()
  int restarts = 0;              // of these ranks before
};
Job describe_job(int ranks);

// A secret of 32 random bytes for the ranks of one job, in memory that only processes of this user can open,
// by secret_file(), as long as this process has it open. TransportError where there is no memory for it.
os::FileDescriptor make_secret();
std::string secret_file(const os::FileDescriptor& secret);

// The environment of `rank` as "NAME=value": torchrun's variables, then `extra`, then `inherited`, of which
// the first of a name counts. OMP_NUM_THREADS is the rank's share of the cores unless one of these sets it.
std::vector<std::string> rank_environment(const Job& job, int rank, const std::vector<std::string>& inherited,
                                          const Variables& extra);

// The environment of this process.
std::vector<std::string> inherited_environment();

}  // namespace dear::launch
