#include "dear/train/checkpoint/shards.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/checkpoint/loading.h"
#include "dear/train/checkpoint/parts.h"
#include "dear/train/checkpoint/stored.h"

namespace dear::checkpoint {

namespace fs = std::filesystem;
using archive::TensorRecord;
using archive::Value;

namespace {

constexpr const char* kManifest = "manifest.pkl";

torch::Tensor flat_view(const torch::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1}, dense.storage_offset());
}

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

// In the place of a file of rank 0 alone: describes tensors, of which this rank saves every P-th run of
// elements.
class Manifest : public TensorSink {
 public:
  Manifest(Pieces& pieces, const Group& group) : pieces_(pieces), group_(group) {}
  void finish(const std::string& /*pickle*/) override {}

 private:
  void write(const std::string& name, const torch::Tensor& dense) override {
    const Range own = shard_of(dense.numel(), DType::u8, group_.size(), group_.rank());
    if (own.size() > 0) pieces_.add(name, own.begin, flat_view(dense).narrow(0, own.begin, own.size()));
  }
  Pieces& pieces_;
  const Group& group_;
};

std::string vector_key(std::size_t parameter, const std::string& vector) {
  return fmt::format("state/{}/{}", parameter, vector);
}

std::string new_name(const Group& group) {
  std::string mine;
  if (group.rank() == 0) mine = fmt::format("{:08x}", std::random_device()());
  return all_gather_text(group, mine).front();
}

Value value_of(const std::optional<CompressionStates>& states, const TrainingState& state, TensorSink& sink) {
  if (!states) return {};
  Value parameters{Value::Dict()};
  for (const CompressionStateOfParameter& one : states->parameters) {
    for (const train::TrainedParameter& parameter : state.trained()) {
      if (!parameter.tensor.is_same(one.parameter)) continue;
      Value of_parameter{Value::Dict()};
      for (const auto& [name, values] : {std::pair("residual", one.residual),
                                         std::pair("momentum", one.momentum), std::pair("codec", one.codec)})
        if (values.defined()) of_parameter.set(name, sink.add(values));
      parameters.set(parameter.name, std::move(of_parameter));
    }
  }
  Value value;
  value.set("step", states->step);
  value.set("parameters", std::move(parameters));
  return value;
}

}  // namespace

Shard copy_shard(TrainingState& state, const Position& position, RandomState random, PartTensors parts) {
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  const Group& group = state.group();
  Shard shard{.copies = std::make_shared<CopySink>(),
              .file = fmt::format("{}-{:05}-of-{:05}.pt", new_name(group), group.rank(), group.size())};
  Pieces pieces(*shard.copies);
  const EngineState::Outlines outlines = state.outlines();
  // Vectors are described by their parameters: they are of its shape, in its memory order.
  StoredState vectors(outlines.size());
  for (std::size_t i = 0; i < outlines.size(); ++i) {
    if (!outlines[i]) continue;
    const train::TrainedParameter& parameter = state.trained()[i];
    for (const std::string& name : outlines[i]->vectors) {
      TensorRecord& record = vectors[i][name];
      record = describe(parameter.tensor, vector_key(i, name));
      record.strides = parameter.strides;
      if (state.state_type(parameter.tensor.scalar_type()) == at::kFloat) record.storage = "FloatStorage";
    }
  }
  state.visit_own([&](const EngineState::Piece& piece) {
    pieces.add("data/" + vector_key(piece.parameter, piece.vector), piece.begin, piece.values);
  });
  Manifest manifest(pieces, group);
  const std::string whole =
      describe_libtorch(state, position, std::move(parts))(manifest, outlines, vectors, Value());
  const OfRank mine = own(state, random);
  Value file;
  file.set("random", mine.random.defined() ? Value(shard.copies->add(mine.random)) : Value());
  file.set("compression", value_of(mine.compression, state, *shard.copies));
  file.set("position", checkpoint::value_of(position));
  file.set("pieces", pieces.take());
  shard.copies->add_record(kManifest, whole);
  shard.copies->finish(archive::pickle(file));
  return shard;
}

// ---- reading

namespace {

struct Name {
  std::string word;  // of those that were saved together
  int rank = 0, ranks = 0;
};

std::optional<Name> name_of(const std::string& file) {
  static const std::regex kForm("([0-9a-f]{8})-([0-9]{5})-of-([0-9]{5})\\.pt");
  std::smatch match;
  if (!std::regex_match(file, match, kForm)) return std::nullopt;
  return Name{.word = match[1], .rank = std::stoi(match[2]), .ranks = std::stoi(match[3])};
}

// The files of a folder that were saved together, by rank.
std::vector<std::vector<std::string>> sets_in(const std::string& folder) {
  std::map<std::string, std::map<int, std::string>> found;
  std::map<std::string, int> ranks;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::optional<Name> name = name_of(entry.path().filename().string());
    if (!name) continue;
    found[name->word][name->rank] = entry.path().string();
    ranks[name->word] = name->ranks;
  }
  if (error)
    throw ConfigError(fmt::format("cannot look into the checkpoint '{}': {}", folder, error.message()));
  if (found.empty()) throw ConfigError(fmt::format("the checkpoint '{}' has no shards", folder));
  std::vector<std::vector<std::string>> sets;
  std::string missing;
  for (const auto& [word, files] : found) {
    if (static_cast<int>(files.size()) == ranks[word]) {
      auto& set = sets.emplace_back();
      for (const auto& file : files) set.push_back(file.second);
      continue;
    }
    int rank = 0;
    while (files.contains(rank)) ++rank;
    missing = fmt::format("the checkpoint '{}' is not whole: the shard {}-{:05}-of-{:05}.pt is not there",
                          folder, word, rank, ranks[word]);
  }
  if (sets.empty()) throw ConfigError(missing);
  return sets;
}

