// The state of one rank alone: its generator of random numbers, and what compression remembers.

#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/loading.h"
#include "dear/train/checkpoint/stored.h"
#include "dear/train/model/tensor_broadcast.h"

namespace dear::checkpoint {

using archive::TensorRecord;
using archive::Value;

namespace {

// Rank 0's tensors, of any number of elements, on every rank.
torch::Tensor from_rank_0(const Group& group, const torch::Tensor& theirs, at::ScalarType type) {
  const std::int64_t elements =
      comm::all_gather_values(group, theirs.defined() ? theirs.numel() : -1).front();
  if (elements < 0) return {};
  torch::Tensor values = group.rank() == 0 ? theirs.contiguous().reshape({-1}).clone()
                                           : torch::empty({elements}, torch::dtype(type));
  model::TensorBroadcast(group, {values}).run();
  return values;
}

torch::Tensor stored_in(const Value* value, const char* name, const archive::ZipReader* reader) {
  const Value* found = value != nullptr ? value->find(name) : nullptr;
  const auto* record = found != nullptr ? found->get<TensorRecord>() : nullptr;
  return record != nullptr ? tensor_of(*record, *reader) : torch::Tensor();
}

void set_random(const torch::Tensor& random, const CheckpointOptions& options) {
  if (!random.defined() || options.random == RandomState::none) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(random);
}

}  // namespace

void say_ranks(int saved, const Group& group, const CheckpointOptions& options) {
  if (group.rank() == 0 && options.say)
    options.say(
        fmt::format("saved on {} ranks and resumed on {}: generators of random numbers, and what compression "
                    "remembers on each rank, begin anew",
                    saved, group.size()));
}

std::optional<CompressionStates> restore_this(const Value& of_rank, const archive::ZipReader& reader,
                                              const TrainingState& state, const CheckpointOptions& options) {
  set_random(stored_in(&of_rank, "random", &reader), options);
  const Value* compression = of_rank.find("compression");
  if (compression == nullptr || compression->get<Value::Dict>() == nullptr) return std::nullopt;
  CompressionStates states{.step = compression->at<std::int64_t>("step", reader.path()), .parameters = {}};
  const Value& parameters = compression->at("parameters", reader.path());
  for (const train::TrainedParameter& parameter : state.trained()) {
    const Value* found = parameters.find(parameter.name);
    if (found == nullptr) continue;
    const auto get = [&](const char* name) { return stored_in(found, name, &reader); };
    states.parameters.push_back({.parameter = parameter.tensor,
                                 .residual = get("residual"),
                                 .momentum = get("momentum"),
                                 .codec = get("codec")});
  }
  return states;
}

std::optional<CompressionStates> restore_own(const Value* of_ranks, const archive::ZipReader* reader,
                                             const TrainingState& state, const CheckpointOptions& options) {
  const Group& group = state.group();
  const auto* list = of_ranks != nullptr ? of_ranks->get<Value::List>() : nullptr;
  const auto saved =
      static_cast<int>(comm::all_gather_values(
                           group, std::int64_t{list != nullptr ? static_cast<std::int64_t>(list->size()) : 0})
                           .front());
  if (saved != group.size()) {
    if (saved > 0) say_ranks(saved, group, options);
    return std::nullopt;
  }
  std::optional<CompressionStates> mine;
  for (int rank = 0; rank < saved; ++rank) {
    const Value* one = list != nullptr ? &(*list)[static_cast<std::size_t>(rank)] : nullptr;
    const torch::Tensor random = from_rank_0(group, stored_in(one, "random", reader), at::kByte);
    if (rank == group.rank()) set_random(random, options);
    const Value* compression = one != nullptr ? one->find("compression") : nullptr;
    const Value* step = compression != nullptr ? compression->find("step") : nullptr;
    const std::int64_t steps =
        comm::all_gather_values(
            group, step != nullptr && step->get<std::int64_t>() ? *step->get<std::int64_t>() : -1)
            .front();
    if (steps < 0) continue;
    const Value* parameters = compression != nullptr ? compression->find("parameters") : nullptr;
    CompressionStates states{.step = steps, .parameters = {}};
    for (const train::TrainedParameter& parameter : state.trained()) {
      const Value* found = parameters != nullptr ? parameters->find(parameter.name) : nullptr;
      if (comm::all_gather_values(group, std::int64_t{found != nullptr}).front() == 0) continue;
      const auto get = [&](const char* name) {
        return from_rank_0(group, stored_in(found, name, reader), at::kFloat);
      };
      CompressionStateOfParameter one_state{.parameter = parameter.tensor,
                                            .residual = get("residual"),
                                            .momentum = get("momentum"),
                                            .codec = get("codec")};
      if (rank == group.rank()) states.parameters.push_back(std::move(one_state));
    }
    if (rank == group.rank()) mine = std::move(states);
  }
  return mine;
}

}  // namespace dear::checkpoint
