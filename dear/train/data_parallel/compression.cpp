// Gradients that travel compressed: what the engine's codec lane does, and what a compression remembers.

#include <cmath>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/schedule/policies/encoding.h"
#include "dear/schedule/policies/policy.h"
#include "dear/train/data_parallel/data_parallel_impl.h"

namespace dear {
namespace train {
namespace {

std::vector<float> values_of(const torch::Tensor& tensor, const std::string& parameter) {
  if (!tensor.defined()) return {};
  if (tensor.scalar_type() != torch::kFloat32 || !tensor.device().is_cpu())
    throw ConfigError(
        fmt::format("the state of a compression for '{}' is no fp32 tensor of the CPU", parameter));
  const torch::Tensor flat = tensor.contiguous().reshape({-1});
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

torch::Tensor tensor_of(const std::vector<float>& values) {
  return torch::tensor(values, torch::dtype(torch::kFloat32));
}

}  // namespace

}  // namespace train

void DataParallel::Impl::agree_on_compression() {
  const std::string text = options_.compression ? options_.compression->text() : "none";
  agree(group_, "compression", text);
  if (!options_.compression) return;
  validate(*options_.compression);
  require_policy_that_compresses(find_policy(options_.policy));
  if (options_.one_copy)
    throw ConfigError(
        "gradients that travel compressed update whole buckets on every rank, so ranks cannot share one copy "
        "of "
        "the parameters: leave out one_copy, or the compression");
  if (options_.compression->scope == Scope::model) options_.buckets = given(Fusion::parse("all"));
}

train::Engine& DataParallel::Impl::compressing_engine(const char* call) {
  throw_if_failed();
  if (!options_.compression || !engine_)
    throw ScheduleError(
        fmt::format("rank {}: {}() needs compression, and a first step()", group_.rank(), call));
  state_.require_between_steps(call);
  wait_for_all();
  return *engine_;
}

CompressionReport DataParallel::Impl::compression_report() {
  if (!options_.compression || !engine_) return {};
  const train::Engine& engine = compressing_engine("compression_report");
  const buckets::CompressionCounts counts = add(earlier_compression_, engine.compression_counts());
  return {.steps = engine.compression_step(),
          .bytes = counts.bytes,
          .dense_bytes = counts.dense_bytes,
          .residual_norm = engine.residual_norm(),
          .dense_exchanges = counts.codec.dense_exchanges,
          .not_finite = counts.not_finite,
          .not_finite_rank = counts.codec.not_finite_rank};
}

CompressionStates DataParallel::Impl::compression_states() {
  const train::Engine& engine = compressing_engine("compression_states");
  CompressionStates states{.step = engine.compression_step(), .parameters = {}};
  const train::Engine::CompressionMemory memory = engine.compression_memory();
  for (std::size_t i = 0; i < memory.size(); ++i)
    if (memory[i])
      states.parameters.push_back({.parameter = scanned_.trained[i].tensor,
                                   .residual = train::tensor_of(memory[i]->residual),
                                   .momentum = train::tensor_of(memory[i]->momentum),
                                   .codec = train::tensor_of(memory[i]->codec)});
  return states;
}

void DataParallel::Impl::load_compression_states(const CompressionStates& states) {
  train::Engine& engine = compressing_engine("load_compression_states");
  train::Engine::CompressionMemory memory(scanned_.trained.size());
  for (const CompressionStateOfParameter& state : states.parameters) {
    const auto found = index_of_.find(state.parameter.unsafeGetTensorImpl());
    if (found == index_of_.end())
      throw ConfigError(
          fmt::format("rank {}: the state of a compression names a tensor that is no trained "
                      "parameter of this DataParallel",
                      group_.rank()));
    const std::string& name = scanned_.trained[found->second].name;
    memory[found->second] = {.residual = train::values_of(state.residual, name),
                             .momentum = train::values_of(state.momentum, name),
                             .codec = train::values_of(state.codec, name)};
  }
  engine.set_compression_memory(memory);
  engine.set_compression_step(states.step);
}

CompressionReport DataParallel::compression_report() { return impl_->compression_report(); }
CompressionStates DataParallel::compression_states() { return impl_->compression_states(); }
void DataParallel::load_compression_states(const CompressionStates& states) {
  impl_->load_compression_states(states);
}

}  // namespace dear