// Tensors from the shards that have their elements.
class ShardedSource : public Source {
 public:
  explicit ShardedSource(std::shared_ptr<const Shards> shards)
      : Source(fs::path(shards->front().path()).parent_path().string(),
               archive::unpickle(shards->front().text_of(kManifest), shards->front().path())),
        shards_(std::move(shards)) {
    for (const archive::ZipReader& shard : *shards_) {
      files_.push_back(archive::unpickle(shard.text_of("data.pkl"), shard.path()));
      static_cast<void>(files_.back().at<Value::Dict>("pieces", shard.path()));
    }
    for (const Value& file : files_)
      for (const auto& [key, list] : *file.find("pieces")->get<Value::Dict>())
        if (const auto* name = key.get<std::string>()) {
          auto& lists = pieces_[*name];
          lists.resize(files_.size());
          lists[static_cast<std::size_t>(&file - files_.data())] = list.get<Value::List>();
        }
  }
  [[nodiscard]] torch::Tensor tensor(const TensorRecord& record) const override {
    const torch::Tensor whole =
        torch::empty_strided(record.sizes, record.strides, torch::dtype(type_of(record, path())));
    const torch::Tensor flat = flat_view(whole);
    std::int64_t found = 0;
    const auto lists = pieces_.find("data/" + record.key);
    for (std::size_t shard = 0; lists != pieces_.end() && shard < lists->second.size(); ++shard) {
      if (lists->second[shard] == nullptr) continue;
      for (const Value& piece : *lists->second[shard]) found += copy(piece, (*shards_)[shard], flat);
    }
    if (found != flat.numel())
      throw ConfigError(fmt::format("the checkpoint '{}' is not whole: of '{}' it has {} of {} elements",
                                    path(), record.key, found, flat.numel()));
    return whole;
  }
  // The state of rank `rank` alone.
  [[nodiscard]] const Value& of_rank(int rank) const { return files_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] const Shards& shards() const { return *shards_; }

 private:
  static std::int64_t copy(const Value& piece, const archive::ZipReader& shard, const torch::Tensor& flat) {
    const auto* pair = piece.get<Value::List>();
    const auto* begin = pair != nullptr && pair->size() == 2 ? (*pair)[0].get<std::int64_t>() : nullptr;
    const auto* stored = begin != nullptr ? (*pair)[1].get<TensorRecord>() : nullptr;
    const torch::Tensor values = stored != nullptr ? tensor_of(*stored, shard) : torch::Tensor();
    if (!values.defined() || values.dim() != 1 || *begin < 0 || *begin > flat.numel() - values.numel())
      throw ConfigError(
          fmt::format("cannot read '{}' as a checkpoint: its pieces are damaged", shard.path()));
    flat.narrow(0, *begin, values.numel()).copy_(values);
    return values.numel();
  }

  std::shared_ptr<const Shards> shards_;
  std::vector<Value> files_;  // by rank
  std::map<std::string, std::vector<const Value::List*>> pieces_;
};

}  // namespace

void remove_other_shards(const std::string& folder, const std::string& file) {
  const std::string word = name_of(file).value().word;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::optional<Name> name = name_of(entry.path().filename().string());
    if (name && name->word != word) fs::remove(entry.path(), error);
  }
}

std::shared_ptr<const Shards> open_shards(const Group& group, const std::string& folder) {
  std::vector<std::vector<std::string>> sets;
  agreement::check_together(group, [&] { sets = sets_in(folder); });
  agree(group, "list of shards in '" + folder + "'", static_cast<std::int64_t>(sets.size()),
        [&] { return fmt::format("{} sets", sets.size()); });
  for (std::size_t i = 0; i < sets.size(); ++i) {
    try {
      auto shards = std::make_shared<Shards>();
      agreement::check_together(group, [&] {
        for (const std::string& path : sets[i]) shards->emplace_back(path);
        for (std::size_t shard = static_cast<std::size_t>(group.rank()); shard < shards->size();
             shard += static_cast<std::size_t>(group.size()))
          (*shards)[shard].verify();
      });
      return shards;
    } catch (const ConfigError&) {
      if (i + 1 == sets.size()) throw;
    }
  }
  return nullptr;
}

Position load_shards(TrainingState& state, std::shared_ptr<const Shards> shards,
                     const CheckpointOptions& options) {
  const Group& group = state.group();
  std::shared_ptr<const File> file;
  std::shared_ptr<const ShardedSource> source;
  agreement::check_together(group, [&] {
    source = std::make_shared<const ShardedSource>(std::move(shards));
    file = std::make_shared<const File>(state, source);
  });
  std::optional<CompressionStates> compression;
  const auto saved = static_cast<int>(source->shards().size());
  if (saved == group.size()) {
    const auto rank = static_cast<std::size_t>(group.rank());
    compression = restore_this(source->of_rank(group.rank()), source->shards()[rank], state, options);
  } else {
    say_ranks(saved, group, options);
  }
  const Contents contents = file->contents();
  state.set_model([&](const std::string& name) { return file->model_value(name); },
                  EngineState::Holder::every_rank);
  state.optimizer().set_group_options(contents.options);
  state.set_optimizer(
      {.outlines = contents.outlines,
       .fetch = [file](std::size_t parameter,
                       const std::string& name) { return file->state_value(parameter, name); },
       .holder = EngineState::Holder::every_rank,
       .compression = std::move(compression)});
  restore_parts(source.get(), EngineState::Holder::every_rank, group, options);
  return contents.position;
}

}  // namespace dear::checkpoint
