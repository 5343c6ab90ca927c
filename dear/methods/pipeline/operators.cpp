#include "dear/methods/pipeline/operators.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::methods::pipeline {
namespace {

// Far above any model, and small enough that sums never overflow.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

std::string quoted(const Operator& op) { return fmt::format("'{}'", printable(shortened(op.name, 100))); }

void require_work(const Operator& op, double work, std::string_view which) {
  if (!std::isfinite(work) || work < 0)
    throw ConfigError(
        fmt::format("the {} of operator {} takes {} operations: measure or count it, and give a finite "
                    "number, 0 or more",
                    which, quoted(op), work));
}

void require_bytes(const Operator& op, std::int64_t bytes, std::string_view which) {
  if (bytes < 0 || bytes > kMostBytes)
    throw ConfigError(fmt::format("operator {} has {} bytes of {}: give a number from 0 to 2^50", quoted(op),
                                  bytes, which));
}

void check_one(const Operator& op, const std::vector<Operator>& operators) {
  if (op.name.empty()) throw ConfigError("an operator has no name: give each one of its own");
  require_work(op, op.forward_work, "forward");
  require_work(op, op.input_gradient_work, "input gradient");
  require_work(op, op.weight_gradient_work, "weight gradient");
  require_bytes(op, op.parameter_bytes, "parameters");
  require_bytes(op, op.output_bytes, "output");
  require_bytes(op, op.kept_bytes, "kept activations");
  if (op.output_bytes % size_of(op.dtype) != 0)
    throw ConfigError(
        fmt::format("the output of operator {} has {} bytes, no whole number of {} elements: "
                    "give its size or type anew",
                    quoted(op), op.output_bytes, name_of(op.dtype)));
  std::vector<OperatorId> inputs = op.inputs;
  if (op.tied) inputs.push_back(*op.tied);
  for (const OperatorId input : inputs)
    if (input >= operators.size())
      throw ConfigError(fmt::format("operator {} names operator {}, but there are {}: give one of them",
                                    quoted(op), input, operators.size()));
  inputs = op.inputs;
  std::sort(inputs.begin(), inputs.end());
  if (const auto twice = std::adjacent_find(inputs.begin(), inputs.end()); twice != inputs.end())
    throw ConfigError(fmt::format("operator {} lists its input {} twice: list it once", quoted(op),
                                  quoted(operators[*twice])));
  if (op.tied && operators[*op.tied].parameter_bytes == 0)
    throw ConfigError(fmt::format("operator {} is tied to the parameters of {}, which has none: leave it out",
                                  quoted(op), quoted(operators[*op.tied])));
}

}  // namespace

bool is_integer(DType dtype) { return dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8; }

OperatorDag::OperatorDag(std::string name, std::vector<Operator> operators)
    : name_(std::move(name)), operators_(std::move(operators)) {
  if (operators_.empty()) throw ConfigError("a model needs an operator: it has none");
  std::unordered_map<std::string_view, std::size_t> found;
  for (const Operator& op : operators_) {
    check_one(op, operators_);
    if (!found.emplace(op.name, found.size()).second)
      throw ConfigError(fmt::format("two operators are named {}: give each a name of its own", quoted(op)));
  }
  sort();
  users_.resize(size());
  for (OperatorId id = 0; id < size(); ++id)
    for (const OperatorId input : operators_[id].inputs) users_[input].push_back(id);
  require_connected();

  crossing_bytes_.resize(size() + 1);
  gradient_bytes_.resize(size() + 1);
  for (OperatorId id = 0; id < size(); ++id) {
    const Operator& op = operators_[id];
    const std::size_t end = users_[id].empty() ? id : users_[id].back();
    for (std::size_t cut = id + 1; cut <= end; ++cut) {
      crossing_bytes_[cut] += op.output_bytes;
      if (!is_integer(op.dtype)) gradient_bytes_[cut] += op.output_bytes;
    }
  }
}

