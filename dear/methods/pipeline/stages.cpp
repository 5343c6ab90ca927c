#include "dear/methods/pipeline/stages.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::methods::pipeline {
namespace {

std::size_t sum_at(std::int64_t number) { return static_cast<std::size_t>(number); }

}  // namespace

Transfer transfer_of(const PairCluster& cluster, int from, int to, double bytes) {
  if (from == to || bytes <= 0) return {};
  return {.busy_seconds = cluster.transfer_seconds(from, to, bytes),
          .latency_seconds = cluster.latency_seconds[index_of(from)][index_of(to)],
          .bytes = bytes};
}

StageCosts::StageCosts(const OperatorDag& dag, const PairCluster& cluster, const MemoryRule& memory)
    : dag_(&dag),
      cluster_(&cluster),
      memory_(memory),
      work_(dag.size() + 1),
      parameter_bytes_(dag.size() + 1),
      kept_bytes_(dag.size() + 1) {
  if (!(memory.copies_of_parameters >= 1) || memory.copies_of_parameters > 1000)
    throw ConfigError(fmt::format("{} copies of parameters cannot be in memory: give a number from 1 to 1000",
                                  memory.copies_of_parameters));
  for (OperatorId id = 0; id < dag.size(); ++id) {
    const Operator& op = dag[id];
    work_[id + 1] = {.forward = work_[id].forward + op.forward_work,
                     .input_gradient = work_[id].input_gradient + op.input_gradient_work,
                     .weight_gradient = work_[id].weight_gradient + op.weight_gradient_work};
    parameter_bytes_[id + 1] = parameter_bytes_[id] + op.parameter_bytes;
    kept_bytes_[id + 1] = kept_bytes_[id] + op.kept_bytes;
    if (op.tied) tied_.push_back(id);
  }
}

double StageCosts::work(const Range& operators) const {
  return work_[sum_at(operators.end)].all() - work_[sum_at(operators.begin)].all();
}

StageSeconds StageCosts::seconds(const Range& operators, int device) const {
  const StageSeconds &begin = work_[sum_at(operators.begin)], &end = work_[sum_at(operators.end)];
  const double rate = cluster_->devices[index_of(device)].flops_per_second;
  return {.forward = (end.forward - begin.forward) / rate,
          .input_gradient = (end.input_gradient - begin.input_gradient) / rate,
          .weight_gradient = (end.weight_gradient - begin.weight_gradient) / rate};
}

std::int64_t StageCosts::resident_bytes(const Range& operators) const {
  std::int64_t bytes = parameter_bytes_[sum_at(operators.end)] - parameter_bytes_[sum_at(operators.begin)];
  std::vector<OperatorId> copied;
  for (const OperatorId id : tied_) {
    const OperatorId owner = *(*dag_)[id].tied;
    const bool is_copied = std::find(copied.begin(), copied.end(), owner) != copied.end();
    if (!operators.contains(id) || operators.contains(owner) || is_copied) continue;
    copied.push_back(owner);
    bytes += (*dag_)[owner].parameter_bytes;
  }
  return static_cast<std::int64_t>(std::ceil(memory_.copies_of_parameters * static_cast<double>(bytes)));
}

std::int64_t StageCosts::held_bytes(const Range& operators) const {
  return kept_bytes_[sum_at(operators.end)] - kept_bytes_[sum_at(operators.begin)] +
         dag_->crossing_bytes(sum_at(operators.begin));
}

Transfer StageCosts::activations(std::int64_t cut, int before, int behind, double scale) const {
  return transfer_of(*cluster_, before, behind,
                     scale * static_cast<double>(dag_->crossing_bytes(sum_at(cut))));
}

Transfer StageCosts::gradients(std::int64_t cut, int before, int behind, double scale) const {
  return transfer_of(*cluster_, behind, before,
                     scale * static_cast<double>(dag_->gradient_bytes(sum_at(cut))));
}

}  // namespace dear::methods::pipeline
