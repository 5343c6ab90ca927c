// The state of a replica, for checkpoints.

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/control_plane.h"
#include "dear/comm/group/exchange.h"
#include "dear/systems/rounds/replica.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/model/tensor_broadcast.h"

namespace dear {
namespace {

using State = std::map<std::string, torch::Tensor>;

torch::Tensor to_tensor(const std::vector<std::int64_t>& numbers) {
  return torch::tensor(numbers, torch::kInt64);
}
std::vector<std::int64_t> to_numbers(const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.to(torch::kCPU, torch::kInt64).contiguous();
  return {plain.const_data_ptr<std::int64_t>(), plain.const_data_ptr<std::int64_t>() + plain.numel()};
}
torch::Tensor to_tensor(const std::string& bytes) {
  torch::Tensor tensor = torch::empty({std::ssize(bytes)}, torch::kUInt8);
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}
std::string to_bytes(const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.to(torch::kCPU).contiguous();
  return {static_cast<const char*>(plain.const_data_ptr()), plain.nbytes()};
}

const torch::Tensor& entry(const State& state, const std::string& name) {
  const auto found = state.find(name);
  if (found == state.end())
    throw ConfigError(fmt::format(
        "the state of the rounds has no '{}': load one that was saved of this model and these rounds", name));
  return found->second;
}

using Vectors = std::vector<std::pair<std::string, std::vector<float> buckets::CompressionState::*>>;
const Vectors& vectors() {
  static const Vectors kAll{{"residual", &buckets::CompressionState::residual},
                            {"codec", &buckets::CompressionState::codec}};
  return kAll;
}

}  // namespace

std::vector<std::int64_t> Rounds::Replica::settings() const {
  return {options_.every, options_.fragments, options_.delay, all_.size() / options_.inside, options_.inside};
}

bool Rounds::Replica::keeps_residuals() const {
  return options_.compression &&
         (options_.compression->feedback || options_.compression->scheme == Scheme::low_rank);
}

State Rounds::Replica::state() {
  require_own("state() was called");
  exchange_->wait();
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  State state{{"settings", to_tensor(settings())},
              {"position", to_tensor(std::vector<std::int64_t>{position_, steps_, exchanges_})},
              {"turns", to_tensor(steps_at_turn_)}};
  for (const Trained& one : trained_) state["global/" + one.name] = one.global.detach().clone();
  for (std::size_t i = 0; i < outers_.size(); ++i)
    state["outer/" + std::to_string(i)] = to_tensor(outers_[i]->state());
  if (under_way_) {
    state["under way"] = to_tensor(
        std::vector<std::int64_t>{static_cast<std::int64_t>(under_way_->fragment), under_way_->due});
    state["weight"] = torch::tensor(exchange_->weight(), torch::kFloat64);
    for (const std::size_t tensor : fragments_[under_way_->fragment].tensors())
      state["mean/" + trained_[tensor].name] = exchange_->mean(tensor).clone();
  }
  add_memory(state);
  return state;
}

// Each rank of a site has the memory of the tensors that it sends.
void Rounds::Replica::add_memory(State& state) {
  if (!options_.compression) return;
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < fragments_.size(); ++i) counts.push_back(exchange_->encoded(i));
  state["encoded"] = to_tensor(counts);
  if (!keeps_residuals()) return;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const std::optional<buckets::CompressionState> memory = exchange_->memory(i);
    for (const auto& [name, member] : vectors()) {
      std::int64_t size = memory ? std::ssize((*memory).*member) : 0;
      if (gathers_)
        for (const std::int64_t one : comm::all_gather_values(*gathers_, size)) size = std::max(size, one);
      if (size == 0) continue;
      torch::Tensor values = torch::zeros({size}, torch::kFloat32);
      if (memory && !((*memory).*member).empty())
        std::memcpy(values.mutable_data_ptr(), ((*memory).*member).data(), values.nbytes());
      if (gathers_) model::TensorBroadcast(*gathers_, {values}).merge();
      state[name + "/" + trained_[i].name] = values;
    }
  }
}

