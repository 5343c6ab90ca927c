#include "dear/train/elastic/elastic.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include "dear/base/membership/member.h"
#include "dear/base/recorder/recorder.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/checkpoint/checkpoints.h"
#include "dear/train/optim/optimizer.h"

namespace dear {
namespace train {

// The training as of a step.
struct CommittedTraining {
  std::int64_t steps = 0, used = -1;                  // no training yet
  std::vector<torch::Tensor> model;                   // parameters, then buffers
  std::vector<std::optional<OptimizerState>> states;  // by parameter
  std::string options;                                // of the optimiser
};

}  // namespace train
namespace {

using Committed = train::CommittedTraining;

constexpr std::chrono::duration<double> kMeeting = std::chrono::seconds(20);  // of ranks that are all there
constexpr std::chrono::duration<double> kNotice = std::chrono::seconds(10);   // until a launcher sees an end
constexpr int kTries = 5;  // meetings that fail although nobody has ended

std::int64_t used_in(const Position& position) {
  std::int64_t used = -1;
  const auto found = position.more.find("used");
  if (found != position.more.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), used);
  if (used < 0)
    throw ConfigError("the checkpoint is none of dear::Elastic: it does not say how many samples were used");
  return used;
}

void put(const torch::Tensor& from, torch::Tensor& into) {
  if (into.defined() && into.sizes() == from.sizes())
    into.copy_(from);
  else
    into = from.detach().clone();
}

std::string pack(const Committed& one) {
  torch::serialize::OutputArchive archive;
  archive.write("steps", one.steps);
  archive.write("used", one.used);
  archive.write("options", one.options);
  for (std::size_t i = 0; i < one.model.size(); ++i) archive.write(fmt::format("model.{}", i), one.model[i]);
  archive.write("states", static_cast<std::int64_t>(one.states.size()));
  for (std::size_t i = 0; i < one.states.size(); ++i) {
    archive.write(fmt::format("has.{}", i), one.states[i].has_value());
    if (!one.states[i]) continue;
    std::string names;
    for (const auto& [name, vector] : one.states[i]->vectors) {
      archive.write(fmt::format("{}.{}", i, name), vector);
      names += name + "\n";
    }
    archive.write(fmt::format("names.{}", i), names);
    archive.write(fmt::format("scalars.{}", i), one.states[i]->scalars);
  }
  std::ostringstream bytes;
  archive.save_to(bytes);
  return bytes.str();
}

template <typename Value>
Value value_in(torch::serialize::InputArchive& archive, const std::string& name) {
  c10::IValue value;
  archive.read(name, value);
  return value.to<Value>();
}

Committed unpack(const std::string& bytes, std::size_t tensors) {
  std::istringstream stream(bytes);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  Committed one{.steps = value_in<std::int64_t>(archive, "steps"),
                .used = value_in<std::int64_t>(archive, "used"),
                .model = std::vector<torch::Tensor>(tensors),
                .states = {},
                .options = value_in<std::string>(archive, "options")};
  for (std::size_t i = 0; i < tensors; ++i) {
    archive.read(fmt::format("model.{}", i), one.model[i]);
    one.model[i] = one.model[i].detach();
  }
  one.states.resize(static_cast<std::size_t>(value_in<std::int64_t>(archive, "states")));
  for (std::size_t i = 0; i < one.states.size(); ++i) {
    if (!value_in<bool>(archive, fmt::format("has.{}", i))) continue;
    OptimizerState& state = one.states[i].emplace();
    std::istringstream names(value_in<std::string>(archive, fmt::format("names.{}", i)));
    for (std::string name; std::getline(names, name);)
      archive.read(fmt::format("{}.{}", i, name), state.vectors[name]);
    state.scalars = value_in<std::string>(archive, fmt::format("scalars.{}", i));
  }
  return one;
}

}  // namespace

class Elastic::Impl {
 public:
  Impl(torch::nn::Module& model, torch::optim::Optimizer& optimizer, ElasticOptions options)
      : model_(model),
        optimizer_(optimizer),
        own_(make_optimizer(optimizer)),
        options_(std::move(options)),
        environment_(read_launch_environment()) {
    const auto least = std::min({options_.samples, options_.batch, std::int64_t{options_.epochs},
                                 std::int64_t{options_.commit}, std::int64_t{options_.every}});
    if (least < 1)
      throw ConfigError(fmt::format(
          "Elastic: {} samples, batches of {}, {} epochs, a commit every {} and a save every {} steps: each "
          "must be at least 1",
          options_.samples, options_.batch, options_.epochs, options_.commit, options_.every));
    if (!environment_.membership.empty()) member_.emplace(environment_.membership, environment_.member);
    begin();
  }

