#pragma once

#include <string>
#include <utility>
#include <vector>

#include "dear/methods/moe/axes.h"
#include "dear/methods/moe/instructions.h"

namespace dear::methods::moe {

// A stack of layers in units of time: attention, then a dense network or, in every second layer, a mixture.
// Each forward has a gradient of its input and one of its weight that take as long.
struct StackOptions {
  int layers = 12;
  double attention = 1, dense = 1, expert = 1, all_to_all = 1;
  bool gate_may_be_cut = true;
  std::int64_t batch = 48;
  // Whether the gradient of a weight is listed before that of the input, of attention and dense networks, and
  // of experts.
  bool weights_first = true, expert_weights_first = false;
  bool reductions = false;  // of dense gradients, with a gather in the next forward
};

class Stack {
 public:
  explicit Stack(const StackOptions& options) : options_(options) {
    ValueId x = value("tokens", {options.batch, 8, 4});
    for (int layer = 0; layer < options.layers; ++layer) x = forward(layer, x);
    for (int layer = options.layers; layer-- > 0;) backward(layer);
    for (const auto& [reduced, read_by] : reduced_) {
      const InstructionId update = add(
          {.name = "update", .kind = Kind::update, .seconds = 0, .after = {reduced}, .pass = Pass::update});
      const InstructionId gather = add({.name = "gather",
                                        .kind = Kind::all_gather,
                                        .seconds = 0.1,
                                        .after = {update},
                                        .pass = Pass::update});
      instructions_[read_by].after_previous.push_back(gather);
    }
  }
  [[nodiscard]] InstructionGraph graph() const { return {values_, instructions_}; }

 private:
  ValueId value(std::string name, std::vector<std::int64_t> shape) {
    values_.push_back({std::move(name), std::move(shape)});
    return static_cast<ValueId>(values_.size() - 1);
  }
  ValueId tokens(const std::string& name) { return value(name, {options_.batch, 8, 4}); }
  ValueId buffer(const std::string& name) { return value(name, {2, 64, 4}); }
  InstructionId add(Instruction instruction) {
    instructions_.push_back(std::move(instruction));
    return static_cast<InstructionId>(instructions_.size() - 1);
  }
  static bool is_mixture(int layer) { return layer % 2 == 0; }

  ValueId forward(int layer, ValueId x) {
    const ValueId attended = tokens("attended");
    first_.push_back(add({.name = "attention",
                          .seconds = options_.attention,
                          .reads = {x},
                          .writes = {attended},
                          .cuts = cuts_along({0}, 1, 1)}));
    const ValueId y = tokens("y");
    if (!is_mixture(layer)) {
      add({.name = "dense",
           .seconds = options_.dense,
           .reads = {attended},
           .writes = {y},
           .cuts = cuts_along({0, 1}, 1, 1)});
      return y;
    }
    const ValueId routing = value("routing", {options_.batch * 8});
    add({.name = "gate",
         .seconds = 0,
         .role = Role::gate,
         .reads = {attended},
         .writes = {routing},
         .cuts = options_.gate_may_be_cut ? cuts_of_gate(0) : std::vector<Cut>{},
         .uncut_reason = "it ranks the tokens of the whole batch"});
    const ValueId sent = buffer("sent"), there = buffer("there"), done = buffer("done"),
                  back = buffer("back");
    add({.name = "dispatch",
         .seconds = 0,
         .role = Role::dispatch,
         .reads = {attended, routing},
         .writes = {sent},
         .cuts = cuts_of_dispatch()});
    exchange(sent, there, Pass::forward);
    add({.name = "experts",
         .seconds = options_.expert,
         .role = Role::experts,
         .reads = {there},
         .writes = {done},
         .cuts = cuts_of_buffer()});
    exchange(done, back, Pass::forward);
    add({.name = "combine",
         .seconds = 0,
         .role = Role::combine,
         .reads = {back, routing},
         .writes = {y},
         .cuts = cuts_of_combine()});
    return y;
  }

  void exchange(ValueId from, ValueId to, Pass pass) {
    const std::vector<InstructionId> after =
        pass == Pass::forward ? std::vector<InstructionId>{} : std::vector{last_};
    last_ = add({.name = "all-to-all",
                 .kind = Kind::all_to_all,
                 .seconds = options_.all_to_all,
                 .after = after,
                 .pass = pass,
                 .reads = {from},
                 .writes = {to},
                 .cuts = cuts_of_buffer()});
  }

  // Adds the gradients of the instruction `of`, behind `last_`.
  void gradients(const std::string& of, double seconds, InstructionId read_by) {
    const std::vector<InstructionId> after{last_};
    InstructionId weight = 0;
    for (const bool of_weight : {options_.weights_first, !options_.weights_first})
      (of_weight ? weight : last_) = add({.name = of + (of_weight ? " dW" : " dX"),
                                          .kind = of_weight ? Kind::weight_gradient : Kind::compute,
                                          .seconds = seconds,
                                          .after = after,
                                          .pass = Pass::backward});
    if (!options_.reductions) return;
    reduced_.emplace_back(add({.name = "reduce",
                               .kind = Kind::reduce_scatter,
                               .seconds = 0.1,
                               .after = {weight},
                               .pass = Pass::backward}),
                          read_by);
  }

  void backward(int layer) {
    if (layer + 1 == options_.layers) last_ = static_cast<InstructionId>(instructions_.size() - 1);
    const InstructionId first = first_[static_cast<std::size_t>(layer)];
    if (is_mixture(layer)) {
      const ValueId sent = buffer("d sent"), there = buffer("d there"), done = buffer("d done"),
                    back = buffer("d back");
      exchange(sent, there, Pass::backward);
      for (const bool of_weight : {options_.expert_weights_first, !options_.expert_weights_first}) {
        if (of_weight)
          add({.name = "experts dW",
               .kind = Kind::weight_gradient,
               .seconds = options_.expert,
               .pass = Pass::backward,
               .role = Role::experts,
               .reads = {there},
               .cuts = cuts_of_buffer(0, 0)});
        else
          last_ = add({.name = "experts dX",
                       .seconds = options_.expert,
                       .pass = Pass::backward,
                       .role = Role::experts,
                       .reads = {there},
                       .writes = {done},
                       .cuts = cuts_of_buffer()});
      }
      exchange(done, back, Pass::backward);
    } else {
      gradients("dense", options_.dense, first + 1);
    }
    gradients("attention", options_.attention, first);
  }

  StackOptions options_;
  std::vector<Value> values_;
  std::vector<Instruction> instructions_;
  std::vector<InstructionId> first_;                              // by layer: its attention
  InstructionId last_ = 0;                                        // the last link of the backward
  std::vector<std::pair<InstructionId, InstructionId>> reduced_;  // with what reads the parameter
};

}  // namespace dear::methods::moe
