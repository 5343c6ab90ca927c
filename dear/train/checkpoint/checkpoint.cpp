// One file for all: save_checkpoint() and load_checkpoint().

#include "dear/train/checkpoint/checkpoint.h"

#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/base/vocabulary/error.h"
#include "dear/train/checkpoint/loading.h"
#include "dear/train/checkpoint/parts.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/checkpoint/stored.h"
#include "dear/train/data_parallel/training_state.h"

namespace dear {
namespace checkpoint {

using archive::Value;

Value value_of(const Position& position) {
  Value value;
  value.set("step", position.step);
  for (const auto& [key, text] : position.more) value.set(key, text);
  return value;
}

// Python keeps some options as bools, and betas together.
Value value_of(const Optimizer::Options& options) {
  static const std::set<std::string, std::less<>> kBools{
      "adapt", "amsgrad", "bias_correction", "centered", "decoupled", "larc", "nesterov"};
  Value value;
  for (const auto& [name, number] : options) {
    if (name == "beta2") continue;
    if (name == "beta1") {
      value.set("betas", Value::Tuple{{number, options.at("beta2")}});
    } else {
      value.set(name, kBools.contains(name) ? Value(number != 0) : Value(number));
    }
  }
  return value;
}

namespace {

torch::Tensor tensor_of_bytes(const std::string& bytes) {
  torch::Tensor tensor = torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::dtype(torch::kUInt8));
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

}  // namespace

Value value_of_state(const Optimizer& optimizer, const std::string& scalars,
                     const std::map<std::string, archive::TensorRecord>& vectors, TensorSink& sink) {
  Value state{Value::Dict()};
  const std::map<std::string, double> read = optimizer.read_scalars(scalars);
  for (const auto& [name, value] : read) state.set(name, sink.add(torch::tensor(static_cast<float>(value))));
  if (read.empty() && !scalars.empty()) state.set(kOpaque, sink.add(tensor_of_bytes(scalars)));
  for (const auto& [name, record] : vectors) state.set(name, record);
  return state;
}

namespace {

// Python numbers parameters in the order of the optimiser's groups.
Value optimizer_value(train::TrainingState& state, TensorSink& sink,
                      const train::EngineState::Outlines& outlines, const StoredState& vectors) {
  Value states{Value::Dict()};
  Value::List groups;
  std::int64_t number = 0;
  const std::vector<Optimizer::Options> options = state.optimizer().group_options();
  for (const auto& tensors : state.optimizer().parameter_groups()) {
    Value group = groups.size() < options.size() ? value_of(options[groups.size()]) : Value(Value::Dict());
    Value::List numbers;
    for (const torch::Tensor& tensor : tensors) {
      numbers.emplace_back(number++);
      const std::optional<std::size_t> index = state.index_of(tensor);
      if (!index || !outlines[*index]) continue;
      states.set(numbers.back(),
                 value_of_state(state.optimizer(), outlines[*index]->scalars, vectors[*index], sink));
    }
    group.set("params", std::move(numbers));
    groups.push_back(std::move(group));
  }
  Value value;
  value.set("state", std::move(states));
  value.set("param_groups", std::move(groups));
  return value;
}

}  // namespace

Value about(train::TrainingState& state) {
  Value value;
  value.set("version", 1);
  value.set("optimizer", class_of(state.optimizer().name()));
  value.set("ranks", state.group().size());
  return value;
}

Describe describe_libtorch(train::TrainingState& state, const Position& position, PartTensors parts) {
  return [&state, position, parts = std::move(parts)](TensorSink& sink,
                                                      const train::EngineState::Outlines& outlines,
                                                      const StoredState& vectors, const Value& of_ranks) {
    std::map<const c10::TensorImpl*, Value> saved;
    Value model{Value::Dict()}, others{Value::Dict()};
    const auto add = [&](Value& to, const std::string& name, const torch::Tensor& tensor) {
      Value& record = saved[tensor.unsafeGetTensorImpl()];
      if (record.get<std::monostate>()) record = sink.add(tensor);
      to.set(name, record);
    };
    for (const auto* named : {&state.model().parameters, &state.model().buffers})
      for (const auto& [name, tensor] : *named) add(model, name, tensor);
    for (const auto& parameter : state.trained())
      if (!saved.contains(parameter.tensor.unsafeGetTensorImpl()))
        add(others, parameter.name, parameter.tensor);
    Value file;
    file.set("model", std::move(model));
    file.set("optimizer", optimizer_value(state, sink, outlines, vectors));
    file.set("position", value_of(position));
    file.set("optimizer_only", std::move(others));
    if (!parts.empty()) file.set("extra", stored_parts(parts, sink));
    file.set("ranks", of_ranks);
    file.set("dear", about(state));
    return pickle(file);
  };
}

}  // namespace checkpoint

void save_checkpoint(DataParallel& parallel, const std::string& path, const Position& position,
                     const CheckpointOptions& options) {
  train::TrainingState state(parallel);
  checkpoint::save_whole(
      state, options.random, [&] { return std::make_shared<checkpoint::FileSink>(path); },
      checkpoint::describe_libtorch(state, position, checkpoint::collect(options.parts)));
}

Position load_checkpoint(DataParallel& parallel, const std::string& path, const CheckpointOptions& options) {
  train::TrainingState state(parallel);
  return checkpoint::load_whole(state, path, options);
}

}  // namespace dear
