#include "dear/train/checkpoint/shards.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/checkpoint/own_state.h"
#include "dear/train/checkpoint/parts.h"
#include "dear/train/checkpoint/stored.h"
#include "dear/train/engine/sharing.h"

namespace dear::checkpoint {

namespace fs = std::filesystem;
using archive::TensorRecord;
using archive::Value;

namespace {

// Writes this rank's elements of tensors, and lists them by the keys of the tensors in the manifest.
class Pieces {
 public:
  explicit Pieces(TensorSink& sink) : sink_(sink) {}
  void add(const std::string& key, std::int64_t begin, const torch::Tensor& values) {
    Value::List& list = by_key_[key];
    list.emplace_back(Value::List{begin, sink_.add(values)});
  }
  [[nodiscard]] Value take() {
    Value all{Value::Dict()};
    for (auto& [key, list] : by_key_) all.set(key, std::move(list));
    return all;
  }

 private:
  TensorSink& sink_;
  std::map<std::string, Value::List> by_key_;
};

// Stands in the place of a file of rank 0 alone: describes tensors, of which this rank saves every P-th run
// of elements; of buffers, which may be others on each rank, rank 0 saves all.
class Manifest : public TensorSink {
 public:
  Manifest(Pieces& pieces, const train::TrainingState& state) : pieces_(pieces), group_(state.group()) {
    for (const Model::Named& buffer : state.model().buffers)
      of_rank_0_.insert(buffer.tensor.const_data_ptr());
  }
  void finish(const std::string& /*pickle*/) override {}

 private:
  void write(const std::string& name, const torch::Tensor& dense) override {
    Range own = shard_of(dense.numel(), DType::u8, group_.size(), group_.rank());
    if (of_rank_0_.contains(dense.const_data_ptr())) own = {0, group_.rank() == 0 ? dense.numel() : 0};
    if (!own.empty()) pieces_.add(name, own.begin, train::flat_view(dense).narrow(0, own.begin, own.size()));
  }
  Pieces& pieces_;
  const Group& group_;
  std::set<const void*> of_rank_0_;
};

std::string vector_key(std::size_t parameter, const std::string& vector) {
  return fmt::format("state/{}/{}", parameter, vector);
}

std::string new_name(const Group& group) {
  std::string mine;
  if (group.rank() == 0) mine = fmt::format("{:08x}", std::random_device()());
  return all_gather_text(group, mine).front();
}

}  // namespace

Shard copy_shard(train::TrainingState& state, RandomState random, const Describe& describe) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const Group& group = state.group();
  Shard shard{.copies = std::make_shared<CopySink>(),
              .file = archive::shard_name(new_name(group), group.rank(), group.size())};
  Pieces pieces(*shard.copies);
  const train::EngineState::Outlines outlines = state.outlines();
  // Vectors are described by their parameters: they are of its shape, in its memory order.
  StoredState vectors(outlines.size());
  for (std::size_t i = 0; i < outlines.size(); ++i) {
    if (!outlines[i]) continue;
    const train::TrainedParameter& parameter = state.trained()[i];
    for (const std::string& name : outlines[i]->vectors) {
      TensorRecord& record = vectors[i][name];
      record = checkpoint::describe(parameter.tensor, vector_key(i, name));
      record.strides = parameter.strides;
      if (state.state_type(parameter.tensor.scalar_type()) == at::kFloat) record.storage = "FloatStorage";
    }
  }
  state.visit_own([&](const train::EngineState::Piece& piece) {
    pieces.add("data/" + vector_key(piece.parameter, piece.vector), piece.begin, piece.values);
  });
  Manifest manifest(pieces, state);
  const std::string whole = describe(manifest, outlines, vectors, Value());
  Value file = own_state(state, random, *shard.copies);
  file.set("pieces", pieces.take());
  shard.copies->add_record(archive::kManifest, whole);
  shard.copies->finish(archive::pickle(file));
  return shard;
}

// ---- reading

std::shared_ptr<Shards> Shards::open(const Group& group, const std::string& folder) {
  std::string listed;
  on_rank_0(group, [&] {
    for (const auto& names : archive::shards_in(folder)) listed += fmt::format("{}\n", fmt::join(names, " "));
  });
  std::istringstream lines(all_gather_text(group, listed).front());
  std::string line;
  std::getline(lines, line);
  while (true) {
    try {
      std::shared_ptr<Shards> shards;
      agreement::check_together(group, [&] {
        std::vector<std::string> paths;
        std::istringstream names(line);
        for (std::string name; names >> name;) paths.push_back((fs::path(folder) / name).string());
        shards = std::make_shared<Shards>(group, paths, archive::ShardSet(paths, group.rank(), group.size()),
                                          folder);
      });
      return shards;
    } catch (const ConfigError&) {
      if (!std::getline(lines, line)) throw;
    }
  }
}

Shards::Shards(Group group, const std::vector<std::string>& paths, archive::ShardSet set,
               const std::string& folder)
    : Source(folder, archive::unpickle(set.manifest(), folder)),
      group_(std::move(group)),
      set_(std::move(set)),
      files_(paths.begin(), paths.end()) {}

void Shards::require(const TensorRecord& record) const {
  const auto& pieces = set_.pieces_of("data/" + record.key);
  const std::int64_t found = pieces.empty() ? 0 : pieces.back().end;
  if (found != elements_of(record))
    throw ConfigError(fmt::format("the checkpoint '{}' is not whole: of '{}' it has {} of {} elements",
                                  path(), printable(record.key), found, elements_of(record)));
  for (const auto& piece : pieces)
    if (piece.bytes != (piece.end - piece.begin) * element_bytes(piece.record, path()))
      throw ConfigError(
          fmt::format("the checkpoint '{}' is damaged: a piece of '{}' has not the size of its type", path(),
                      printable(record.key)));
}

