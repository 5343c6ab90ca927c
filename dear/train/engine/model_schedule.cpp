#include "dear/train/engine/model_schedule.h"

#include <algorithm>

#include "dear/comm/process_group/torch_types.h"
#include "dear/schedule/policies/compressed.h"
#include "dear/schedule/policies/decision.h"
#include "dear/schedule/policies/one_copy.h"
#include "dear/schedule/policies/policy.h"

namespace dear::train {

Workload workload_of(const std::vector<TrainedParameter>& parameters, const std::vector<std::size_t>& order,
                     const std::vector<LayerId>& layer_of) {
  Workload workload{.name = "live", .tensors = {}, .layers = {}};
  workload.layers.resize(*std::max_element(layer_of.begin(), layer_of.end()) + 1);
  for (const std::size_t i : order) {
    const TrainedParameter& parameter = parameters[i];
    Layer& layer = workload.layers[layer_of[i]];
    layer.tensors.push_back(static_cast<TensorId>(workload.tensors.size()));
    if (layer.name.empty()) layer.name = parameter.module.empty() ? "(root)" : parameter.module;
    workload.tensors.push_back(
        {parameter.name, parameter.tensor.numel(), *process_group::dtype_of(parameter.tensor.scalar_type())});
  }
  return workload;
}

void add_times(const EngineProfile& profile, Workload& workload) {
  for (std::size_t i = 0; i < workload.layers.size(); ++i) {
    workload.layers[i].forward_seconds = profile.forward_seconds.at(i);
    workload.layers[i].backward_seconds = profile.backward_seconds.at(i);
  }
  workload.update_seconds = profile.update_seconds;
}

std::vector<std::int64_t> rows_of_tensors(const std::vector<TrainedParameter>& parameters,
                                          const std::vector<std::size_t>& order) {
  std::vector<std::int64_t> rows;
  for (const std::size_t i : order) {
    const torch::Tensor& tensor = parameters[i].tensor;
    rows.push_back(tensor.dim() < 2 ? 1 : tensor.size(0));
  }
  return rows;
}

Schedule make_training_schedule(const Workload& workload, const Grouping& grouping,
                                const EngineOptions& options, const std::vector<std::int64_t>& rows,
                                int ranks) {
  Workload timed = workload;
  cost::CollectiveTimes times{.ranks = ranks};
  if (options.profile) {
    add_times(*options.profile, timed);
    times = cost::ring_times(options.profile->link, ranks);
  }
  Schedule schedule = make_schedule(find_policy(options.policy), timed, grouping, times);
  if (options.compression)
    schedule = with_encodings(schedule, workload, grouping,
                              encodings_of(*options.compression, timed, grouping, times, {}, {}, rows));
  if (options.one_copy) schedule = with_one_copy(schedule, workload, grouping);
  if (options.decision.buffer.bytes() > 0) schedule = with_decision(schedule, workload, grouping);
  return schedule;
}

}  // namespace dear::train
