#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dear/base/launch/held_port.h"
#include "dear/base/os/file_descriptor.h"

namespace dear::launch {

using Variables = std::vector<std::pair<std::string, std::string>>;

// A job as the launcher of one of its hosts sees it.
struct Job {
  int ranks = 1;
  int first_rank = 0;   // of this host
  int local_ranks = 1;  // of this host
  int host = 0;         // its number
  int hosts = 1;
  std::string master_address = "127.0.0.1";  // of host 0, and held there as long as the job lives
  HeldPort master_port{};
  std::string run_id;            // of this job and of no other
  std::vector<int> cores = {0};  // that this process may run on
  std::string secret_file{};     // that only this user may read; see make_secret()
  int restarts = 0;              // of these ranks before
};
// Describes a job whose ranks are all on this host, at this address of it.
Job describe_job(int ranks, const std::string& address = "127.0.0.1");

// A secret for the ranks of one job, in memory that only processes of this user can open, by secret_file(),
// as long as this process has it open. TransportError where there is no memory for it.
os::FileDescriptor make_secret(const std::string& secret);
std::string random_secret();  // 32 bytes
std::string secret_file(const os::FileDescriptor& secret);

// The environment of `rank` as "NAME=value": torchrun's variables, then `extra`, then `inherited`, of which
// the first of a name counts. OMP_NUM_THREADS is the rank's share of the cores unless one of these sets it.
std::vector<std::string> rank_environment(const Job& job, int rank, const std::vector<std::string>& inherited,
                                          const Variables& extra);

// The environment of this process.
std::vector<std::string> inherited_environment();

}  // namespace dear::launch
