#include "dear/systems/pipeline/saved.h"

#include <exception>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/archive/pickle.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/loading.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/optim/optimizer.h"
#include "dear/train/optim/outlines.h"

namespace dear::systems::pipeline {
namespace {

using archive::TensorRecord;
using Item = archive::Value;  // in a file
using Named = Parameters::Named;

std::vector<Named> trained_of(const Parameters& parameters) {
  std::vector<Named> trained;
  for (const Named& one : parameters.all())
    if (one.is_parameter) trained.push_back(one);
  return trained;
}

// The optimiser of this rank's parameters. ConfigError on every rank where it is of others.
std::unique_ptr<Optimizer> checked(const Group& group, const Parameters& parameters,
                                   torch::optim::Optimizer& optimizer) {
  std::unique_ptr<Optimizer> wrapped = make_optimizer(optimizer);
  checkpoint::on_every_rank(group, [&] {
    (void)wrapped->choose_updates(Updates::sharded, Ownership::automatic);  // refuses classes without state
    std::vector<const c10::TensorImpl*> own;
    for (const torch::Tensor& one : parameters.own()) own.push_back(one.unsafeGetTensorImpl());
    if (!wrapped->holds({own}))
      throw ConfigError(
          "the optimiser is not one of the pipeline's parameters(), all in one group and in their order: "
          "make "
          "it of them");
  });
  return wrapped;
}

// `mine` of the first rank that holds it, whole.
torch::Tensor whole_of(const Group& group, const Parameters& parameters, const Named& one,
                       const torch::Tensor& mine) {
  const bool holds = parameters.has(one) && mine.defined();
  return broadcast(group, holds ? mine : torch::empty(one.what.sizes, one.what.type),
                   parameters.speaker(one));
}

// What is in the file, on rank 0.
struct Stored {
  std::shared_ptr<const checkpoint::Source> source;
  std::vector<TensorRecord> model;                           // by Named
  std::vector<std::map<std::string, TensorRecord>> vectors;  // by parameter
};

TensorRecord model_record(const Stored& stored, const Named& one, const std::string& name) {
  const std::string& path = stored.source->path();
  const Item* const found = stored.source->value().at("model", path).find(name);
  const auto* const record = found == nullptr ? nullptr : found->get<TensorRecord>();
  if (record == nullptr || record->sizes != one.what.sizes)
    throw ConfigError(
        fmt::format("'{}' is a checkpoint of another model: '{}' is {} there, and of shape [{}] here; make "
                    "the model that "
                    "was saved",
                    path, printable(name),
                    record == nullptr ? "not" : fmt::format("of shape [{}]", fmt::join(record->sizes, ", ")),
                    fmt::join(one.what.sizes, ", ")));
  stored.source->require(*record);
  return *record;
}

checkpoint::Contents read(Stored& stored, const Parameters& parameters, const Optimizer& optimizer) {
  const Item& file = stored.source->value();
  const std::string& path = stored.source->path();
  std::set<std::string> names;
  for (const Named& one : parameters.all())
    for (const std::string& name : one.names) {
      TensorRecord record = model_record(stored, one, name);
      names.insert(name);
      if (name == one.names.front()) stored.model.push_back(std::move(record));
    }
  for (const auto& [key, value] : file.at<Item::Dict>("model", path))
    if (const auto* name = key.get<std::string>(); name != nullptr && !names.contains(*name))
      throw ConfigError(fmt::format(
          "'{}' is a checkpoint of another model: there is a '{}' in it, which the model has not; make the "
          "model that was saved",
          path, printable(*name)));
  if (const Item* about = file.find("dear")) {
    const std::string mine = checkpoint::class_of(optimizer.name());
    const auto& theirs = about->at<std::string>("optimizer", path);
    if (theirs != mine)
      throw ConfigError(fmt::format(
          "'{}' is a checkpoint of the optimiser {}, and this one is {}: make the optimiser that was saved",
          path, printable(theirs), mine));
  }
  const std::vector<Named> trained = trained_of(parameters);
  const auto& groups = file.at("optimizer", path).at<Item::List>("param_groups", path);
  if (groups.size() != 1 || groups.front().at<Item::List>("params", path).size() != trained.size())
    throw ConfigError(fmt::format(
        "'{}' is a checkpoint of another optimiser: it has {} parameter groups, and the pipeline's "
        "has one of {} parameters; save such a one",
        path, groups.size(), trained.size()));
  checkpoint::Contents contents{.position = checkpoint::position_in(file.at("position", path), path),
                                .outlines = train::EngineState::Outlines(trained.size()),
                                .options = {checkpoint::options_in(groups.front())}};
  stored.vectors.resize(trained.size());
  const auto& numbers = groups.front().at<Item::List>("params", path);
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const auto* number = numbers[i].get<std::int64_t>();
    const Item& states = file.at("optimizer", path).at("state", path);
    const Item* found = number != nullptr ? states.find(*number) : nullptr;
    if (found == nullptr || found->get<Item::Dict>() == nullptr) continue;
    checkpoint::StoredParameter of_parameter = checkpoint::stored_parameter(
        *stored.source, *found, optimizer, trained[i].what.sizes, trained[i].names.front(), "");
    auto& outline = contents.outlines[i].emplace();
    for (const auto& [name, record] : of_parameter.vectors) outline.vectors.insert(name);
    outline.scalars = std::move(of_parameter.scalars);
    stored.vectors[i] = std::move(of_parameter.vectors);
  }
  return contents;
}

}  // namespace

