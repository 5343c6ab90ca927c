#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dear/base/deadline.h"
#include "dear/launch/held_signals.h"
#include "dear/launch/keeper.h"
#include "dear/launch/rank_process.h"
#include "dear/measure/connection.h"
#include "dear/measure/contestant.h"
#include "dear/measure/mpi_launcher.h"
#include "dear/measure/team.h"

namespace dear::measure {

// Thrown, by no name of an error, when one of the held signals has come.
struct Interrupted {
  int signal = 0;
};

struct CrewOptions {
  std::string program;  // the `dear` command, which its ranks are
  int ranks = 2;
  bool bind = false;                        // each rank keeps to its part of the cores
  bool reproducible = false;                // see EngineOptions
  int ahead = 1;                            // likewise
  std::int64_t prepare_bytes = 0;           // of the largest vector there will be
  std::int64_t output_bytes = 0;            // of the largest output; 0 for none
  std::chrono::duration<double> timeout{};  // for each answer, and for all ranks to come
  std::optional<MpiLauncher> launcher{};    // of a contestant that MPI starts
};

// The ranks of one contestant, as processes of this command. They live until the crew is gone, and sleep
// while nothing is asked of them. Used by one thread.
//
// SIGINT, SIGTERM and SIGHUP interrupt every wait, so that ranks and what started them are ended in order.
class Crew final : public Team {
 public:
  // Starts them; does not wait.
  Crew(const Contestant& contestant, const CrewOptions& options, const launch::HeldSignals& signals);
  // Whatever is left of the ranks, and of what started them, is dead afterwards.
  ~Crew() override;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  [[nodiscard]] const Contestant& contestant() const { return contestant_; }

  // TransportError for a rank that failed or ended, TimeoutError naming the ranks that did not answer in
  // time.
  std::string wait_ready() override;
  std::vector<Reply> ask(const Command& command) override;
  // How long ranks may take to answer from now on; at first, the timeout and a little to say what failed.
  void expect_answers_within(std::chrono::duration<double> time) { time_to_answer_ = time; }
  // TransportError for a rank that fails at its end, TimeoutError for one that does not end.
  void dismiss() override;

  const std::string& output() override;

 private:
  struct Rank {
    std::optional<Connection> connection;
    FileDescriptor pidfd;
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

  const Contestant& contestant_;
  const CrewOptions options_;
  std::chrono::duration<double> time_to_answer_;
  const launch::HeldSignals& signals_;
  ControlListener listener_;
  FileDescriptor gate_;
  std::vector<Rank> ranks_;
  std::string output_;
  std::vector<std::unique_ptr<launch::RankProcess>> processes_;  // the ranks, or what starts them
  std::vector<bool> ended_;                                      // of the processes
  std::unique_ptr<launch::Keeper> keeper_;  // after the processes: gone before they are reaped (keeper.h)
};

}  // namespace dear::measure
