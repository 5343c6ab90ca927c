#include "dear/methods/moe/mixtures.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/moe/operator_times.h"
#include "dear/methods/moe/routing.h"
#include "dear/platform/cost/cluster_times.h"

namespace dear::methods::moe {
namespace {

using zoo::Kernel;
using Kernels = std::vector<Kernel>;

double real(std::int64_t count) { return static_cast<double>(count); }

// All kernels are those of a whole batch; a part of it has its share of operations and activations.
Kernels moving(std::int64_t elements) { return {{.kind = zoo::Kind::memory, .moved = real(elements)}}; }
Kernels product(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t matrices = 1) {
  return {{.kind = zoo::Kind::matmul,
           .flops = 2 * real(rows) * real(in) * real(out),
           .moved = real(rows * (in + out)),
           .weights = real(matrices * in * out)}};
}

constexpr std::int64_t kMostParts = 64;  // whose all-to-alls have times of their own

class Builder {
 public:
  Builder(const MixtureModel& model, const zoo::Device& device, const Cluster& cluster,
          const MixtureOptions& options)
      : model_(model),
        device_(device),
        options_(options),
        dense_(cluster),
        batch_(batch()),
        tokens_(batch_ * model.length),
        experts_(model.experts > 0 ? model.experts : model.experts_of_rank * cluster.ranks()),
        own_experts_(experts_of_rank(experts_, cluster.ranks())),
        capacity_(capacity_of(options.capacity_factor * model.choices, tokens_, experts_)),
        rows_(own_experts_ * capacity_ * cluster.ranks()),
        exchanged_(experts_ * capacity_ * model.width * size_of(options.dtype)),
        times_(device, options.dtype, AllToAllTimes::on(cluster, exchanged_ / kMostParts, exchanged_),
               exchanged_, options.part_inefficiency) {}

  MixtureJob build() {
    ValueId x = tokens("ids", model_.width);
    block_ = "embedding";
    begin_block(model_.vocabulary * model_.width);
    x = along("embedding", {x}, model_.width, moving(2 * tokens_ * model_.width), {0, 1});
    backward_.back().weight = moving(2 * tokens_ * model_.width);
    for (std::int64_t layer = 0; layer < model_.layers; ++layer) x = block(layer, x);
    block_ = "head";
    begin_block(0);  // its parameters are with those of the embedding, whose weight it reads
    x = norm("norm", x);
    x = linear("logits", x, model_.width, model_.vocabulary);
    Instruction loss{.name = "head loss", .reads = {x}, .uncut_reason = "its mean is over the batch"};
    add(std::move(loss), moving(2 * tokens_ * model_.vocabulary));
    last_ = size() - 1;
    // What waits for the loss waits for all of the forward.
    for (; !backward_.empty(); backward_.pop_back()) add_backward(backward_.back());
    end_blocks();

    double expert_seconds = 0;
    for (const Instruction& instruction : instructions_)
      if (instruction.pass == Pass::forward && instruction.role == Role::experts)
        expert_seconds += instruction.seconds;
    return {.graph = {std::move(values_), std::move(instructions_)},
            .part_seconds = times_.part_seconds(),
            .capacity = capacity_,
            .all_to_all_seconds = times_.all_to_all_seconds(),
            .expert_seconds = expert_seconds / real(std::max<std::int64_t>(model_.mixtures(), 1))};
  }

 private:
  // What the backward of an operator has, and in which block.
  struct Backward {
    std::string name;
    std::size_t block = 0;
    Kernels input, weight{};
    Role role = Role::plain;
    Kind kind = Kind::compute;
    bool of_buffer = false;
    bool aside = false;  // of shared experts: nothing of the mixture waits for it
  };
  struct Block {
    std::string name;
    std::int64_t parameters = 0;
    InstructionId first = 0;               // its first instruction
    std::vector<InstructionId> weights{};  // gradients
    std::int64_t expert_parameters = 0;    // of this rank's experts
    std::vector<InstructionId> expert_weights{};
  };

  [[nodiscard]] std::int64_t batch() const {
    if (options_.batch != 0) {
      if (options_.batch < 0 || options_.batch > 1 << 20)
        throw ConfigError(
            fmt::format("a batch of {} cannot be: give at least 1 and at most 2^20", options_.batch));
      return options_.batch;
    }
    return batch_of(model_, device_.name);
  }
  [[nodiscard]] InstructionId size() const { return static_cast<InstructionId>(instructions_.size()); }
  ValueId value(const std::string& name, std::vector<std::int64_t> shape) {
    values_.push_back({fmt::format("{} {}", block_, name), std::move(shape)});
    return static_cast<ValueId>(values_.size() - 1);
  }
  ValueId tokens(const std::string& name, std::int64_t width) {
    return value(name, {batch_, model_.length, width});
  }
  ValueId buffer(const std::string& name, std::int64_t width) {
    return value(name, {experts_, capacity_, width});
  }

