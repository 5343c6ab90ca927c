#include "dear/systems/rounds/rounds.h"

#include <utility>

#include "dear/systems/rounds/replica.h"
#include "dear/train/data_parallel/data_parallel.h"
#include "dear/train/data_parallel/part_of_training.h"
#include "dear/train/data_parallel/watch.h"

namespace dear {

Rounds::Rounds(const torch::nn::Module& model, const Group& group, RoundOptions options, MakeOuter outer)
    : Rounds(model_of(model), group, std::move(options), std::move(outer)) {}
Rounds::Rounds(const Model& model, const Group& group, RoundOptions options, MakeOuter outer)
    : replica_(std::make_shared<Replica>(model, group, std::move(options), outer)) {}
Rounds::~Rounds() = default;

// The listeners keep nothing alive: the Rounds may end first.
void Rounds::follow(DataParallel& dp) {
  replica_->follow(dp);
  const std::weak_ptr<Replica> weak = replica_;
  train::PartOfTraining(dp).add_counts([weak]() -> train::PartOfTraining::Counts {
    const std::shared_ptr<Replica> replica = weak.lock();
    if (!replica) return {};
    const systems::rounds::Exchange& exchange = replica->exchange();
    return {exchange.waited_seconds(), exchange.communication_seconds(), exchange.sent_bytes()};
  });
  if (train::PartOfTraining(dp).records_trace())
    train::PartOfTraining(dp).add_spans(replica_.get(), [weak]() -> std::vector<Span> {
      const std::shared_ptr<Replica> replica = weak.lock();
      return replica ? replica->spans() : std::vector<Span>();
    });
  dp.watch().on_step([weak](const StepMetrics& metrics) {
    const std::shared_ptr<Replica> replica = weak.lock();
    for (std::int64_t step = metrics.given_up; replica && step < metrics.steps; ++step) replica->stepped();
  });
}

const Group& Rounds::inside() const { return replica_->inside(); }
void Rounds::end() { replica_->end(); }
void Rounds::show_global() { replica_->show_global(); }
void Rounds::show_own() { replica_->show_own(); }
std::map<std::string, torch::Tensor> Rounds::state() { return replica_->state(); }
void Rounds::load_state(const std::map<std::string, torch::Tensor>& state) { replica_->load_state(state); }
RoundsReport Rounds::report() const { return replica_->report(); }

}  // namespace dear
