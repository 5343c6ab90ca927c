// Mixtures of experts for Python: the arithmetic of gates (dear/methods/moe), on which dear.MoE stands, and
// the numbers by which autograd orders its nodes.

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/SequenceNumber.h>
#include <ATen/ThreadLocalState.h>
#include <torch/csrc/utils/pybind.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/moe/instructions.h"
#include "dear/methods/moe/routing.h"
#include "dear/methods/moe/weight_gradients.h"
#include "python/src/parts.h"

namespace dear::python {
namespace {

// The elements of a tensor, which keeps them. ConfigError for one of another type or place.
template <typename T>
std::span<T> elements(const at::Tensor& tensor, const std::string& name) {
  if (tensor.scalar_type() != c10::CppTypeToScalarType<T>::value || !tensor.device().is_cpu() ||
      !tensor.is_contiguous())
    throw ConfigError(name + " of a gate must be contiguous, on the CPU and of its own type");
  return {tensor.data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

std::vector<std::int64_t> place_in_order(const at::Tensor& experts, std::int64_t capacity,
                                         const at::Tensor& used, const at::Tensor& slots) {
  return methods::moe::place_in_order(elements<std::int32_t>(experts, "experts"), capacity,
                                      elements<std::int64_t>(used, "used"),
                                      elements<std::int64_t>(slots, "slots"));
}

std::vector<std::int64_t> place_by_importance(const at::Tensor& experts, int choices,
                                              const at::Tensor& scores, std::int64_t capacity,
                                              std::int64_t expert_count, const at::Tensor& slots) {
  return methods::moe::place_by_importance(elements<std::int32_t>(experts, "experts"), choices,
                                           elements<float>(scores, "scores"), capacity, expert_count,
                                           elements<std::int64_t>(slots, "slots"));
}

std::vector<std::int64_t> take_part(const at::Tensor& experts, std::int64_t expert_count,
                                    const at::Tensor& slots) {
  return methods::moe::take_part(elements<std::int32_t>(experts, "experts"), expert_count,
                                 elements<std::int64_t>(slots, "slots"));
}

std::vector<std::pair<std::int64_t, std::int64_t>> parts_of_batch(std::int64_t samples,
                                                                  std::int64_t tokens_of_sample, int parts) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const methods::moe::TokenRange& range : methods::moe::parts_of_batch(samples, tokens_of_sample, parts))
    ranges.emplace_back(range.begin, range.end);
  return ranges;
}

// One backward pass as it was measured: each all-to-all is launched and later waited for, each weight
// gradient can be computed from "ready" on. Returns which weight gradient goes under which all-to-all, by
// their numbers (the others are computed when they can be, so that their reductions begin), the seconds that
// all-to-alls are waited for without it, and those that it hides of them.
struct Event {
  std::string kind;
  std::uint32_t number = 0;
  double seconds = 0;  // that it takes
  double at = 0;       // seconds of computation before it, without weight gradients
};

// Seconds for which each all-to-all is waited for where no weight gradient is computed meanwhile: all-to-alls
// travel one after another, under the computation between their launch and their wait.
std::map<std::uint32_t, double> waits_of(const std::vector<Event>& events) {
  std::map<std::uint32_t, double> ends, waits;
  double idle = 0, network = 0;
  for (const Event& event : events) {
    const double now = event.at + idle;
    if (event.kind == "launch") {
      network = std::max(now, network) + event.seconds;
      ends[event.number] = network;
    } else if (event.kind == "wait") {
      waits[event.number] = std::max(0.0, ends.at(event.number) - now);
      idle += waits[event.number];
    }
  }
  return waits;
}

std::tuple<std::map<std::uint32_t, std::uint32_t>, double, double> plan(
    const std::vector<std::tuple<std::string, std::uint32_t, double, double>>& measured) {
  using namespace methods::moe;
  std::vector<Event> events;
  for (const auto& [kind, number, seconds, at] : measured) events.push_back({kind, number, seconds, at});
  const std::map<std::uint32_t, double> waits = waits_of(events);
  std::vector<Instruction> instructions;
  std::vector<std::uint32_t> numbers;
  std::map<std::uint32_t, InstructionId> launched;
  std::vector<InstructionId> last_launched, last_waited;
  for (const Event& event : events) {
    const auto id = static_cast<InstructionId>(instructions.size());
    if (event.kind == "wait") {
      last_waited = {launched.at(event.number)};
      continue;
    }
    const bool travels = event.kind == "launch";
    instructions.push_back({.name = event.kind + " " + std::to_string(event.number),
                            .kind = travels ? Kind::all_to_all : Kind::weight_gradient,
                            .seconds = travels ? waits.at(event.number) : event.seconds,
                            .after = travels ? last_launched : last_waited,
                            .pass = Pass::backward});
    numbers.push_back(event.number);
    if (travels) {
      launched[event.number] = id;
      last_launched = {id};
    }
  }
  const Hiding hiding =
      hide_by_best_fit(InstructionGraph(std::move(instructions)), {.take_the_last_chance = false});
  std::map<std::uint32_t, std::uint32_t> under;
  for (const Hiding::Under& one : hiding.under)
    for (const InstructionId id : one.instructions) under[numbers[id]] = numbers[one.all_to_all];
  double waited = 0;
  for (const auto& [number, seconds] : waits) waited += seconds;
  return {under, waited, hiding.hidden_seconds};
}

// What libtorch keeps for a thread: modes, autocast, hooks of saved tensors, observers.
class ThreadState {
 public:
  void restore() const { at::ThreadLocalState::setThreadLocalState(state_); }

 private:
  at::ThreadLocalState state_;
};

}  // namespace

void bind_moe(py::module_& module) {
  module.def("moe_capacity", &methods::moe::capacity_of, py::arg("factor"), py::arg("tokens"),
             py::arg("experts"));
  module.def("moe_experts_of_rank", &methods::moe::experts_of_rank, py::arg("experts"), py::arg("ranks"));
  module.def("moe_parts_of_batch", &parts_of_batch, py::arg("samples"), py::arg("tokens_of_sample"),
             py::arg("parts"));
  module.def("moe_place_in_order", &place_in_order, py::arg("experts"), py::arg("capacity"), py::arg("used"),
             py::arg("slots"));
  module.def("moe_place_by_importance", &place_by_importance, py::arg("experts"), py::arg("choices"),
             py::arg("scores"), py::arg("capacity"), py::arg("expert_count"), py::arg("slots"));
  module.def("moe_take_part", &take_part, py::arg("experts"), py::arg("expert_count"), py::arg("slots"));
  module.def(
      "moe_check_counts",
      [](const std::vector<std::int64_t>& counts, std::int64_t capacity, int ranks, int rank) {
        methods::moe::check_counts(counts, capacity, ranks, rank);
      },
      py::arg("counts"), py::arg("capacity"), py::arg("ranks"), py::arg("rank"));
  module.def("moe_plan", &plan, py::arg("events"));
  py::class_<ThreadState>(module, "ThreadState",
                          "What libtorch keeps for this thread, as it is when this is made.")
      .def(py::init<>())
      .def("restore", &ThreadState::restore);
  // Autograd runs the ready node with the highest number first, and numbers nodes from 0 on in each thread.
  module.def(
      "reserve_sequence_numbers",
      [](std::uint64_t count) {
        while (at::sequence_number::peek() < count) at::sequence_number::get_and_increment();
      },
      py::arg("count"),
      "Nodes of autograd that this thread makes have numbers of at least `count` from now on.");
}

}  // namespace dear::python