// Kahn's algorithm, with the smallest of those that may come next.
void OperatorDag::sort() {
  const std::size_t count = size();
  std::vector<std::size_t> waits(count);
  std::vector<std::vector<OperatorId>> users(count);
  for (OperatorId id = 0; id < count; ++id) {
    waits[id] = operators_[id].inputs.size();
    for (const OperatorId input : operators_[id].inputs) users[input].push_back(id);
  }
  std::priority_queue<OperatorId, std::vector<OperatorId>, std::greater<>> ready;
  for (OperatorId id = 0; id < count; ++id)
    if (waits[id] == 0) ready.push(id);
  std::vector<OperatorId> order;
  while (!ready.empty()) {
    const OperatorId id = ready.top();
    ready.pop();
    order.push_back(id);
    for (const OperatorId user : users[id])
      if (--waits[user] == 0) ready.push(user);
  }
  if (order.size() < count) {
    const auto left = std::find_if(waits.begin(), waits.end(), [](std::size_t w) { return w > 0; });
    throw ConfigError(
        fmt::format("operator {} waits for itself in a circle, or for operators that do: remove "
                    "one of their inputs",
                    quoted(operators_[static_cast<std::size_t>(left - waits.begin())])));
  }
  std::vector<OperatorId> place(count);
  std::vector<Operator> sorted;
  for (const OperatorId id : order) {
    place[id] = static_cast<OperatorId>(sorted.size());
    sorted.push_back(std::move(operators_[id]));
  }
  for (Operator& op : sorted) {
    for (OperatorId& input : op.inputs) input = place[input];
    if (op.tied) op.tied = place[*op.tied];
  }
  operators_ = std::move(sorted);
}

void OperatorDag::require_connected() const {
  std::vector<bool> reached(size());
  std::vector<OperatorId> to_visit{0};
  reached[0] = true;
  while (!to_visit.empty()) {
    const OperatorId id = to_visit.back();
    to_visit.pop_back();
    for (const std::vector<OperatorId>* next : {&operators_[id].inputs, &users_[id]}) {
      for (const OperatorId other : *next) {
        if (reached[other]) continue;
        reached[other] = true;
        to_visit.push_back(other);
      }
    }
  }
  if (const auto apart = std::find(reached.begin(), reached.end(), false); apart != reached.end())
    throw ConfigError(fmt::format(
        "nothing connects operator {} with {}: give it an input, or plan it as a "
        "model of its own",
        quoted(operators_[static_cast<std::size_t>(apart - reached.begin())]), quoted(operators_[0])));
}

OperatorId OperatorDag::find(std::string_view name) const {
  const auto at =
      std::find_if(operators_.begin(), operators_.end(), [&](const Operator& op) { return op.name == name; });
  if (at != operators_.end()) return static_cast<OperatorId>(at - operators_.begin());
  std::vector<std::string_view> names;
  for (const Operator& op : operators_) names.emplace_back(op.name);
  throw ConfigError(fmt::format("model '{}' has no operator '{}'{} take one of its {}", name_,
                                printable(shortened(name, 100)), did_you_mean(name, names), size()));
}

std::vector<OperatorId> OperatorDag::crossing(std::size_t cut) const {
  std::vector<OperatorId> outputs;
  for (OperatorId id = 0; id < std::min(cut, size()); ++id)
    if (!users_[id].empty() && users_[id].back() >= cut) outputs.push_back(id);
  return outputs;
}

std::uint64_t OperatorDag::digest() const {
  Digest digest;
  digest.add(name_).add(size());
  for (const Operator& op : operators_) {
    digest.add(op.name).add(op.inputs.size());
    for (const OperatorId input : op.inputs) digest.add(input);
    digest.add(static_cast<std::uint64_t>(op.parameter_bytes))
        .add(static_cast<std::uint64_t>(op.output_bytes))
        .add(static_cast<std::uint64_t>(op.dtype))
        .add(op.tied ? *op.tied + std::uint64_t{1} : 0);
  }
  return digest.value();
}

}  // namespace dear::methods::pipeline
