#include "dear/train/checkpoint/loading.h"

#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/own_state.h"
#include "dear/train/checkpoint/parts.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/checkpoint/stored.h"
#include "dear/train/optim/outlines.h"

namespace dear::checkpoint {

using archive::TensorRecord;
using archive::Value;

std::string class_of(const std::string& name) {
  constexpr std::string_view kAnd = " and ";
  const std::size_t next = name.find(kAnd);
  const std::string first = name.substr(0, next);
  const std::string mine = first.substr(first.find_last_of(":.") + 1);
  return next == std::string::npos ? mine
                                   : mine + std::string(kAnd) + class_of(name.substr(next + kAnd.size()));
}

namespace {

double number_in(const Value& value) {
  if (const auto* real = value.get<double>()) return *real;
  if (const auto* whole = value.get<std::int64_t>()) return static_cast<double>(*whole);
  const auto* truth = value.get<bool>();
  return truth != nullptr && *truth ? 1 : 0;
}

std::string text_in(const Value& value) {
  if (const auto* text = value.get<std::string>()) return *text;
  if (const auto* whole = value.get<std::int64_t>()) return std::to_string(*whole);
  if (const auto* real = value.get<double>()) return fmt::format("{}", *real);
  return "";
}

// The file of torch.save() or save_checkpoint().
class WholeSource : public Source {
 public:
  explicit WholeSource(const archive::ZipReader& reader)
      : Source(reader.path(), archive::unpickle(reader.read_text("data.pkl"), reader.path())),
        reader_(reader) {}
  void require(const TensorRecord& record) const override {
    static_cast<void>(require_record(record, reader_));
  }
  [[nodiscard]] torch::Tensor tensor(const TensorRecord& record) const override {
    return tensor_of(record, reader_);
  }
  [[nodiscard]] torch::Tensor whole(const TensorRecord& record) const override { return tensor(record); }
  [[nodiscard]] const archive::ZipReader& reader() const { return reader_; }

