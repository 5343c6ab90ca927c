#include "dear/train/checkpoint/own_state.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/stored.h"
#include "dear/train/engine/sharing.h"

namespace dear::checkpoint {

using archive::TensorRecord;
using archive::Value;

namespace {

// Keeps tensors, in the order in which they come.
class TensorList : public TensorSink {
 public:
  void finish(const std::string& /*pickle*/) override {}
  std::vector<torch::Tensor> tensors;

 private:
  void write(const std::string& /*name*/, const torch::Tensor& dense) override { tensors.push_back(dense); }
};

// The place in tensors whose bytes are copied one tensor's after another's.
struct Place {
  std::size_t tensor = 0;
  std::int64_t offset = 0;

  // Goes on by so many bytes: copy(memory, at, some) for those of a tensor, which `tensor_at` returns, and
  // ended() behind its last.
  template <typename TensorAt, typename Copy, typename Ended>
  void go_on(std::size_t tensors, std::int64_t bytes, const TensorAt& tensor_at, const Copy& copy,
             const Ended& ended) {
    for (std::int64_t at = 0; tensor < tensors; ++tensor, offset = 0) {
      const torch::Tensor now = tensor_at(tensor);
      const auto all = static_cast<std::int64_t>(now.nbytes());
      const std::int64_t some = std::min(all - offset, bytes - at);
      if (some > 0)  // a tensor without elements has no memory
        copy(static_cast<std::byte*>(now.mutable_data_ptr()) + offset, at, static_cast<std::size_t>(some));
      at += some;
      offset += some;
      if (offset < all) return;
      ended();
    }
  }
};

// Makes room for the tensor's elements, in the order in which they lie in memory.
torch::Tensor room_for(const TensorRecord& record, const std::string& file, at::Device device) {
  return torch::empty({elements_of(record)}, torch::dtype(type_of(record, file)).device(device));
}

// What one rank sends, as rank 0 gets it.
struct Arriving {
  Value described;
  std::vector<TensorRecord> records;
  Value::List stored;  // in place of the records, so far
  torch::Tensor now;   // what is not whole yet
  Place place;
  std::int64_t bytes = 0;
};

// Puts values in place of the records, in the order of records_in().
void replace_records(Value& value, Value::List::const_iterator& by) {
  if (value.get<TensorRecord>() != nullptr) {
    value = *by++;
  } else if (auto* dict = value.get<Value::Dict>()) {
    for (auto& entry : *dict) replace_records(entry.value, by);
  }
}

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

Value own_state(train::TrainingState& state, RandomState random, TensorSink& sink) {
  Value own{Value::Dict()};
  if (random == RandomState::of_each_rank) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    own.set("random", sink.add(generator.get_state()));
  }
  const std::optional<CompressionStates> states = state.compression();
  if (!states) return own;
  Value parameters{Value::Dict()};
  for (const CompressionStateOfParameter& one : states->parameters) {
    Value of_parameter{Value::Dict()};
    for (const auto& [name, values] : {std::pair("residual", one.residual),
                                       std::pair("momentum", one.momentum), std::pair("codec", one.codec)})
      if (values.defined()) of_parameter.set(name, sink.add(values));
    parameters.set(state.trained()[state.index_of(one.parameter).value()].name, std::move(of_parameter));
  }
  Value compression;
  compression.set("step", states->step);
  compression.set("parameters", std::move(parameters));
  own.set("compression", std::move(compression));
  return own;
}

// The ranks send blocks of their own side by side.
Value gather_own_states(train::TrainingState& state, RandomState random, const Store& store) {
  const Group& group = state.group();
  TensorList mine;
  std::vector<Arriving> all;
  std::int64_t longest = 0;
  for (const std::string& text : all_gather_text(group, archive::pickle(own_state(state, random, mine)))) {
    Arriving& one = all.emplace_back();
    one.described = archive::unpickle(text, "a rank's own state");
    one.records = records_in(one.described);
    for (const TensorRecord& record : one.records)
      one.bytes += static_cast<std::int64_t>(room_for(record, "", at::kMeta).nbytes());
    longest = std::max(longest, one.bytes);
  }
  const std::int64_t block =
      std::min(os::whole_cache_lines(longest), 16 * kMiB / group.size() / 64 * 64 + 64);
  const Buffer staging = longest > 0 ? group.allocate(block * group.size()) : Buffer();
  Place sent;
  for (std::int64_t begin = 0; begin < longest; begin += block) {
    sent.go_on(
        mine.tensors.size(), block, [&](std::size_t i) { return mine.tensors[i]; },
        [&](std::byte* memory, std::int64_t at, std::size_t some) {
          std::memcpy(staging.data() + block * group.rank() + at, memory, some);
        },
        [] {});
    group
        .all_gather({.buffer = staging, .offset_bytes = 0, .count = block * group.size(), .dtype = DType::u8})
        .wait();
    for (std::size_t rank = 0; rank < all.size() && group.rank() == 0; ++rank) {
      Arriving& one = all[rank];
      const std::byte* came = staging.data() + block * static_cast<std::int64_t>(rank);
      one.place.go_on(
          one.records.size(), block,
          [&](std::size_t i) {
            return one.now.defined() ? one.now : one.now = room_for(one.records[i], "", at::kCPU);
          },
          [&](std::byte* memory, std::int64_t at, std::size_t some) { std::memcpy(memory, came + at, some); },
          [&] {
            one.stored.push_back(store(one.now));
            one.now.reset();
          });
    }
  }
  Value::List values;
  for (Arriving& one : all) {
    auto next = one.stored.cbegin();
    if (group.rank() == 0) replace_records(one.described, next);
    values.push_back(std::move(one.described));
  }
  return values;
}

void say_ranks(int saved, const Group& group, const CheckpointOptions& options) {
  if (group.rank() == 0 && options.say)
    options.say(
        fmt::format("saved on {} ranks and resumed on {}: generators of random numbers, and what compression "
                    "remembers on each rank, begin anew",
                    saved, group.size()));
}

std::optional<CompressionStates> restore_this(const Value& of_rank, const Get& get, const std::string& file,
                                              const train::TrainingState& state,
                                              const CheckpointOptions& options) {
  set_random(stored_in(&of_rank, "random", get), options);
  const Value* compression = of_rank.find("compression");
  if (compression == nullptr || compression->get<Value::Dict>() == nullptr) return std::nullopt;
  CompressionStates states{.step = compression->at<std::int64_t>("step", file), .parameters = {}};
  const Value& parameters = compression->at("parameters", file);
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
                                             const std::string& file, const train::TrainingState& state,
                                             const CheckpointOptions& options) {
  const Group& group = state.group();
  const std::string mine = of_ranks != nullptr ? archive::pickle(*of_ranks) : "";
  const std::string text = all_gather_text(group, mine).front();
  const Value ranks = text.empty() ? Value() : archive::unpickle(text, file);
  const auto* list = ranks.get<Value::List>();
  const int saved = list != nullptr ? static_cast<int>(list->size()) : 0;
  if (saved != group.size()) {
    if (saved > 0) say_ranks(saved, group, options);
    return std::nullopt;
  }
  std::vector<std::vector<torch::Tensor>> sent;
  // Rank 0 refuses what the file has not, before any rank makes room for it.
  on_rank_0(group, [&] {
    for (int rank = 0; rank < saved; ++rank) {
      auto& of_rank = sent.emplace_back();
      for (const TensorRecord& record : records_in((*list)[static_cast<std::size_t>(rank)])) {
        double bytes = static_cast<double>(element_bytes(record, file));
        for (const std::int64_t size : record.sizes) bytes *= static_cast<double>(size);
        if (bytes > static_cast<double>(reader->extent_of("data/" + record.key).size))
          throw ConfigError(
              fmt::format("the checkpoint '{}' is damaged: '{}' of rank {} is larger than its record", file,
                          printable(record.key), rank));
        of_rank.push_back(tensor_of(record, *reader).contiguous());
      }
    }
  });
  std::vector<torch::Tensor> own;
  std::map<std::string, torch::Tensor> by_key;
  std::vector<std::int64_t> bytes(list->size(), 0);
  on_every_rank(group, [&] {
    for (std::size_t rank = 0; rank < list->size(); ++rank) {
      const bool this_rank = static_cast<int>(rank) == group.rank();
      for (const TensorRecord& record : records_in((*list)[rank])) {
        const auto room = torch::empty(
            record.sizes, torch::dtype(type_of(record, file)).device(this_rank ? at::kCPU : at::kMeta));
        bytes[rank] += static_cast<std::int64_t>(room.nbytes());
        if (this_rank) own.push_back(by_key[record.key] = room);
      }
    }
  });
  train::scatter(group, sent, own, bytes);
  return restore_this((*list)[static_cast<std::size_t>(group.rank())],
                      [&](const TensorRecord& record) { return by_key.at(record.key); }, file, state,
                      options);
}

}  // namespace dear::checkpoint