  void run(const std::function<void(const torch::Tensor&)>& backward) {
    while (used_ < all()) {
      if (given_up_ || (member_ && member_->roster().epoch != epoch_)) {
        begin();
        continue;  // the others may have been further
      }
      try {
        step(backward);
      } catch (const TransportError&) {
        if (!is_lost()) throw;
      } catch (const TimeoutError&) {
        if (!is_lost()) throw;
      } catch (const MismatchError&) {
        if (!is_lost()) throw;
      }
    }
  }

  std::optional<Group> group;
  std::unique_ptr<DataParallel> parallel;
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] std::int64_t used() const { return used_; }

 private:
  [[nodiscard]] std::int64_t all() const { return options_.samples * options_.epochs; }
  [[nodiscard]] std::int64_t samples_of_step() const {
    const std::int64_t left = all() - used_, batch = std::min(options_.batch, all());
    return left < 2 * batch ? left : batch;
  }

  // The part of this rank of the samples of the next step.
  torch::Tensor indices() {
    const std::int64_t count = samples_of_step(), rank = group->rank(), size = group->size();
    std::vector<torch::Tensor> found;
    for (std::int64_t first = used_ + count * rank / size, last = used_ + count * (rank + 1) / size;
         first < last;) {
      const std::int64_t place = first % options_.samples;
      const std::int64_t here = std::min(last - first, options_.samples - place);
      found.push_back(order_of(first / options_.samples).narrow(0, place, here));
      first += here;
    }
    return torch::cat(found);
  }

  torch::Tensor order_of(std::int64_t epoch) const {
    // As Python's dear.Elastic draws them.
    const auto seed = static_cast<std::uint64_t>((options_.seed << 20) + epoch);
    return torch::randperm(options_.samples, at::make_generator<at::CPUGeneratorImpl>(seed),
                           torch::TensorOptions().dtype(torch::kInt64));
  }

  void step(const std::function<void(const torch::Tensor&)>& backward) {
    const torch::Tensor mine = indices();
    parallel->samples(mine.size(0));
    backward(mine);
    parallel->step();
    const std::int64_t steps = steps_ + 1, used = used_ + samples_of_step();
    if (steps % options_.commit == 0 || used == all()) commit(steps, used);
    steps_ = steps;
    used_ = used;
    if (checkpoints_ && (steps % options_.every == 0 || used == all()))
      checkpoints_->save({.step = steps, .more = {{"used", std::to_string(used)}}});
  }

  // After an error of the group: whether the launcher has seen a process end, so that the others can go on.
  bool is_lost() {
    if (!member_) return false;
    const Deadline deadline = Deadline::after(kNotice);
    while (member_->roster().epoch == epoch_) {
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return given_up_ = true;
  }

  std::vector<torch::Tensor> tensors() {
    std::vector<torch::Tensor> tensors = model_.parameters();
    for (const torch::Tensor& one : model_.buffers()) tensors.push_back(one);
    return tensors;
  }

  std::vector<std::optional<OptimizerState>> states_of_parameters() {
    const std::vector<torch::Tensor> parameters = model_.parameters();
    std::vector<std::optional<OptimizerState>> states(parameters.size());
    if (!parallel->has_state()) {
      for (std::size_t i = 0; i < parameters.size(); ++i) states[i] = own_->state(parameters[i]);
      return states;
    }
    for (DataParallel::StateOfParameter& one : parallel->optimizer_state())
      for (std::size_t i = 0; i < parameters.size(); ++i)
        if (parameters[i].is_same(one.parameter)) states[i] = std::move(one.state);
    return states;
  }

  void commit(std::int64_t steps, std::int64_t used) {
    const torch::NoGradGuard no_gradients;
    parallel->synchronize();
    const std::vector<std::optional<OptimizerState>> states = states_of_parameters();
    // Nothing below waits for others: the copy is whole, or that of before.
    const std::vector<torch::Tensor> now = tensors();
    committed_.model.resize(now.size());
    for (std::size_t i = 0; i < now.size(); ++i) put(now[i], committed_.model[i]);
    committed_.states.resize(states.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (!states[i]) {
        committed_.states[i].reset();
        continue;
      }
      if (!committed_.states[i]) committed_.states[i].emplace();
      for (const auto& [name, vector] : states[i]->vectors) put(vector, committed_.states[i]->vectors[name]);
      committed_.states[i]->scalars = states[i]->scalars;
    }
    committed_.options = own_->options();
    committed_.steps = steps;
    committed_.used = used;
    recorder::note_progress(steps);
  }

  // Meets the ranks of now, and takes the state of those that are furthest.
  void begin() {
    for (int tries = 1;; ++tries) {
      leave();
      const LaunchEnvironment environment = join();
      try {
        group.emplace(init({.timeout = options_.timeout,
                            .meeting = std::min(options_.timeout, member_ ? kMeeting : options_.timeout),
                            .environment = environment}));
        train_on(*group);
        given_up_ = false;
        return;
      } catch (const ConfigError&) {
        throw;
      } catch (const Error&) {
        if (!member_ || tries > kTries) throw;
        if (!is_lost()) member_->ask_again(member_->roster());
      }
    }
  }

  void leave() {
    checkpoints_.reset();
    if (group) group->abort(fmt::format("rank {}: its ranks have changed", group->rank()));
    parallel.reset();
    group.reset();
    for (torch::Tensor& one : model_.parameters()) one.mutable_grad() = torch::Tensor();
  }

  // Waits until all ranks of now are ready to meet.
  LaunchEnvironment join() {
    LaunchEnvironment now = environment_;
    if (!member_) return now;
    const membership::Roster roster = member_->join(Deadline::after(options_.timeout));
    epoch_ = roster.epoch;
    begun_ = roster.begun;
    now.rank = now.local_rank = *roster.rank_of(member_->number());
    now.size = now.local_size = static_cast<int>(roster.members.size());
    now.rendezvous += fmt::format(" epoch {}", epoch_);
    now.job += fmt::format(" epoch {}", epoch_);
    recorder::begin_again(now.rank, now.size);
    return now;
  }

  void train_on(const Group& ranks) {
    if (std::min(options_.batch, all()) < ranks.size())
      throw ConfigError(
          fmt::format("Elastic: a batch of {} samples for {} ranks: each takes at least one of every batch",
                      std::min(options_.batch, all()), ranks.size()));
    take_furthest(ranks);
    if (committed_.used >= 0) restore();
    parallel = std::make_unique<DataParallel>(model_, optimizer_, ranks, options_.training);
    if (!options_.checkpoints.empty())
      checkpoints_ =
          std::make_unique<Checkpoints>(*parallel, CheckpointsOptions{.directory = options_.checkpoints});
    if (committed_.used >= 0) {
      steps_ = committed_.steps;
      used_ = committed_.used;
    } else if (const auto position = checkpoints_ ? checkpoints_->resume() : std::nullopt) {
      steps_ = position->step;
      used_ = used_in(*position);
    }
    commit(steps_, used_);
  }

  void restore() {
    const torch::NoGradGuard no_gradients;
    const std::vector<torch::Tensor> now = tensors();
    for (std::size_t i = 0; i < now.size(); ++i) now[i].copy_(committed_.model[i]);
    own_->set_options(committed_.options);
    const std::vector<torch::Tensor> parameters = model_.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) own_->set_state(parameters[i], committed_.states[i]);
  }

  // Where a rank has committed something, all have the last of it.
  void take_furthest(const Group& ranks) {
    const std::vector<std::int64_t> used = comm::all_gather_values(ranks, committed_.used);
    const auto furthest = std::max_element(used.begin(), used.end());
    if (*furthest < 0 && begun_)
      throw TransportError(fmt::format(
          "rank {}: every rank that had the state of this training has ended: it goes on from a checkpoint, "
          "if there is one, when the job is started again",
          ranks.rank()));
    if (*std::min_element(used.begin(), used.end()) == *furthest) return;
    const auto gives = furthest - used.begin();
    const std::vector<std::string> all =
        all_gather_text(ranks, ranks.rank() == gives ? pack(committed_) : "");
    if (committed_.used < *furthest)
      committed_ = unpack(all[static_cast<std::size_t>(gives)], tensors().size());
  }

  torch::nn::Module& model_;
  torch::optim::Optimizer& optimizer_;
  std::unique_ptr<Optimizer> own_;  // the optimiser, for its options and state
  ElasticOptions options_;
  LaunchEnvironment environment_;
  std::optional<membership::Member> member_;
  std::int64_t epoch_ = -1;  // of the roster
  bool begun_ = false;       // ranks trained before it
  bool given_up_ = false;
  train::CommittedTraining committed_;
  std::int64_t steps_ = 0, used_ = 0;  // the state of now
  std::unique_ptr<Checkpoints> checkpoints_;
};

Elastic::Elastic(torch::nn::Module& model, torch::optim::Optimizer& optimizer, ElasticOptions options)
    : impl_(std::make_unique<Impl>(model, optimizer, std::move(options))) {}
Elastic::~Elastic() = default;
void Elastic::run(const std::function<void(const torch::Tensor&)>& backward) { impl_->run(backward); }
DataParallel& Elastic::training() { return *impl_->parallel; }
int Elastic::rank() const { return impl_->group->rank(); }
int Elastic::ranks() const { return impl_->group->size(); }
std::int64_t Elastic::steps() const { return impl_->steps(); }
std::int64_t Elastic::used() const { return impl_->used(); }

}  // namespace dear
