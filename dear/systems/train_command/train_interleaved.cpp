#include "dear/systems/train_command/train_interleaved.h"

#include <utility>

#include "dear/base/vocabulary/deadline.h"

namespace dear::train_command {

TrainedInTurns train_interleaved(std::vector<TrainRun> runs, std::vector<Turn> turns,
                                 const StartTraining& start, const TurnListener& listener) {
  std::vector<std::unique_ptr<TrainingJob>> jobs;
  for (std::size_t policy = 0; policy < runs.size(); ++policy) {
    runs[policy].counted = counted_steps(turns, policy);
    jobs.push_back(start(runs[policy]));
  }
  const double begin = now_seconds();
  std::int64_t done = 0;
  for (std::size_t t = 0; t < turns.size(); ++t) {
    const Turn turn = turns[t];
    jobs[turn.policy]->advance(turn.steps.end - turn.steps.begin, [&](std::int64_t, double loss) {
      ++done;
      if (listener) listener(turn, done, loss, now_seconds() - begin);
    });
    const bool round_ends = t + 1 < turns.size() && turns[t + 1].round != turn.round;
    if (round_ends && jobs[turn.policy]->interrupted()) turns.resize(t + 1);
  }
  if (turns.back().round == 0)
    for (Turn& turn : turns) turn.counted = counted_in_only_round(turn.steps);
  TrainedInTurns trained{.results = {}, .turns = std::move(turns)};
  for (const std::unique_ptr<TrainingJob>& job : jobs) trained.results.push_back(job->end());
  return trained;
}

}  // namespace dear::train_command
