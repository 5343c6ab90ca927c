#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "dear/base/os/testing/ranks.h"
#include "dear/comm/channels/testing/thread_channels.h"
#include "dear/comm/group/group.h"
#include "dear/comm/group/single.h"
#include "dear/comm/message_programs/program_backend.h"
#include "dear/systems/pipeline/pipeline.h"

// Small models that are drawn, and what one process computes of them.
namespace dear::systems::pipeline::testing {

using Tensors = PipelineModel::Tensors;
using Value = PipelineModel::Value;
using Gradients = std::map<std::string, torch::Tensor>;

inline constexpr std::int64_t kWidth = 6;

struct Net {
  std::shared_ptr<torch::nn::Module> root = std::make_shared<torch::nn::Module>("Net");
  PipelineModel model{root};

  [[nodiscard]] Gradients gradients() const {
    Gradients found;
    for (const auto& item : root->named_parameters())
      if (item.value().numel() > 0 && item.value().grad().defined())
        found[item.key()] = item.value().grad().clone();
    return found;
  }
};

inline void draw_parameters(torch::nn::Module& root, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (auto& item : root.named_parameters()) item.value().normal_(0, 0.5, generator);
}

// Layers, sums, choices by a mask, functions with the weight of another layer and operators of several
// tensors read what was made before, however far back; the batch has numbers and ids.
inline Net drawn_net(std::uint64_t seed, at::ScalarType type, std::uint64_t seed_of_parameters) {
  std::mt19937_64 random(seed);
  Net net;
  PipelineModel& model = net.model;
  const auto layer = [&](const std::string& name) {
    return net.root->register_module(name, torch::nn::Linear(kWidth, kWidth));
  };
  const auto in = layer("in");
  std::vector<Value> floats{model.add("in", in, {PipelineModel::batch(0)})}, unread = floats;
  const std::vector<Value> of_ids = model.add_several(
      "mask", 2, [](const Tensors& read) { return Tensors{read[0].gt(2).unsqueeze(1), read[0] + 1}; },
      {PipelineModel::batch(1)});
  unread.insert(unread.end(), of_ids.begin(), of_ids.end());
  const auto drawn = [&] {
    const Value value = floats[floats.size() - 1 - random() % std::min<std::size_t>(floats.size(), 4)];
    std::erase(unread, value);
    return value;
  };
  const int count = 5 + static_cast<int>(random() % 4);
  for (int number = 0; number < count; ++number) {
    const std::string name = fmt::format("op{}", number);
    std::vector<Value> made;
    switch (random() % 5) {
      case 0:
        made = {model.add(name, layer(name), {drawn()})};
        break;
      case 1: {
        const Value one = drawn();
        made = {model.add_function(name,
                                   [](const Tensors& read) { return torch::tanh(read[0] + 2 * read[1]); },
                                   {one, floats.front()})};
        std::erase(unread, floats.front());
        break;
      }
      case 2: {
        std::erase(unread, of_ids[0]);
        made = {model.add_function(
            name, [](const Tensors& read) { return torch::where(read[0], read[1], read[2] * 0.5); },
            {of_ids[0], drawn(), drawn()})};
        break;
      }
      case 3:
        made = {model.add_function(
            name, [in](const Tensors& read) { return torch::linear(read[0], in->weight.t()); }, {drawn()})};
        break;
      default:
        made = model.add_several(
            name, 2, [](const Tensors& read) { return Tensors{read[0].sin(), read[0].cos()}; }, {drawn()});
    }
    floats.insert(floats.end(), made.begin(), made.end());
    unread.insert(unread.end(), made.begin(), made.end());
  }
  const auto out = layer("out");
  model.add_function("out",
                     [out, type](const Tensors& read) {
                       torch::Tensor sum = torch::zeros({read[0].size(0), kWidth}, type);
                       for (const torch::Tensor& one : read)
                         sum = sum + (one.dim() == 1 ? one.unsqueeze(1) : one).to(type);
                       return out->forward(sum);
                     },
                     unread, {out->weight, out->bias});
  net.root->to(type);
  draw_parameters(*net.root, seed_of_parameters);
  return net;
}

struct Batch {
  Tensors inputs;
  torch::Tensor targets;
};
inline Batch batch_of(std::int64_t samples, at::ScalarType type, std::int64_t step = 0) {
  const auto ramp = torch::arange(samples * kWidth, torch::kFloat64).view({samples, kWidth});
  return {.inputs = {torch::sin(ramp * 0.37 + static_cast<double>(step)).to(type),
                     torch::arange(samples, torch::kInt64).remainder(5)},
          .targets = torch::cos(ramp * 0.21 + static_cast<double>(step)).to(type)};
}

inline torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

// One process: the operators one after another, for each part of the batch.
inline double accumulate(const Net& net, const Batch& batch, int micro_batches) {
  double sum = 0;
  for (int part = 0; part < micro_batches; ++part) {
    std::map<Value, torch::Tensor> values;
    for (int index = 0; index < static_cast<int>(batch.inputs.size()); ++index)
      values[PipelineModel::batch(index)] =
          batch.inputs[static_cast<std::size_t>(index)].chunk(micro_batches)[static_cast<std::size_t>(part)];
    torch::Tensor output;
    int maker = 0;
    for (const PipelineModel::Operator& one : net.model.operators()) {
      Tensors read;
      for (const Value& input : one.inputs) read.push_back(values.at(input));
      const Tensors made = one.compute(read);
      for (int index = 0; index < one.outputs; ++index)
        values[{.maker = maker, .index = index}] = output = made[static_cast<std::size_t>(index)];
      ++maker;
    }
    const torch::Tensor loss =
        loss_of(output, batch.targets.chunk(micro_batches)[static_cast<std::size_t>(part)]) / micro_batches;
    sum += loss.item<double>();
    loss.backward();
  }
  return sum;
}

inline std::vector<Group> groups_of(int ranks,
                                    std::chrono::duration<double> timeout = std::chrono::seconds(60)) {
  std::vector<Group> groups;
  if (ranks == 1) groups.emplace_back(comm::make_single(), Group::Options{.timeout = timeout});
  if (ranks > 1)
    for (auto& channels : channels::testing::make_thread_channels(ranks))
      groups.emplace_back(message_programs::make_program_backend(std::move(channels)),
                          Group::Options{.timeout = timeout});
  return groups;
}

// Runs `program` once a rank, on threads; the reports of report_of() by rank.
template <typename Program>
std::vector<std::string> run_on(std::vector<Group> groups, const Program& program) {
  const int ranks = static_cast<int>(groups.size());
  return os::testing::run_on_threads(ranks, [&](int rank) {
    const Group group = std::move(groups[static_cast<std::size_t>(rank)]);
    program(rank, group);
  });
}

}  // namespace dear::systems::pipeline::testing
