#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dear/schedule/graph/precedence.h"

// A training iteration of a network with mixtures of experts, operator by operator, as one rank runs it: what
// Lancet (Jiang et al. 2024, MLSys, arXiv 2404.19429) orders and cuts so that all-to-alls are hidden.
namespace dear::methods::moe {

using InstructionId = std::uint32_t;
using ValueId = std::uint32_t;

enum class Kind : std::uint8_t {
  compute,          // of the forward, or the gradient of an input
  weight_gradient,  // dW: nothing of the backward waits for it
  update,           // of parameters
  all_to_all,       // of tokens, to their experts or back
  reduce_scatter,   // of dense gradients
  all_gather,       // of dense parameters
  all_reduce        // of dense gradients
};
bool communicates(Kind kind);    // the network lane's
bool reduces_dense(Kind kind);   // reduce_scatter, all_reduce
std::string name_of(Kind kind);  // "all-to-all"

enum class Pass : std::uint8_t { forward, backward, update };

// A Role says what an instruction does in its mixture. `dispatch` writes the buffer of tokens by expert,
// `combine` reads it back into the order of tokens.
enum class Role : std::uint8_t { plain, gate, dispatch, experts, combine };

// The dimension that a value is cut along, from 0; or kWhole; or kIrregular: by the parts of the batch that
// its tokens come from, in a buffer whose place in it they chose.
using Axis = std::int8_t;
inline constexpr Axis kWhole = -1, kIrregular = -2;

// One way to cut an instruction: the axis of each value that it reads and writes. Every value that it writes
// is cut.
struct Cut {
  std::vector<Axis> reads, writes;
};

struct Value {
  std::string name;
  std::vector<std::int64_t> shape;
};

struct Instruction {
  std::string name;
  Kind kind = Kind::compute;
  double seconds = 0;                           // on one rank, alone
  std::vector<InstructionId> after{};           // waits for these; and for those that write what it reads
  std::vector<InstructionId> after_previous{};  // waits for these of the iteration before
  Pass pass = Pass::forward;
  Role role = Role::plain;
  std::vector<ValueId> reads{}, writes{};  // a value has one writer at most; without one it is given
  std::vector<Cut> cuts{};                 // empty: it must not be cut
  std::string uncut_reason{};              // why not, as the end of a sentence: "its mean is over the batch"
  int part = 0, parts = 1;                 // which part of the batch it works on
};

// A value; safe to read from many threads. Its order is that in which every rank issues instructions: those
// that compute on one lane, collectives on the other, each lane one after another. Every order is a
// topological one, so no rank waits for what comes later on its own lanes, and since collectives have one
// order on all ranks, ranks never wait for each other in a circle.
class InstructionGraph {
 public:
  // Without an order: as listed. ScheduleError for an id out of range, a value with two writers, a cut of
  // another number of values or beyond a shape, a cycle, and an order that leaves one out or puts one before
  // what it waits for. ConfigError for a time that is negative or not finite, as that of an instruction that
  // nobody measured.
  InstructionGraph(std::vector<Value> values, std::vector<Instruction> instructions,
                   std::vector<InstructionId> order = {});
  explicit InstructionGraph(std::vector<Instruction> instructions)
      : InstructionGraph({}, std::move(instructions)) {}

  [[nodiscard]] const std::vector<Value>& values() const { return values_; }
  [[nodiscard]] const std::vector<Instruction>& instructions() const { return instructions_; }
  [[nodiscard]] const Instruction& operator[](InstructionId id) const { return instructions_[id]; }
  [[nodiscard]] std::size_t size() const { return instructions_.size(); }
  [[nodiscard]] const std::vector<InstructionId>& order() const { return order_; }
  // Returns the instructions that `id` waits for in the same iteration, ascending, each once.
  [[nodiscard]] const std::vector<InstructionId>& predecessors(InstructionId id) const {
    return predecessors_[id];
  }
  [[nodiscard]] std::vector<InstructionId> all_to_alls() const;  // in order

  // Returns a graph of the same instructions in the topological order that is nearest to `wanted`: an
  // instruction that stands before what it waits for follows the last of that. ScheduleError unless each is
  // in it once.
  [[nodiscard]] InstructionGraph reordered(const std::vector<InstructionId>& wanted) const;

  // A digest of instructions, what they wait for and their order, but not of times: ranks may run together
  // only if it is the same.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  void find_predecessors();
  void check_cuts(const Instruction& instruction) const;

  std::vector<Value> values_;
  std::vector<Instruction> instructions_;
  std::vector<InstructionId> order_;
  std::vector<std::vector<InstructionId>> predecessors_;
};

// They say, by instruction, whether it has a path from `id` in the same iteration (as `id` itself has), or
// one to it.
std::vector<bool> reached_from(const InstructionGraph& graph, InstructionId id);
std::vector<bool> leading_to(const InstructionGraph& graph, InstructionId id);

}  // namespace dear::methods::moe