void Rounds::Replica::require_state(const State& state) const {
  const std::vector<std::int64_t> theirs = to_numbers(entry(state, "settings"));
  if (theirs != settings())
    throw ConfigError(
        fmt::format("the state of the rounds is of (steps a round, fragments, delay, replicas, ranks of "
                    "each) = ({}), and "
                    "these are ({}): train on with those",
                    fmt::join(theirs, ", "), fmt::join(settings(), ", ")));
  for (const Trained& one : trained_)
    if (entry(state, "global/" + one.name).sizes() != one.own.sizes())
      throw ConfigError(
          fmt::format("the state of the rounds is of another model: '{}' has another shape there", one.name));
  for (std::size_t i = 0; i < outers_.size(); ++i) entry(state, "outer/" + std::to_string(i));
  if (state.contains("under way"))
    for (const std::size_t tensor :
         fragments_.at(static_cast<std::size_t>(to_numbers(entry(state, "under way"))[0])).tensors())
      entry(state, "mean/" + trained_[tensor].name);
}

void Rounds::Replica::load_state(const State& state) {
  require_own("load_state() was called");
  exchange_->wait();
  agreement::check_together(all_, [&] { require_state(state); });
  const std::vector<std::int64_t> position = to_numbers(entry(state, "position"));
  Model global;
  for (const Trained& one : trained_)
    global.parameters.push_back({one.name, entry(state, "global/" + one.name)});
  agree(all_, "state of the rounds",
        fmt::format("after step {}, global parameters {}", position.at(0), parameter_digest(global)));
  position_ = position.at(0), steps_ = position.at(1), exchanges_ = position.at(2);
  steps_at_turn_ = to_numbers(entry(state, "turns"));
  const autograd::Unobserved unobserved;
  const torch::NoGradGuard no_grad;
  for (Trained& one : trained_) one.global.copy_(entry(state, "global/" + one.name));
  for (std::size_t i = 0; i < outers_.size(); ++i)
    outers_[i]->set_state(to_bytes(entry(state, "outer/" + std::to_string(i))));
  load_memory(state);
  under_way_.reset();
  if (!state.contains("under way")) return;
  const std::vector<std::int64_t> numbers = to_numbers(entry(state, "under way"));
  under_way_ = UnderWay{static_cast<std::size_t>(numbers.at(0)), numbers.at(1)};
  exchange_->resume(under_way_->fragment, entry(state, "weight").item<double>());
  for (const std::size_t tensor : fragments_[under_way_->fragment].tensors())
    exchange_->mean(tensor).copy_(entry(state, "mean/" + trained_[tensor].name));
}

// A compression that the state does not know begins anew.
void Rounds::Replica::load_memory(const State& state) {
  if (!options_.compression || !state.contains("encoded")) return;
  const std::vector<std::int64_t> counts = to_numbers(entry(state, "encoded"));
  for (std::size_t i = 0; i < fragments_.size(); ++i) exchange_->set_encoded(i, counts.at(i));
  if (!keeps_residuals()) return;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    if (!exchange_->memory(i)) continue;
    buckets::CompressionState memory;
    for (const auto& [name, member] : vectors()) {
      const auto found = state.find(name + "/" + trained_[i].name);
      if (found == state.end()) continue;
      const torch::Tensor values = found->second.to(torch::kCPU, torch::kFloat32).contiguous();
      (memory.*member)
          .assign(values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
    }
    exchange_->set_memory(i, memory);
  }
}

// An exchange belongs to the step whose end began it.
std::vector<Span> Rounds::Replica::spans() const {
  std::vector<Span> spans;
  for (const Exchange::Run& run : exchange_->runs()) {
    const auto add = [&](const char* lane, const std::string& name, Activity activity, double begin,
                         double end) {
      spans.push_back({.rank = all_.rank(),
                       .lane = lane,
                       .name = name,
                       .activity = activity,
                       .iteration = run.step - 1,
                       .begin_seconds = begin,
                       .end_seconds = end});
    };
    add("network between replicas", fmt::format("exchange fragment {}", run.fragment),
        Activity::communication, run.begin_seconds, run.end_seconds);
    add("compute", fmt::format("wait for fragment {}", run.fragment), Activity::wait, run.asked_seconds,
        run.done_seconds);
  }
  return spans;
}

}  // namespace dear
