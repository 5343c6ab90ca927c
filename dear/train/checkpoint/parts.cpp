#include "dear/train/checkpoint/parts.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/stored.h"
#include "dear/train/engine/sharing.h"

namespace dear::checkpoint {

using archive::TensorRecord;
using archive::Value;

namespace {

constexpr const char* kParts = "extra";  // in the file, as Python calls it

// All parts of the file, by name.
Value::Dict parts_of(const Source& source) {
  const Value* parts = source.value().find(kParts);
  const auto* all = parts != nullptr ? parts->get<Value::Dict>() : nullptr;
  return all != nullptr ? *all : Value::Dict();
}

}  // namespace

PartTensors collect(const std::vector<CheckpointPart>& parts) {
  PartTensors all;
  for (const CheckpointPart& part : parts)
    if (!all.emplace(part.name, part.save()).second)
      throw ConfigError(
          fmt::format("two parts of a checkpoint are called '{}': give each a name of its own", part.name));
  return all;
}

Value stored_parts(const PartTensors& parts, TensorSink& sink) {
  Value all{Value::Dict()};
  for (const auto& [name, tensors] : parts) {
    Value part{Value::Dict()};
    for (const auto& [key, tensor] : tensors) part.set(key, sink.add(tensor));
    all.set(name, std::move(part));
  }
  return all;
}

void restore_parts(const Source* source, train::EngineState::Holder holder, const Group& group,
                   const CheckpointOptions& options) {
  const bool by_all = holder != train::EngineState::Holder::rank_0;
  const bool reads = by_all || group.rank() == 0;
  const auto say = [&](const std::string& sentence) {
    if (options.say && group.rank() == 0) options.say(sentence);
  };
  const Value found(reads ? parts_of(*source) : Value::Dict());
  for (const auto& entry : *found.get<Value::Dict>()) {
    const auto* name = entry.key.get<std::string>();
    const auto is_it = [&](const CheckpointPart& one) { return one.name == *name; };
    if (name != nullptr && std::none_of(options.parts.begin(), options.parts.end(), is_it))
      say(fmt::format("the checkpoint has a part '{}', which is not used", printable(*name)));
  }
  for (const CheckpointPart& part : options.parts) {
    const Value* described = found.find(part.name);
    const std::string mine = archive::pickle(described != nullptr ? *described : Value());
    const std::string text = by_all ? mine : all_gather_text(group, mine).front();
    const Value value = archive::unpickle(text, part.name);
    const auto* records = value.get<Value::Dict>();
    if (records == nullptr) {
      say(fmt::format("the checkpoint has no part '{}', which begins anew", part.name));
      continue;
    }
    std::map<std::string, torch::Tensor> tensors;
    std::vector<torch::Tensor> all;
    on_every_rank(group, [&] {
      for (const auto& [key, item] : *records) {
        const auto* name = key.get<std::string>();
        const auto* record = item.get<TensorRecord>();
        if (name == nullptr || record == nullptr)
          throw ConfigError(fmt::format("part '{}' of the checkpoint has something else than tensors: {}",
                                        part.name, "save it by the same class that loads it"));
        all.push_back(reads ? source->tensor(*record).clone()
                            : torch::empty_strided(record->sizes, record->strides,
                                                   torch::dtype(type_of(*record, part.name))));
        tensors[*name] = all.back();
      }
    });
    train::share(group, all, holder);
    part.load(tensors);
  }
}

}  // namespace dear::checkpoint
