#include "dear/base/launch/rank_program.h"

#include <string>
#include <unistd.h>

#include "dear/base/launch/cores.h"

namespace dear::launch {

RankProgram program_of(const LaunchOptions& options, int rank, const Surroundings& here) {
  const Job& job = here.job;
  Variables variables = here.records.variables(rank);
  variables.insert(variables.end(), options.environment.begin(), options.environment.end());
  variables.emplace_back("DEAR_CAUSES", here.causes.path());
  if (here.board != nullptr) {
    variables.emplace_back("DEAR_MEMBERSHIP", here.board->place());
    variables.emplace_back("DEAR_MEMBER", std::to_string(rank));
  }
  return {.command = options.command,
          .environment = rank_environment(job, rank, inherited_environment(), variables),
          .reads_input = rank == 0 && ::isatty(STDIN_FILENO) == 0,
          .piped_output = options.prefix,
          .piped_error = options.prefix || options.ranks_say_why,
          .cores = options.bind ? cores_of_rank(job.cores, job.local_ranks, rank - job.first_rank)
                                : std::vector<int>(),
          .signal_mask = here.signal_mask,
          .open_files = here.open_files};
}

std::string mark_of(const Causes& causes) { return "DEAR_CAUSES=" + causes.path(); }

}  // namespace dear::launch
