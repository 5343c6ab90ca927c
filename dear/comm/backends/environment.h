#pragma once

#include <functional>
#include <optional>
#include <string>

namespace dear {

// Who this process is among the ranks, as its launcher says.
struct LaunchEnvironment {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string launcher;    // "dear launch", "torchrun", "Open MPI", "MPICH", "Slurm", or "none"
  std::string rendezvous;  // the same for all ranks of this job on this host, and for no other job
  // A text that is the same for all ranks of this job on all hosts, and for no other job, where the launcher
  // gives such a text: TORCHELASTIC_RUN_ID (but "none", which torchrun gives to all), the job and step of
  // Slurm; then `restarts` and DEAR_RENDEZVOUS, where there are any. Else "".
  std::string job{};
  int restarts = 0;  // TORCHELASTIC_RESTART_COUNT, where all ranks are on this host
  // The file that holds what the ranks of this job have, and nobody else (read_secret()): DEAR_SECRET_FILE,
  // which `dear launch` sets. "" where none is named.
  std::string secret_file{};
  // The roster of a job whose ranks come and go, and the number of this process in it: DEAR_MEMBERSHIP and
  // DEAR_MEMBER, which `dear launch --elastic` sets (base/membership). "" and -1 elsewhere.
  std::string membership{};
  int member = -1;
  // The folder in the memory of that launcher into which its ranks commit their state: DEAR_ELASTIC_FOLDER.
  // "" elsewhere.
  std::string elastic_folder{};
  // The address at which messaging libraries (Gloo) meet, "" and 0 where nobody said one: MASTER_ADDR, and
  // MASTER_PORT or, where torchrun's agent listens at that itself (TORCHELASTIC_USE_AGENT_STORE), the next
  // port. Under Slurm, where neither is set, the first host of the step (SLURM_STEP_NODELIST) and a port made
  // of the job. The interface is the one that Gloo uses, "" for the one that leads there: GLOO_SOCKET_IFNAME.
  std::string master_address{};
  int master_port = 0;
  std::string network_interface{};
  // The folder in which programs of this user keep what they remember: XDG_CACHE_HOME, or HOME/.cache; "" for
  // none.
  std::string cache_folder{};
};

// The one place that reads the environment. `get` is getenv, or a test's. Understands, first match wins:
// torchrun and `dear launch` (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
// TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT), Open MPI (OMPI_COMM_WORLD_*), MPICH and other PMI
// launchers (PMI_*, MPI_LOCAL*), Slurm (SLURM_*, only under srun). DEAR_RENDEZVOUS replaces the rendezvous of
// any of them. ConfigError naming the variable for a missing, malformed or contradictory one. No launcher: a
// world of one.
using GetVariable = std::function<std::optional<std::string>(const std::string& name)>;
LaunchEnvironment read_launch_environment(const GetVariable& get);
LaunchEnvironment read_launch_environment();

// The 16 to 4096 bytes of a secret_file, which only this user may read or write: ConfigError for another one.
// "" for "".
std::string read_secret(const std::string& file);

}  // namespace dear
