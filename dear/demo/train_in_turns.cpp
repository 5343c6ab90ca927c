#include "dear/demo/train_in_turns.h"

#include <utility>

#include "dear/base/deadline.h"

namespace dear::demo {

std::vector<TrainResult> train_in_turns(std::vector<TrainRun> runs, const std::vector<Turn>& turns,
                                        const StartTraining& start, const TurnListener& listener) {
  std::vector<std::unique_ptr<TrainingJob>> jobs;
  for (std::size_t policy = 0; policy < runs.size(); ++policy) {
    runs[policy].counted = counted_steps(turns, policy);
    jobs.push_back(start(runs[policy]));
  }
  const double begin = now_seconds();
  std::int64_t done = 0;
  for (const Turn& turn : turns) {
    jobs[turn.policy]->advance(turn.steps.end - turn.steps.begin, [&](std::int64_t, double loss) {
      ++done;
      if (listener) listener(turn, done, loss, now_seconds() - begin);
    });
  }
  std::vector<TrainResult> results;
  results.reserve(jobs.size());
  for (const std::unique_ptr<TrainingJob>& job : jobs) results.push_back(job->end());
  return results;
}

}  // namespace dear::demo
