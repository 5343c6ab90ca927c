// The state of one rank alone: its generator of random numbers, and what compression remembers.

#include <map>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/loading.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/checkpoint/stored.h"
#include "dear/train/engine/sharing.h"

namespace dear::checkpoint {

using archive::TensorRecord;
using archive::Value;

namespace {

torch::Tensor stored_in(const Value* value, const char* name, const Get& get) {
  const Value* found = value != nullptr ? value->find(name) : nullptr;
  const auto* record = found != nullptr ? found->get<TensorRecord>() : nullptr;
  return record != nullptr ? get(*record) : torch::Tensor();
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

std::optional<CompressionStates> restore_this(const Value& of_rank, const Get& get,
                                              const train::TrainingState& state,
                                              const CheckpointOptions& options) {
  set_random(stored_in(&of_rank, "random", get), options);
  const Value* compression = of_rank.find("compression");
  if (compression == nullptr || compression->get<Value::Dict>() == nullptr) return std::nullopt;
  CompressionStates states{.step = compression->at<std::int64_t>("step", "a checkpoint"), .parameters = {}};
  const Value& parameters = compression->at("parameters", "a checkpoint");
  for (const train::TrainedParameter& parameter : state.trained()) {
    const Value* found = parameters.find(parameter.name);
    if (found == nullptr) continue;
    states.parameters.push_back({.parameter = parameter.tensor,
                                 .residual = stored_in(found, "residual", get),
                                 .momentum = stored_in(found, "momentum", get),
                                 .codec = stored_in(found, "codec", get)});
  }
  return states;
}

// Rank 0 alone has the file: it tells all what there is, and sends each rank what is that rank's.
std::optional<CompressionStates> restore_own(const Value* of_ranks, const archive::ZipReader* reader,
                                             const train::TrainingState& state,
                                             const CheckpointOptions& options) {
  const Group& group = state.group();
  const std::string mine = of_ranks != nullptr ? archive::pickle(*of_ranks) : "";
  const std::string text = all_gather_text(group, mine).front();
  const Value ranks = text.empty() ? Value() : archive::unpickle(text, "a checkpoint");
  const auto* list = ranks.get<Value::List>();
  const int saved = list != nullptr ? static_cast<int>(list->size()) : 0;
  if (saved != group.size()) {
    if (saved > 0) say_ranks(saved, group, options);
    return std::nullopt;
  }
  std::vector<std::vector<torch::Tensor>> sent;
  std::vector<torch::Tensor> own;
  std::map<std::string, torch::Tensor> by_key;
  std::vector<std::int64_t> bytes(list->size(), 0);
  const auto records_of = [&](int rank) { return records_in((*list)[static_cast<std::size_t>(rank)]); };
  // Rank 0 refuses what the file has not, before any rank makes room for it.
  on_every_rank(group, [&] {
    for (int rank = 0; rank < saved && reader != nullptr; ++rank) {
      auto& of_rank = sent.emplace_back();
      for (const TensorRecord& record : records_of(rank)) {
        const torch::Tensor stored = tensor_of(record, *reader);
        if (stored.nbytes() > reader->bytes_of("data/" + record.key).size())
          throw ConfigError(
              fmt::format("the checkpoint '{}' is damaged: '{}' of rank {} is larger than its record",
                          reader->path(), printable(record.key), rank));
        of_rank.push_back(stored.contiguous());
      }
    }
  });
  on_every_rank(group, [&] {
    for (int rank = 0; rank < saved; ++rank) {
      const bool this_rank = rank == group.rank();
      for (const TensorRecord& record : records_of(rank)) {
        const torch::Tensor values = torch::empty(
            record.sizes,
            torch::dtype(type_of(record, "a checkpoint")).device(this_rank ? at::kCPU : at::kMeta));
        bytes[static_cast<std::size_t>(rank)] += static_cast<std::int64_t>(values.nbytes());
        if (this_rank) own.push_back(by_key[record.key] = values);
      }
    }
  });
  train::scatter(group, sent, own, bytes);
  return restore_this((*list)[static_cast<std::size_t>(group.rank())],
                      [&](const TensorRecord& record) { return by_key.at(record.key); }, state, options);
}

}  // namespace dear::checkpoint
