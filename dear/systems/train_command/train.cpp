#include "dear/systems/train_command/train.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/deadline.h"
#include "dear/systems/train_command/trace_gather.h"
#include "dear/systems/train_command/train_interleaved.h"
#include "dear/systems/train_command/training_module.h"

namespace dear::train_command {
namespace {

constexpr std::int64_t kRecordedSteps = 21;  // so that 20 iterations are whole, whatever the policy

StartTraining starter(const TrainSettings& settings, const Corpus& corpus, const Group& group) {
  return [&](const TrainRun& run) { return training_module().start_training(settings, run, corpus, group); };
}

void train_one(const TrainSettings& settings, const Recording& recording, const Corpus& corpus,
               const Group& group, const TrainListener& listener, const Say& say, Trained& trained) {
  const TrainRun run{.policy = settings.policies.front(),
                     .compression = settings.compressions.front(),
                     .record_trace = recording.traces || recording.profile,
                     .sample = settings.sample,
                     .until_converged = settings.job.tune,
                     .say = say};
  const std::unique_ptr<TrainingJob> job = starter(settings, corpus, group)(run);
  const double begin = now_seconds();
  std::int64_t taken = 0;
  job->advance(settings.job.steps, [&](std::int64_t done, double loss) {
    taken = done;
    listener(run.policy, done, loss, now_seconds() - begin);
  });
  trained.interrupted = taken < settings.job.steps && job->interrupted();
  trained.runs.push_back(job->end());
}

TrainedInTurns train_compared(const TrainSettings& settings, const Corpus& corpus, const Group& group,
                              const std::vector<Turn>& turns, const TrainListener& listener) {
  std::vector<TrainRun> runs;
  for (std::size_t run = 0; run < settings.policies.size(); ++run)
    runs.push_back({.policy = settings.policies[run], .compression = settings.compressions[run]});
  runs.back().sample = settings.sample;
  return train_interleaved(runs, turns, starter(settings, corpus, group),
                           [&](const Turn& turn, std::int64_t done, double loss, double seconds) {
                             listener(fmt::format("round {} of {}, {}", turn.round + 1,
                                                  turns.back().round + 1, settings.name_of_run(turn.policy)),
                                      done, loss, seconds);
                           });
}

// Records each of the compared policies on the buckets that it had in the end.
void record_compared(const TrainSettings& settings, const Recording& recording, const Corpus& corpus,
                     const Group& group, std::vector<TrainResult>& runs) {
  for (auto one = runs.begin(); one != runs.end(); ++one) {
    TrainResult& run = *one;
    const bool last = one + 1 == runs.end();
    const bool named_again = std::any_of(
        one + 1, runs.end(), [&](const TrainResult& later) { return later.policy == run.policy; });
    if (named_again || (!last && !recording.traces)) continue;
    TrainSettings shorter = settings;
    shorter.job.steps = std::min(settings.job.steps, kRecordedSteps);
    if (run.buckets) shorter.buckets = {.kind = FusionChoice::Kind::given, .fusion = Fusion(*run.buckets)};
    const std::unique_ptr<TrainingJob> job = starter(shorter, corpus, group)(
        {.policy = run.chosen_policy.empty() ? run.policy : run.chosen_policy,
         .compression = settings.compressions[static_cast<std::size_t>(one - runs.begin())],
         .record_trace = true});
    job->advance(shorter.job.steps, {});
    TrainResult again = job->end();
    run.trace = std::move(again.trace);
    run.profile = std::move(again.profile);
  }
}

}  // namespace

Trained train(const TrainSettings& settings, const Recording& recording, const Corpus& corpus,
              const Group& group, const TrainListener& listener, const Say& say) {
  Trained trained;
  if (settings.compare) {
    const std::vector<Turn> turns = take_turns(settings.policies.size(), settings.job.steps);
    TrainedInTurns taken = train_compared(settings, corpus, group, turns, listener);
    trained.runs = std::move(taken.results);
    trained.comparison = compare(trained.runs, taken.turns);
    trained.interrupted = taken.turns.size() < turns.size();
    if ((recording.traces || recording.profile) && !trained.interrupted)
      record_compared(settings, recording, corpus, group, trained.runs);
  } else {
    train_one(settings, recording, corpus, group, listener, say, trained);
  }
  if (!recording.traces) return trained;
  for (const TrainResult& run : trained.runs) {
    if (run.trace) trained.traces.emplace_back(run.policy, gather_trace(group, *run.trace));
  }
  return trained;
}

}  // namespace dear::train_command
