#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/base/vocabulary/dtype.h"

// This folder plans one model over devices that are far apart, as FusionLLM does (Tang et al. 2024, arXiv
// 2410.12707). In the order of its headers: operators.h (and zoo_operators.h) has what is planned, stages.h
// what a part of it costs, communities.h the order of devices, partition.h the cuts, messages.h what travels
// compressed, orders.h the schedules, timeline.h their play in virtual time, plan.h the plan, planner.h its
// making.
namespace dear::methods::pipeline {

using OperatorId = std::uint32_t;

// One operator, for one micro-batch. Work is in floating-point operations. An operator has one output; one
// without inputs reads the batch, which every rank has.
struct Operator {
  std::string name;
  std::string kind{};  // for readers: "matmul"
  std::vector<OperatorId> inputs{};
  double forward_work = 0;
  // The gradients of what it reads, and of its parameters: a backward pass is both.
  double input_gradient_work = 0;
  double weight_gradient_work = 0;
  std::int64_t parameter_bytes = 0;  // its own
  std::int64_t output_bytes = 0;
  std::int64_t kept_bytes = 0;       // what its forward keeps for its backward
  DType dtype = DType::f32;          // of its output; integers have no gradient
  std::optional<OperatorId> tied{};  // it reads the parameters of this one as well
  // An embedding reads, for its output, rows of its parameters: no other row has a gradient.
  bool picks_rows = false;
  friend bool operator==(const Operator&, const Operator&) = default;
};

[[nodiscard]] bool is_integer(DType dtype);

// A model as operators and what they read from each other: its nodes are in a topological order, so that each
// has a smaller id than its users. A value; safe to read from many threads.
//
// A cut at position c separates operators 0 to c - 1 from the others. What crosses it are the outputs before
// c that are read at or behind c, each once however many read it. A pipeline hands all of them from stage to
// neighbour stage: a skip over several stages crosses each link on its way once.
class OperatorDag {
 public:
  // Operators in any order, inputs and ties as indices into it; those that may stand as listed keep their
  // order. ConfigError naming the operator and the remedy: none at all, a name that is empty or there twice,
  // work that is not known (NaN), negative or not finite, negative bytes, an output that is no whole number
  // of elements, an index out of range, an operator read twice by one, a tie to an operator without
  // parameters, a cycle, parts that nothing connects; more than 5,000 operators, more than 2^50 bytes or 1e30
  // operations of all.
  OperatorDag(std::string name, std::vector<Operator> operators);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<Operator>& operators() const { return operators_; }
  [[nodiscard]] const Operator& operator[](OperatorId id) const { return operators_[id]; }
  [[nodiscard]] std::size_t size() const { return operators_.size(); }
  // Ascending.
  [[nodiscard]] const std::vector<OperatorId>& users(OperatorId id) const { return users_[id]; }
  [[nodiscard]] OperatorId find(std::string_view name) const;  // ConfigError for none

  // Cuts are from 0 to size().
  [[nodiscard]] std::vector<OperatorId> crossing(std::size_t cut) const;
  [[nodiscard]] std::int64_t crossing_bytes(std::size_t cut) const { return crossing_bytes_[cut]; }
  // Counts, of what crosses, the outputs that have a gradient, which travels the other way.
  [[nodiscard]] std::int64_t gradient_bytes(std::size_t cut) const { return gradient_bytes_[cut]; }

  // A digest of names, inputs, bytes, types and ties, but not of work: ranks may run together only if it is
  // the same.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  void sort();
  void require_sums() const;
  void require_connected() const;

  std::string name_;
  std::vector<Operator> operators_;
  std::vector<std::vector<OperatorId>> users_;
  std::vector<std::int64_t> crossing_bytes_, gradient_bytes_;  // by cut
};

// Files, JSON:
//   {"format": "dear-operators", "version": 1, "name": "two layers", "operators": [
//     {"name": "first", "inputs": [], "forward_work": 1e9, "parameter_bytes": 4096, "output_bytes": 1024},
//     {"name": "second", "inputs": ["first"], ...}]}
// These fields are required. "kind" may be left out; so may "kept_bytes" (the bytes of the output), "dtype"
// ("fp32"), "tied" (the name of another), "picks_rows" (false), and the work of gradients: that of the input
// is that of the forward, or 0 for an operator without inputs, that of the weight is that of the forward, or
// 0 for one without parameters. ConfigError with the name of the file and the place in it.
OperatorDag read_operators(const std::string& path);
OperatorDag parse_operators(std::string_view json, const std::string& name_of_source);
void write_operators(const OperatorDag& dag, const std::string& path);  // atomically
std::string to_json(const OperatorDag& dag);

}  // namespace dear::methods::pipeline