void save(const Group& group, const Parameters& parameters, torch::optim::Optimizer& optimizer,
          const std::string& path, const Position& position) {
  const torch::NoGradGuard no_grad;
  const std::unique_ptr<Optimizer> wrapped = checked(group, parameters, optimizer);
  std::shared_ptr<checkpoint::FileSink> sink;
  std::exception_ptr error;  // of rank 0, which goes on with what all ranks do together
  const auto attempt = [&](const auto& act) {
    if (group.rank() != 0 || error) return;
    try {
      act();
    } catch (const std::exception&) {
      error = std::current_exception();
    }
  };
  attempt([&] { sink = std::make_shared<checkpoint::FileSink>(path); });
  Item model{Item::Dict()};
  for (const Named& one : parameters.all()) {
    const torch::Tensor whole = whole_of(group, parameters, one, one.tensor);
    attempt([&] {
      const Item record = sink->add(whole);
      for (const std::string& name : one.names) model.set(name, record);
    });
  }
  const std::vector<Named> trained = trained_of(parameters);
  train::EngineState::Outlines outlines(trained.size());
  const auto state_of = [&](const Named& one) {
    return parameters.speaker(one) == group.rank() ? wrapped->state(one.tensor) : std::nullopt;
  };
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const std::optional<OptimizerState> mine = state_of(trained[i]);
    if (!mine) continue;
    auto& outline = outlines[i].emplace();
    for (const auto& [name, vector] : mine->vectors) outline.vectors.insert(name);
    outline.scalars = mine->scalars;
  }
  for (const std::string& theirs : all_gather_text(group, optim::encoded(outlines)))
    optim::decode(theirs, outlines);
  Item states{Item::Dict()};
  Item::List numbers;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    numbers.emplace_back(static_cast<std::int64_t>(i));
    if (!outlines[i]) continue;
    const std::optional<OptimizerState> mine = state_of(trained[i]);
    std::map<std::string, TensorRecord> records;
    for (const std::string& name : outlines[i]->vectors) {
      const torch::Tensor vector =
          whole_of(group, parameters, trained[i], mine ? mine->vectors.at(name) : torch::Tensor());
      attempt([&] { records[name] = sink->add(vector); });
    }
    attempt([&] {
      states.set(numbers.back(), checkpoint::value_of_state(*wrapped, outlines[i]->scalars, records, *sink));
    });
  }
  attempt([&] {
    Item of_group = checkpoint::value_of(wrapped->group_options().front());
    of_group.set("params", std::move(numbers));
    Item of_optimizer;
    of_optimizer.set("state", std::move(states));
    of_optimizer.set("param_groups", Item::List{std::move(of_group)});
    Item about;
    about.set("version", 1);
    about.set("optimizer", checkpoint::class_of(wrapped->name()));
    about.set("ranks", group.size());
    Item file;
    file.set("model", std::move(model));
    file.set("optimizer", std::move(of_optimizer));
    file.set("position", checkpoint::value_of(position));
    file.set("optimizer_only", Item(Item::Dict()));
    file.set("dear", std::move(about));
    sink->finish(archive::pickle(file));
  });
  sink.reset();
  checkpoint::on_rank_0(group, [&] {
    if (error) std::rethrow_exception(error);
  });
}

Position load(const Group& group, const Parameters& parameters, torch::optim::Optimizer& optimizer,
              const std::string& path) {
  const torch::NoGradGuard no_grad;
  const std::unique_ptr<Optimizer> wrapped = checked(group, parameters, optimizer);
  Stored stored;
  std::string text;
  checkpoint::on_rank_0(group, [&] {
    stored.source = checkpoint::open_whole(path);
    text = archive::pickle(checkpoint::value_of(read(stored, parameters, *wrapped)));
  });
  const std::vector<Named> trained = trained_of(parameters);
  const checkpoint::Contents contents = checkpoint::contents_in(
      archive::unpickle(all_gather_text(group, text).front(), path), trained.size(), path);
  const auto from_rank_0 = [&](const Named& one, const TensorRecord* record) {
    const torch::Tensor mine = record == nullptr ? torch::empty(one.what.sizes, one.what.type)
                                                 : stored.source->whole(*record).to(one.what.type);
    return broadcast(group, mine, 0);
  };
  for (std::size_t i = 0; i < parameters.all().size(); ++i) {
    const Named& one = parameters.all()[i];
    const torch::Tensor whole = from_rank_0(one, group.rank() == 0 ? &stored.model[i] : nullptr);
    torch::Tensor tensor = one.tensor;
    if (parameters.has(one)) tensor.copy_(whole);
  }
  wrapped->set_group_options(contents.options);
  for (std::size_t i = 0; i < trained.size(); ++i) {
    std::optional<OptimizerState> state;
    if (const auto& outline = contents.outlines[i]) {
      state = {.vectors = {}, .scalars = outline->scalars};
      for (const std::string& name : outline->vectors)
        state->vectors[name] =
            from_rank_0(trained[i], group.rank() == 0 ? &stored.vectors[i].at(name) : nullptr);
    }
    if (parameters.has(trained[i])) wrapped->set_state(trained[i].tensor, state);
  }
  return contents.position;
}

}  // namespace dear::systems::pipeline
