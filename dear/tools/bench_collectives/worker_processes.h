#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/launch/held_signals.h"
#include "dear/base/launch/keeper.h"
#include "dear/base/launch/rank_process.h"
#include "dear/base/os/segment.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/tools/bench_collectives/connection.h"
#include "dear/tools/bench_collectives/library.h"
#include "dear/tools/bench_collectives/mpi_launcher.h"
#include "dear/tools/bench_collectives/workers.h"

namespace dear::bench_collectives {

// Thrown when one of the held signals has come. No class of error, so that nobody takes it for one.
struct Interrupted {
  int signal = 0;
};

struct WorkersOptions {
  std::string program;  // the `dear` command, which each rank runs
  int ranks = 2;
  bool bind = false;                        // each rank keeps to its part of the cores
  bool reproducible = false;                // see LibraryOptions
  int ahead = 1;                            // see LibraryOptions
  std::int64_t prepare_bytes = 0;           // of the largest vector there will be
  std::int64_t output_bytes = 0;            // of the largest output; 0 for none
  std::chrono::duration<double> timeout{};  // for each answer, and for all ranks to come
  std::optional<MpiLauncher> launcher{};    // of a library whose ranks MPI starts
  std::vector<std::string> grid_words{};    // SelectedLibrary::grid_words
};

// The ranks of one library as processes of the `dear` command. The processes live as long as this object, and
// sleep between commands. One thread uses it.
//
// SIGINT, SIGTERM and SIGHUP interrupt every wait, so that ranks and what started them are ended in order.
class WorkerProcesses final : public Workers {
 public:
  // Starts the processes; does not wait for them.
  WorkerProcesses(const Library& library, const WorkersOptions& options, const launch::HeldSignals& signals);
  // Kills what is left of the ranks and of the launcher that started them.
  ~WorkerProcesses() override;
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;

  // TransportError for a rank that failed or ended, TimeoutError naming the ranks that did not answer in
  // time.
  std::string wait_ready() override;
  std::vector<Reply> ask(const Command& command) override;
  // How long ranks may take to answer from now on; at first, the timeout and a little to say what failed.
  void expect_answers_within(std::chrono::duration<double> time) { time_to_answer_ = time; }
  // TransportError for a rank that fails at its end, TimeoutError for one that does not end.
  void end() override;

  const std::string& output() override;

 private:
  struct Rank {
    std::optional<Connection> connection;
    os::FileDescriptor pidfd;
    std::optional<Reply> reply;
  };

  void await_replies(Deadline deadline);
  void wait_for_something(Deadline deadline);
  void welcome_newcomer();
  void hear(Rank& rank, int number);
  [[nodiscard]] std::vector<int> silent_ranks() const;
  [[nodiscard]] std::string how_it_ended(int rank) const;
  [[nodiscard]] std::string name_of_process(int rank) const;
  void collect_output();
  void await_processes(Deadline deadline);

  const WorkersOptions options_;
  std::chrono::duration<double> time_to_answer_;
  const launch::HeldSignals& signals_;
  ControlListener listener_;
  std::shared_ptr<os::Segment> start_barrier_;
  std::vector<Rank> ranks_;
  std::string output_;
  std::vector<std::unique_ptr<launch::RankProcess>> processes_;  // the ranks, or their launcher
  std::vector<bool> ended_;                                      // of the processes
  std::unique_ptr<launch::Keeper> keeper_;  // after the processes: gone before they are reaped (keeper.h)
};

}  // namespace dear::bench_collectives