  void add(Instruction instruction, Kernels kernels) {
    instruction.seconds = times_.add(instruction.name, std::move(kernels));
    instructions_.push_back(std::move(instruction));
  }
  std::string named(const std::string& name) const { return fmt::format("{} {}", block_, name); }

  void begin_block(std::int64_t parameters) {
    blocks_.push_back({.name = block_, .parameters = parameters, .first = size()});
  }
  void remember(const std::string& name, Kernels input, Role role = Role::plain) {
    backward_.push_back(
        {.name = named(name), .block = blocks_.size() - 1, .input = std::move(input), .role = role});
    backward_.back().aside = aside_;
  }

  // An operator on tokens that can be cut along `axes`; backward moves as much again and a half.
  ValueId along(const std::string& name, std::vector<ValueId> reads, std::int64_t width,
                const Kernels& kernels, const std::vector<Axis>& axes) {
    const ValueId y = tokens(name, width);
    const auto count = static_cast<int>(reads.size());
    add({.name = named(name), .reads = std::move(reads), .writes = {y}, .cuts = cuts_along(axes, count, 1)},
        kernels);
    Kernels input = kernels;
    for (Kernel& kernel : input) {
      kernel.flops *= 2;
      kernel.moved *= 1.5;
    }
    remember(name, std::move(input));
    return y;
  }
  ValueId norm(const std::string& name, ValueId x) {
    (block_ == "head" ? blocks_.front() : blocks_.back()).parameters += 2 * model_.width;
    return along(name, {x}, model_.width, moving(2 * tokens_ * model_.width), {0, 1});
  }
  ValueId linear(const std::string& name, ValueId x, std::int64_t in, std::int64_t out) {
    const Kernels kernels = product(tokens_, in, out);
    const ValueId y = tokens(name, out), weight = value(name + " weight", {in, out});
    if (block_ != "head") blocks_.back().parameters += in * out + out;
    add({.name = named(name), .reads = {x, weight}, .writes = {y}, .cuts = cuts_of_matmul(3)}, kernels);
    remember(name, kernels);
    backward_.back().weight = kernels;
    return y;
  }
  ValueId network(const std::string& name, ValueId x, std::int64_t inner) {
    ValueId y = linear(name + " up", x, model_.width, (model_.gated ? 2 : 1) * inner);
    y = along(name + " activation", {y}, inner, moving((model_.gated ? 3 : 2) * tokens_ * inner), {0, 1});
    return linear(name + " down", y, inner, model_.width);
  }

  ValueId block(std::int64_t layer, ValueId x) {
    block_ = fmt::format("block {}", layer);
    begin_block(0);
    const std::int64_t scores = batch_ * model_.heads * model_.length * model_.length;
    ValueId y = norm("norm 1", x);
    y = linear("qkv", y, model_.width, 3 * model_.width);
    Kernels attention{
        {.kind = zoo::Kind::matmul,
         .flops = 4 * real(scores) * real(model_.width / model_.heads),
         .moved = real((model_.fused_attention ? 0 : 2 * scores) + 4 * tokens_ * model_.width)}};
    if (!model_.fused_attention) attention.push_back(moving(2 * scores).front());
    y = along("attention", {y}, model_.width, attention, {0});
    y = linear("projection", y, model_.width, model_.width);
    x = along("add 1", {x, y}, model_.width, moving(3 * tokens_ * model_.width), {0, 1});
    y = norm("norm 2", x);
    y = model_.has_mixture(layer) ? mixture(y) : network("network", y, model_.inner_width);
    return along("add 2", {x, y}, model_.width, moving(3 * tokens_ * model_.width), {0, 1});
  }

