#include "dear/systems/train_command/moe_training.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dear/base/vocabulary/spread.h"
#include "dear/systems/train_command/make_optimizer.h"

namespace dear::train_command {
namespace {

std::shared_ptr<ExpertGroup> expert_group(const Group& group, bool record) {
  auto ranks = std::make_shared<ExpertGroup>(group);
  if (record) ranks->record();
  ranks->begin_iteration(0);
  return ranks;
}

}  // namespace

MoeGptOptions moe_gpt_options(const MoeJob& job, const GptOptions& gpt) {
  return {.gpt = gpt,
          .mixture = {.experts = job.experts,
                      .gate = job.gate,
                      .capacity_factor = job.capacity_factor,
                      .parts = job.parts,
                      .overlap = find_expert_overlap(job.overlap)},
          .mixture_every = job.every};
}

MoeTraining::MoeTraining(const TrainSettings& settings, const GptOptions& gpt, const Group& group,
                         bool record)
    : job_(settings.moe.value()),
      ranks_(expert_group(group, record)),
      model_(moe_gpt_options(job_, gpt), ranks_),
      optimizer_(make_optimizer(settings.optimizer, expert_parameters_of(*model_), settings.learning_rate)) {}

torch::Tensor MoeTraining::with_balance(const torch::Tensor& loss) const {
  return job_.balance_weight > 0 ? loss + job_.balance_weight * model_->balance_loss() : loss;
}

void MoeTraining::step() {
  optimizer_->step();
  optimizer_->zero_grad();
  const AllToAllStatistics now = ranks_->statistics();
  by_step_.push_back({.count = now.count - before_.count,
                      .seconds = now.seconds - before_.seconds,
                      .waited_seconds = now.waited_seconds - before_.waited_seconds,
                      .sent_bytes = now.sent_bytes - before_.sent_bytes});
  before_ = now;
  ranks_->begin_iteration(std::ssize(by_step_));
}

MoeReport MoeTraining::report(const std::vector<Range>& counted) const {
  const auto median = [&](auto of) {
    std::vector<double> values;
    for (const Range& range : counted)
      for (std::int64_t step = range.begin; step < range.end; ++step)
        values.push_back(static_cast<double>(of(by_step_.at(static_cast<std::size_t>(step)))));
    return spread_of(values).median;
  };
  MoeReport report{
      .experts = job_.experts,
      .gate = job_.gate,
      .overlap = job_.overlap,
      .parts = job_.parts,
      .all_to_alls = by_step_.back().count,
      .sent_bytes = median([](const AllToAllStatistics& one) { return one.sent_bytes; }),
      .seconds = median([](const AllToAllStatistics& one) { return one.seconds; }),
      .waited_seconds = median([](const AllToAllStatistics& one) { return one.waited_seconds; })};
  std::int64_t choices = 0, dropped = 0;
  for (const MixtureImpl* mixture : mixtures_of(*model_)) {
    const MixtureStatistics& statistics = mixture->statistics();
    const std::vector<std::int64_t>& by_expert = statistics.by_expert;
    const std::int64_t all = std::accumulate(by_expert.begin(), by_expert.end(), std::int64_t{0});
    choices += all;
    dropped += statistics.dropped;
    report.balance = std::max(
        report.balance,
        static_cast<double>(*std::max_element(by_expert.begin(), by_expert.end()) * std::ssize(by_expert)) /
            static_cast<double>(all));
  }
  report.dropped_share = static_cast<double>(dropped) / static_cast<double>(choices);
  return report;
}

}  // namespace dear::train_command
