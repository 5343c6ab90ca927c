#include "dear/train/checkpoint/parts.h"

#include <utility>

#include <fmt/format.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/stored.h"
#include "dear/train/engine/sharing.h"

namespace dear::checkpoint {

using archive::TensorRecord;
using archive::Value;

namespace {

constexpr const char* kParts = "extra";  // in the file, as Python calls it

// What the file says of a part; none where it has none.
Value described(const Source& source, const std::string& name) {
  const Value* parts = source.value().find(kParts);
  const Value* part = parts != nullptr && parts->get<Value::Dict>() != nullptr ? parts->find(name) : nullptr;
  return part != nullptr ? *part : Value();
}

// The names of parts that the file has and nobody asks for.
std::vector<std::string> unused_parts(const Source& source, const std::vector<CheckpointPart>& wanted) {
  std::vector<std::string> unused;
  const Value* parts = source.value().find(kParts);
  const auto* all = parts != nullptr ? parts->get<Value::Dict>() : nullptr;
  if (all == nullptr) return unused;
  for (const auto& [key, part] : *all)
    if (const auto* name = key.get<std::string>();
        name != nullptr && std::none_of(wanted.begin(), wanted.end(),
                                        [&](const CheckpointPart& one) { return one.name == *name; }))
      unused.push_back(*name);
  return unused;
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
  if (options.say && group.rank() == 0)
    for (const std::string& name : unused_parts(*source, options.parts))
      options.say(fmt::format("the checkpoint has a part '{}', which is not used", name));
  for (const CheckpointPart& part : options.parts) {
    const std::string mine = reads ? archive::pickle(described(*source, part.name)) : "";
    const std::string text = by_all ? mine : all_gather_text(group, mine).front();
    const Value value = archive::unpickle(text, part.name);
    const auto* records = value.get<Value::Dict>();
    if (records == nullptr) {
      if (options.say && group.rank() == 0)
        options.say(fmt::format("the checkpoint has no part '{}', which begins anew", part.name));
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