  ValueId mixture(ValueId x) {
    const std::int64_t moved = 2 * tokens_ * model_.choices * model_.width;
    const ValueId routing = value("routing", {tokens_}),
                  weight = value("gate weight", {model_.width, experts_});
    blocks_.back().parameters += model_.width * experts_;
    Kernels gate = product(tokens_, model_.width, experts_);
    gate.push_back(moving(3 * tokens_ * experts_).front());
    add({.name = named("gate"),
         .role = Role::gate,
         .reads = {x, weight},
         .writes = {routing},
         .cuts = options_.gate == Gate::in_order ? cuts_of_gate() : std::vector<Cut>{},
         .uncut_reason = "it ranks the tokens of the whole batch"},
        gate);
    remember("gate", gate);
    backward_.back().weight = gate;
    const ValueId sent = buffer("sent", model_.width);
    add({.name = named("dispatch"),
         .role = Role::dispatch,
         .reads = {x, routing},
         .writes = {sent},
         .cuts = cuts_of_dispatch()},
        moving(moved));
    remember("dispatch", moving(moved), Role::combine);
    ValueId y = exchange("all-to-all 1", sent);
    const std::int64_t inner = model_.expert_width;
    blocks_.back().expert_parameters = own_experts_ * (model_.gated ? 3 : 2) * inner * model_.width;
    y = experts("experts up", y, (model_.gated ? 2 : 1) * inner,
                product(rows_, model_.width, (model_.gated ? 2 : 1) * inner, own_experts_), true);
    y = experts("experts activation", y, inner, moving((model_.gated ? 3 : 2) * rows_ * inner), false);
    y = experts("experts down", y, model_.width, product(rows_, inner, model_.width, own_experts_), true);
    y = exchange("all-to-all 2", y);
    const ValueId combined = tokens("combined", model_.width);
    add({.name = named("combine"),
         .role = Role::combine,
         .reads = {y, routing},
         .writes = {combined},
         .cuts = cuts_of_combine()},
        moving(moved));
    remember("combine", moving(moved), Role::dispatch);
    if (model_.shared_width == 0) return combined;
    aside_ = true;
    const ValueId shared = network("shared", x, model_.shared_width);
    aside_ = false;
    return along("add shared", {combined, shared}, model_.width, moving(3 * tokens_ * model_.width), {0, 1});
  }

  ValueId exchange(const std::string& name, ValueId x) {
    const ValueId y = buffer(name, model_.width);
    instructions_.push_back({.name = named(name),
                             .kind = Kind::all_to_all,
                             .seconds = times_.all_to_all_seconds(),
                             .reads = {x},
                             .writes = {y},
                             .cuts = cuts_of_buffer()});
    remember(name, {});
    backward_.back().kind = Kind::all_to_all;
    backward_.back().of_buffer = true;
    return y;
  }
  ValueId experts(const std::string& name, ValueId x, std::int64_t width, const Kernels& kernels,
                  bool weighs) {
    const ValueId y = buffer(name, width);
    add({.name = named(name), .role = Role::experts, .reads = {x}, .writes = {y}, .cuts = cuts_of_buffer()},
        kernels);
    Kernels input = kernels;
    if (!weighs) input.front().moved *= 1.5;
    remember(name, std::move(input), Role::experts);
    if (weighs) backward_.back().weight = kernels;
    backward_.back().of_buffer = true;
    return y;
  }

  // The gradients of shared experts are a way of their own, from the end of the mixture to its beginning.
  void add_backward(const Backward& of) {
    block_ = "d " + blocks_[of.block].name;
    std::vector<InstructionId> after{of.aside ? aside_last_.value_or(last_) : last_};
    if (aside_last_ && of.name.ends_with(" norm 2"))
      after.push_back(*std::exchange(aside_last_, std::nullopt));
    if (!of.weight.empty()) {
      Instruction weight{.name = "dW " + of.name,
                         .kind = Kind::weight_gradient,
                         .after = after,
                         .pass = Pass::backward,
                         .role = of.role};
      if (of.of_buffer) {
        weight.reads = {*buffer_};
        weight.cuts = cuts_of_buffer(0, 0);
        blocks_[of.block].expert_weights.push_back(size());
      } else {
        blocks_[of.block].weights.push_back(size());
      }
      add(std::move(weight), of.weight);
    }
    if (of.block == 0) return;  // nothing wants the gradient of tokens' numbers
    Instruction input{
        .name = "dX " + of.name, .kind = of.kind, .after = after, .pass = Pass::backward, .role = of.role};
    if (of.of_buffer) {
      if (!buffer_) buffer_ = buffer("gradient", model_.width);
      input.reads = {*buffer_};
      buffer_ = buffer("gradient", model_.width);
      input.writes = {*buffer_};
      input.cuts = cuts_of_buffer();
    } else {
      buffer_.reset();
    }
    if (of.aside)
      aside_last_ = size();
    else
      last_ = size();
    if (of.kind == Kind::all_to_all) {
      input.seconds = times_.all_to_all_seconds();
      instructions_.push_back(std::move(input));
    } else {
      add(std::move(input), of.input);
    }
  }