 private:
  archive::ZipReader reader_;
};

}  // namespace

torch::Tensor read_amid(const Group& group, const std::function<torch::Tensor()>& read) {
  try {
    return read();
  } catch (const ConfigError& error) {
    const std::string why =
        fmt::format("rank {}: {}; the training is half put back: start it again", group.rank(), error.what());
    group.abort(why);
    throw TransportError(why);
  }
}

Position position_in(const Value& value, const std::string& path) {
  Position position{.step = value.at<std::int64_t>("step", path), .more = {}};
  for (const auto& [key, item] : *value.get<Value::Dict>()) {
    const auto* name = key.get<std::string>();
    if (name != nullptr && *name != "step") position.more[*name] = text_in(item);
  }
  return position;
}

Value value_of(const Contents& contents) {
  Value::List options;
  for (const Optimizer::Options& group : contents.options) {
    Value one{Value::Dict()};
    for (const auto& [name, number] : group) one.set(name, number);
    options.push_back(std::move(one));
  }
  Value value;
  value.set("position", value_of(contents.position));
  value.set("outlines", optim::encoded(contents.outlines));
  value.set("options", std::move(options));
  return value;
}

Contents contents_in(const Value& value, std::size_t parameters, const std::string& path) {
  Contents contents{.position = position_in(value.at("position", path), path),
                    .outlines = train::EngineState::Outlines(parameters),
                    .options = {}};
  optim::decode(value.at<std::string>("outlines", path), contents.outlines);
  for (const Value& one : value.at<Value::List>("options", path)) {
    Optimizer::Options& group = contents.options.emplace_back();
    for (const auto& [key, number] : *one.get<Value::Dict>())
      group[*key.get<std::string>()] = *number.get<double>();
  }
  return contents;
}

std::shared_ptr<const Source> open_whole(const std::string& path) {
  const archive::ZipReader reader(path);
  reader.verify();
  return std::make_shared<const WholeSource>(reader);
}

Optimizer::Options options_in(const Value& group) {
  Optimizer::Options options;
  for (const auto& [key, value] : *group.get<Value::Dict>()) {
    const auto* name = key.get<std::string>();
    if (name == nullptr || *name == "params") continue;
    if (const auto* betas = value.get<Value::Tuple>(); betas != nullptr && betas->items.size() == 2) {
      options["beta1"] = number_in(betas->items[0]);
      options["beta2"] = number_in(betas->items[1]);
    } else if (value.get<std::monostate>() == nullptr && value.get<TensorRecord>() == nullptr) {
      options[*name] = number_in(value);
    }
  }
  return options;
}

StoredParameter stored_parameter(const Source& source, const Value& of_parameter, const Optimizer& optimizer,
                                 const std::vector<std::int64_t>& sizes, const std::string& name,
                                 const std::string& passed_over) {
  std::map<std::string, double> scalars;
  std::string opaque;
  StoredParameter found;
  for (const auto& [key, value] : *of_parameter.get<Value::Dict>()) {
    const auto* vector = key.get<std::string>();
    if (vector == nullptr) continue;
    const auto* stored = value.get<TensorRecord>();
    if (stored == nullptr || (stored->sizes.empty() && *vector == "step")) {
      scalars[*vector] = stored != nullptr ? source.whole(*stored).item<double>() : number_in(value);
      continue;
    }
    if (*vector == kOpaque) {
      const torch::Tensor bytes = source.whole(*stored).contiguous();
      opaque.assign(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
      continue;
    }
    if (stored->sizes != sizes)
      throw ConfigError(fmt::format(
          "'{}' is a checkpoint of another model: '{}' of parameter '{}' is of shape [{}] there, "
          "and the parameter of [{}] here",
          source.path(), printable(*vector), name, fmt::join(stored->sizes, ", "), fmt::join(sizes, ", ")));
    if (*vector == passed_over) continue;
    source.require(*stored);  // refused now, if at all
    found.vectors[*vector] = *stored;
  }
  found.scalars = opaque.empty() ? optimizer.write_scalars(scalars) : opaque;
  return found;
}

// ---- what a file must have in common with the training

File::File(const train::TrainingState& state, std::shared_ptr<const Source> source)
    : source_(std::move(source)) {
  require_same_model(state);
  require_same_optimizer(state);
  read_state(state);
  contents_.position = position_in(source_->value().at("position", source_->path()), source_->path());
}

const TensorRecord& File::model_record(const std::string& name) const {
  const Value* found = source_->value().at("model", source_->path()).find(name);
  if (found == nullptr)
    found = &source_->value().at("optimizer_only", source_->path()).at(name, source_->path());
  return *found->get<TensorRecord>();
}

torch::Tensor File::model_value(const std::string& name) const { return source_->tensor(model_record(name)); }

void File::require_same_model(const train::TrainingState& state) const {
  const Value& model = source_->value().at("model", source_->path());
  const std::string& path = source_->path();
  static_cast<void>(source_->value().at<Value::Dict>("model", path));
  const auto refuse = [&](const std::string& name, const std::string& theirs, const std::string& ours) {
    throw ConfigError(fmt::format(
        "'{}' is a checkpoint of another model: '{}' is {} there, and {} here; make the model that was saved",
        path, printable(name), printable(theirs), ours));
  };
  std::set<std::string> names;
  for (const auto* named : {&state.model().parameters, &state.model().buffers}) {
    for (const auto& [name, tensor] : *named) {
      names.insert(name);
      const Value* found = model.find(name);
      const auto* stored = found != nullptr ? found->get<TensorRecord>() : nullptr;
      const std::string shape = fmt::format("of shape [{}]", fmt::join(tensor.sizes(), ", "));
      if (stored == nullptr) refuse(name, "not", shape);
      if (stored->sizes != tensor.sizes().vec())
        refuse(name, fmt::format("of shape [{}]", fmt::join(stored->sizes, ", ")), shape);
    }
  }
  for (const auto& [key, value] : *model.get<Value::Dict>()) {
    const auto* name = key.get<std::string>();
    const auto* stored = value.get<TensorRecord>();
    if (name != nullptr && stored != nullptr && !names.contains(*name))
      refuse(*name, fmt::format("of shape [{}]", fmt::join(stored->sizes, ", ")), "not");
  }
}

void File::require_same_optimizer(const train::TrainingState& state) const {
  const std::string mine = class_of(state.optimizer().name());
  const Value* about = source_->value().find("dear");
  if (about == nullptr) return;  // torch.save() wrote it
  const auto& theirs = about->at<std::string>("optimizer", source_->path());
  if (theirs != mine)
    throw ConfigError(fmt::format(
        "'{}' is a checkpoint of the optimiser {}, and this one is {}: make the optimiser that was saved",
        source_->path(), printable(theirs), mine));
}

void File::read_parameter(std::size_t parameter, const Value& of_parameter,
                          const train::TrainingState& state) {
  const train::TrainedParameter& trained = state.trained()[parameter];
  StoredParameter stored =
      stored_parameter(*source_, of_parameter, state.optimizer(), trained.tensor.sizes().vec(), trained.name,
                       state.fp32_masters() ? "" : optim::kMaster);
  auto& outline = contents_.outlines[parameter].emplace();
  for (const auto& [name, record] : stored.vectors) outline.vectors.insert(name);
  vectors_[parameter] = std::move(stored.vectors);
  outline.scalars = std::move(stored.scalars);
}

void File::read_state(const train::TrainingState& state) {
  contents_.outlines.resize(state.trained().size());
  vectors_.resize(state.trained().size());
  for (const auto* named : {&state.model().parameters, &state.model().buffers})
    for (const auto& one : *named) source_->require(model_record(one.name));
  const Value& optimizer = source_->value().at("optimizer", source_->path());
  const Value& states = optimizer.at("state", source_->path());
  const auto& groups = optimizer.at<Value::List>("param_groups", source_->path());
  const auto ours = state.optimizer().parameter_groups();
  std::size_t same = 0;
  while (same < groups.size() && same < ours.size() &&
         groups[same].at<Value::List>("params", source_->path()).size() == ours[same].size())
    ++same;
  if (same < groups.size() || same < ours.size())
    throw ConfigError(
        fmt::format("'{}' is a checkpoint of another optimiser: parameter group {} of {} there and {} here "
                    "has not as many parameters; make the parameter groups that were saved",
                    source_->path(), same, groups.size(), ours.size()));
  for (std::size_t group = 0; group < ours.size(); ++group) {
    const auto& numbers = groups[group].at<Value::List>("params", source_->path());
    for (std::size_t i = 0; i < ours[group].size(); ++i) {
      const auto* number = numbers[i].get<std::int64_t>();
      const Value* found = number != nullptr ? states.find(*number) : nullptr;
      if (found == nullptr || found->get<Value::Dict>() == nullptr) continue;
      if (const auto parameter = state.index_of(ours[group][i])) read_parameter(*parameter, *found, state);
    }
    contents_.options.push_back(options_in(groups[group]));
  }
}

Position load_whole(train::TrainingState& state, const std::string& path, const CheckpointOptions& options) {
  const Group& group = state.group();
  std::shared_ptr<const File> file;
  std::string text;
  std::shared_ptr<const WholeSource> source;
  on_rank_0(group, [&] {
    const archive::ZipReader reader(path);
    reader.verify();
    source = std::make_shared<const WholeSource>(reader);
    file = std::make_shared<const File>(state, source);
    text = archive::pickle(value_of(file->contents()));
  });
  const Contents contents = contents_in(archive::unpickle(all_gather_text(group, text).front(), path),
                                        state.trained().size(), path);
  state.set_model(
      [&](const std::string& name) { return read_amid(group, [&] { return file->model_value(name); }); },
      train::EngineState::Holder::rank_0);
  state.optimizer().set_group_options(contents.options);
  // Before the rest: gcc 12 destroys the members of an aggregate twice where the initialiser of a later one
  // throws.
  std::optional<CompressionStates> compression =
      restore_own(source ? source->value().find("ranks") : nullptr, source ? &source->reader() : nullptr,
                  path, state, options);
  state.set_optimizer({.outlines = contents.outlines,
                       .values = {.fetch =
                                      [file, group](std::size_t parameter, const std::string& name) {
                                        return read_amid(group,
                                                         [&] { return file->state_value(parameter, name); });
                                      },
                                  .holder = train::EngineState::Holder::rank_0},
                       .compression = std::move(compression)});
  restore_parts(source.get(), train::EngineState::Holder::rank_0, group, options);
  return contents.position;
}

}  // namespace dear::checkpoint