torch::Tensor Shards::tensor(const TensorRecord& record) const {
  require(record);
  const std::int64_t bytes = elements_of(record) * element_bytes(record, path());
  if (!room_.defined() || room_.numel() < bytes) room_ = torch::empty({bytes}, torch::kByte);
  const torch::Tensor flat = room_.narrow(0, 0, bytes).view(type_of(record, path())).zero_();
  for (const auto& piece : set_.pieces_of("data/" + record.key))
    if (piece.memory)
      flat.narrow(0, piece.begin, piece.end - piece.begin)
          .copy_(torch::from_blob(piece.memory.get(), {piece.end - piece.begin},
                                  torch::dtype(type_of(piece.record, path()))));
  if (const auto found = wanted_.find(record.key); found != wanted_.end())
    for (const auto& [piece, elements] : found->second) {
      const torch::Tensor into = flat.narrow(0, elements.begin, elements.size());
      read_amid(group_, [&, piece = piece, elements = elements] {
        files_.at(piece->shard)
            .read_part("data/" + piece->record.key,
                       static_cast<std::size_t>((piece->record.offset + elements.begin - piece->begin) *
                                                into.element_size()),
                       {static_cast<std::byte*>(into.mutable_data_ptr()), into.nbytes()});
        return into;
      });
    }
  return flat.as_strided(record.sizes, record.strides);
}

bool Shards::is_small(const TensorRecord& record) const {
  return elements_of(record) * element_bytes(record, path()) <= archive::ShardSet::kSmall;
}

torch::Tensor Shards::whole(const TensorRecord& record) const {
  torch::Tensor values = tensor(record);
  if (!is_small(record)) train::share(group_, {values}, train::EngineState::Holder::spread);
  return values;
}

void Shards::want(const TensorRecord& record, const std::vector<std::int64_t>& strides,
                  const Range& elements) {
  const Range needed = record.strides == strides ? elements : Range{0, elements_of(record)};
  for (const auto& piece : set_.pieces_of("data/" + record.key)) {
    const std::int64_t begin = std::max(piece.begin, needed.begin), end = std::min(piece.end, needed.end);
    if (piece.memory || begin >= end) continue;
    require_record(piece.record, files_.at(piece.shard));
    wanted_[record.key].push_back({.piece = &piece, .elements = {begin, end}});
  }
}

void Shards::forget(const TensorRecord& record) {
  wanted_.erase(record.key);
  set_.forget("data/" + record.key);
}

std::optional<CompressionStates> Shards::restore_this_rank(const train::TrainingState& state,
                                                           const CheckpointOptions& options) {
  if (set_.saved_ranks() != group_.size()) {
    say_ranks(set_.saved_ranks(), group_, options);
    return std::nullopt;
  }
  const auto memory = set_.take_own_memory();
  const auto get = [&](const TensorRecord& record) {
    const auto& own = memory.at(record.key);
    if (own.bytes != elements_of(record) * element_bytes(record, path()))
      throw ConfigError(
          fmt::format("the checkpoint '{}' is damaged: '{}' of rank {} has not the size of its type", path(),
                      printable(record.key), group_.rank()));
    return torch::from_blob(
        own.memory.get(), {elements_of(record)}, [kept = own.memory](void*) {},
        torch::dtype(type_of(record, path())));
  };
  return restore_this(set_.own(), get, path(), state, options);
}

train::EngineState::Values values_of(const std::shared_ptr<Shards>& shards, const train::TrainingState& state,
                                     std::function<TensorRecord(std::size_t, const std::string&)> record_of) {
  std::vector<std::vector<std::int64_t>> strides;
  for (const train::TrainedParameter& parameter : state.trained()) strides.push_back(parameter.strides);
  return {
      .fetch = [=](std::size_t i, const std::string& name) { return shards->tensor(record_of(i, name)); },
      .holder = train::EngineState::Holder::spread,
      .has =
          [=, strides = std::move(strides)](std::size_t i, const std::string& name, const Range& elements) {
            shards->want(record_of(i, name), strides[i], elements);
            return true;
          },
      .forget = [=](std::size_t i, const std::string& name) { shards->forget(record_of(i, name)); }};
}

Position load_shards(train::TrainingState& state, const std::shared_ptr<Shards>& shards,
                     const CheckpointOptions& options) {
  std::shared_ptr<const File> file;
  agreement::check_together(state.group(), [&] { file = std::make_shared<const File>(state, shards); });
  std::optional<CompressionStates> compression = shards->restore_this_rank(state, options);
  const Contents& contents = file->contents();
  state.set_model([&](const std::string& name) { return file->model_value(name); },
                  train::EngineState::Holder::spread);
  for (const TensorRecord& record : archive::records_in(shards->value().at("model", shards->path())))
    shards->forget(record);
  state.optimizer().set_group_options(contents.options);
  state.set_optimizer(
      {.outlines = contents.outlines,
       .values = values_of(shards, state,
                           [file](std::size_t i, const std::string& name) { return file->record(i, name); }),
       .compression = std::move(compression)});
  restore_parts(shards.get(), train::EngineState::Holder::spread, state.group(), options);
  return contents.position;
}

}  // namespace dear::checkpoint