  // Reductions follow their last gradient in the order; updates and gathers come last.
  void end_blocks() {
    std::vector<std::pair<InstructionId, std::size_t>> ready;  // the last gradient, and the block
    auto& embedding = blocks_.front().weights;                 // which the head's weight is
    embedding.insert(embedding.end(), blocks_.back().weights.begin(), blocks_.back().weights.end());
    for (std::size_t at = 0; at < blocks_.size(); ++at)
      if (blocks_[at].parameters > 0)
        ready.emplace_back(*std::max_element(blocks_[at].weights.begin(), blocks_[at].weights.end()), at);
    std::sort(ready.begin(), ready.end());
    // The list is rebuilt with reductions in it, since the order of a graph is that of its list.
    std::vector<InstructionId> moved(size());
    std::vector<Instruction> listed;
    std::vector<InstructionId> reduction(blocks_.size());
    auto next = ready.begin();
    for (InstructionId id = 0; id < size(); ++id) {
      moved[id] = static_cast<InstructionId>(listed.size());
      for (InstructionId& before : instructions_[id].after) before = moved[before];
      listed.push_back(std::move(instructions_[id]));
      for (; next != ready.end() && next->first == id; ++next) {
        const Block& block = blocks_[next->second];
        reduction[next->second] = static_cast<InstructionId>(listed.size());
        Instruction reduce{.name = "reduce-scatter " + block.name,
                           .kind = Kind::reduce_scatter,
                           .seconds = dense_.seconds(Collective::reduce_scatter, bytes_of(block)),
                           .pass = Pass::backward};
        for (const InstructionId weight : block.weights) reduce.after.push_back(moved[weight]);
        listed.push_back(std::move(reduce));
      }
    }
    const auto add_update = [&](const std::string& name, double parameters,
                                std::vector<InstructionId> after) {
      listed.push_back({.name = "update " + name,
                        .kind = Kind::update,
                        .seconds = update_seconds(parameters),
                        .after = std::move(after),
                        .pass = Pass::update});
    };
    for (std::size_t at = 0; at < blocks_.size(); ++at) {
      Block& block = blocks_[at];
      for (InstructionId& weight : block.expert_weights) weight = moved[weight];
      if (block.expert_parameters > 0)
        add_update(block.name + " experts", real(block.expert_parameters), std::move(block.expert_weights));
      if (block.parameters == 0) continue;
      const auto update = static_cast<InstructionId>(listed.size());
      const double shard = real(block.parameters * own_experts_) / real(experts_);
      add_update(block.name, shard, {reduction[at]});
      listed.push_back({.name = "all-gather " + block.name,
                        .kind = Kind::all_gather,
                        .seconds = dense_.seconds(Collective::all_gather, bytes_of(block)),
                        .after = {update},
                        .pass = Pass::update});
      listed[moved[block.first]].after_previous.push_back(update + 1);
    }
    instructions_ = std::move(listed);
  }
  [[nodiscard]] std::int64_t bytes_of(const Block& block) const {
    return block.parameters * size_of(options_.dtype);
  }
  // Gradient, parameter and momentum are read, the latter two written, in fp32.
  [[nodiscard]] double update_seconds(double parameters) const {
    return zoo::transfer_seconds(device_, 5 * parameters * size_of(DType::f32));
  }

  const MixtureModel& model_;
  const zoo::Device& device_;
  const MixtureOptions& options_;
  cost::ClusterTimes dense_;
  std::int64_t batch_, tokens_, experts_, own_experts_, capacity_;
  std::int64_t rows_;       // of all experts of a rank
  std::int64_t exchanged_;  // bytes of an all-to-all
  OperatorTimes times_;
  std::string block_;
  bool aside_ = false;  // what is added belongs to shared experts
  std::vector<Block> blocks_;
  std::vector<Value> values_;
  std::vector<Instruction> instructions_;
  std::vector<Backward> backward_;  // in forward order
  InstructionId last_ = 0;          // the last gradient of an input
  std::optional<InstructionId> aside_last_;
  std::optional<ValueId> buffer_;  // the last gradient between two all-to-alls
};

}  // namespace

MixtureJob make_job(const MixtureModel& model, const zoo::Device& device, const Cluster& cluster,
                    const MixtureOptions& options) {
  return Builder(model, device, cluster, options).build();
}

}  // namespace dear::methods::moe
