#include "dear/methods/pipeline/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/base/vocabulary/units.h"

namespace dear::methods::pipeline {
namespace {

std::string name_of_operator(const OperatorDag& dag, OperatorId id) {
  return fmt::format("'{}'", printable(shortened(dag[id].name, 100)));
}

std::string name_of_device(const PairCluster& cluster, int device) {
  return fmt::format("'{}'", printable(shortened(cluster.devices[index_of(device)].name, 100)));
}

void check_stages(const Plan& plan, const StageCosts& costs) {
  if (plan.stages.empty()) throw ConfigError("a plan needs a stage: it has none");
  const int devices = static_cast<int>(costs.cluster().devices.size());
  std::int64_t next = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const auto& [device, operators] = plan.stages[s];
    if (device < 0 || device >= devices)
      throw ConfigError(
          fmt::format("stage {} is on device {}, but there are {}: give one of them", s, device, devices));
    if (operators.empty()) throw ConfigError(fmt::format("stage {} has no operator: give it one", s));
    if (operators.begin != next || operators.end > std::ssize(costs.dag().operators()))
      throw ConfigError(fmt::format(
          "stage {} has operators {} to {}, but operator {} of {} comes next: give all in order, each once",
          s, operators.begin, operators.end - 1, next, costs.dag().size()));
    next = operators.end;
  }
  if (next != std::ssize(costs.dag().operators()))
    throw ConfigError(fmt::format("operator {} is in no stage: add it to the last",
                                  name_of_operator(costs.dag(), static_cast<OperatorId>(next))));
  const std::size_t places = index_of(std::max(1, plan.places()));
  std::set<int> first;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const int device = plan.stages[s].device;
    if (s < places ? !first.insert(device).second : device != plan.stages[s % places].device)
      throw ConfigError(fmt::format(
          "stage {} is on device {}, out of turn: stages pass all {} devices in one order, again and again",
          s, name_of_device(costs.cluster(), device), places));
  }
  if (plan.stages.size() % places != 0)
    throw ConfigError(fmt::format("{} stages do not pass {} devices equally often: give each as many",
                                  plan.stages.size(), places));
}

void check_messages(const Plan& plan, const StageCosts& costs) {
  std::set<std::pair<int, OperatorId>> listed;
  for (const Message& message : plan.messages) {
    const int last = static_cast<int>(plan.stages.size()) - 2;
    if (message.from_stage < 0 || message.from_stage > last)
      throw ConfigError(
          fmt::format("a message leaves stage {}, behind which there is none: give one from 0 to {}",
                      message.from_stage, last));
    const Stage &from = plan.stages[index_of(message.from_stage)],
                &to = plan.stages[index_of(message.from_stage) + 1];
    const OperatorDag& dag = costs.dag();
    const std::vector<OperatorId> crossing = dag.crossing(static_cast<std::size_t>(to.operators.begin));
    if (std::find(crossing.begin(), crossing.end(), message.output) == crossing.end())
      throw ConfigError(
          fmt::format("the output of operator {} does not travel from stage {} to the next: leave "
                      "its message out",
                      message.output < dag.size() ? name_of_operator(dag, message.output)
                                                  : std::to_string(message.output),
                      message.from_stage));
    const std::string what = fmt::format("the message of operator {} from stage {}",
                                         name_of_operator(dag, message.output), message.from_stage);
    if (from.device == to.device)
      throw ConfigError(fmt::format("{} stays on its device: leave it out", what));
    if (!listed.emplace(message.from_stage, message.output).second)
      throw ConfigError(fmt::format("{} is listed twice: leave one out", what));
    for (const double ratio : {message.activation_ratio, message.gradient_ratio}) {
      if (!std::isfinite(ratio) || ratio < 1)
        throw ConfigError(fmt::format("{} has a ratio of {}: give a finite number, 1 or more", what, ratio));
      if (ratio > 1 && is_integer(dag[message.output].dtype))
        throw ConfigError(fmt::format("{} is of {}, of which none may be lost: leave it out", what,
                                      name_of(dag[message.output].dtype)));
    }
  }
}

void check_memory(const Plan& plan, const StageCosts& costs) {
  const std::vector<double> peaks = peak_bytes(plan, costs);
  for (std::size_t place = 0; place < peaks.size(); ++place) {
    const int device = plan.stages[place].device;
    const std::int64_t memory = costs.cluster().devices[index_of(device)].memory_bytes;
    if (peaks[place] > static_cast<double>(memory))
      throw ConfigError(fmt::format(
          "device {} needs {} of memory and has {}: give it fewer operators, or take "
          "smaller micro-batches or a smaller warm-up",
          name_of_device(costs.cluster(), device),
          format_bytes(static_cast<std::int64_t>(std::min(peaks[place], 0x1p62))), format_bytes(memory)));
  }
}

// The bytes of rows of an operator's tied parameters whose gradient is not zero: at most so many an
// iteration.
std::int64_t gradient_bytes(const Operator& op, std::int64_t parameter_bytes, int micro_batches) {
  if (!op.picks_rows || op.output_bytes > parameter_bytes / micro_batches) return parameter_bytes;
  return op.output_bytes * micro_batches;
}

std::vector<Exchange> exchanges_of(const Plan& plan, const StageCosts& costs) {
  const OperatorDag& dag = costs.dag();
  // A place that reads the same parameters in several stages has their gradient when its first stage has
  // ended, the last to which gradients come back.
  struct Holder {
    int first_stage = 0;
    std::int64_t bytes = 0;
  };
  std::map<OperatorId, std::map<int, Holder>> holders;  // by the owner of parameters, and by place
  const int places = plan.places();
  for (int stage = 0; stage < std::ssize(plan.stages); ++stage) {
    const Range& operators = plan.stages[index_of(stage)].operators;
    for (std::int64_t at = operators.begin; at < operators.end; ++at) {
      const auto id = static_cast<OperatorId>(at);
      for (const OperatorId owner : {id, dag[id].tied.value_or(id)}) {
        const std::int64_t all = dag[owner].parameter_bytes;
        Holder& holder =
            holders[owner].try_emplace(stage % places, Holder{.first_stage = stage}).first->second;
        holder.bytes = std::min(all, holder.bytes + gradient_bytes(dag[id], all, plan.micro_batches));
        if (!dag[id].tied) break;
      }
    }
  }
  std::vector<Exchange> exchanges;
  for (const auto& [owner, by_place] : holders) {
    for (auto one = by_place.begin(); one != by_place.end(); ++one) {
      for (auto other = std::next(one); other != by_place.end(); ++other) {
        const auto send = [&](const Holder& from, const Holder& to) {
          return transfer_of(costs.cluster(), plan.stages[index_of(from.first_stage)].device,
                             plan.stages[index_of(to.first_stage)].device, static_cast<double>(from.bytes));
        };
        exchanges.push_back({.stages = {one->second.first_stage, other->second.first_stage},
                             .there = send(one->second, other->second),
                             .back = send(other->second, one->second)});
      }
    }
  }
  return exchanges;
}

// Both ends of a message that travels compressed go over all elements of its tensor, in the task that makes
// or takes it.
void add_codec(PipelineTimes& times, const Plan& plan, const StageCosts& costs) {
  for (const Message& message : plan.messages) {
    const std::size_t front = index_of(message.from_stage);
    const auto elements = static_cast<double>(sent_elements(costs.dag()[message.output], 1));
    for (const std::size_t stage : {front, front + 1}) {
      const PairDevice& device = costs.cluster().devices[index_of(plan.stages[stage].device)];
      if (device.top_k_elements_per_second <= 0) continue;
      const double seconds = elements / device.top_k_elements_per_second;
      if (message.activation_ratio > 1) times.stages[stage].forward += seconds;
      if (message.gradient_ratio > 1) times.stages[stage].input_gradient += seconds;
    }
  }
}

// Between the places of a plan, those that share a wire.
std::vector<SharedWire> wires_of(const Plan& plan, const PairCluster& cluster) {
  std::map<int, int> place_of;  // by device
  for (int place = 0; place < plan.places(); ++place) place_of[plan.stages[index_of(place)].device] = place;
  std::vector<SharedWire> wires;
  for (const SharedWire& wire : cluster.shared_wires) {
    SharedWire between{.bytes_per_second = wire.bytes_per_second, .links = {}};
    for (const auto& [from, to] : wire.links)
      if (place_of.contains(from) && place_of.contains(to))
        between.links.emplace_back(place_of.at(from), place_of.at(to));
    if (!between.links.empty()) wires.push_back(std::move(between));
  }
  return wires;
}

}  // namespace

int Plan::places() const {
  std::set<int> devices;
  for (const Stage& stage : stages) devices.insert(stage.device);
  return static_cast<int>(devices.size());
}

PipelineShape Plan::shape() const {
  const int on = places();
  return {.schedule = schedule,
          .places = on,
          .stages_of_place = on > 0 ? static_cast<int>(stages.size()) / on : 0,
          .micro_batches = micro_batches,
          .warm_up = warm_up};
}

std::uint64_t Plan::digest(const OperatorDag& dag) const {
  const auto number = [](auto value) { return static_cast<std::uint64_t>(value); };
  Digest digest;
  digest.add(dag.digest()).add(model).add(name_of(schedule)).add(number(micro_batches));
  digest.add(stages.size());
  for (const Stage& stage : stages)
    digest.add(number(stage.device)).add(number(stage.operators.begin)).add(number(stage.operators.end));
  digest.add(warm_up.size());
  for (const int depth : warm_up) digest.add(number(depth));
  digest.add(messages.size());
  for (const Message& message : messages)
    digest.add(number(message.from_stage))
        .add(message.output)
        .add(std::bit_cast<std::uint64_t>(message.activation_ratio))
        .add(std::bit_cast<std::uint64_t>(message.gradient_ratio));
  return digest.value();
}

void check(const Plan& plan, const StageCosts& costs) {
  check_stages(plan, costs);
  check(plan.shape());
  check_messages(plan, costs);
  check_memory(plan, costs);
}

PipelineTimes times_of(const Plan& plan, const StageCosts& costs) {
  PipelineTimes times{.shape = plan.shape(), .stages = {}, .activations = {}, .gradients = {}};
  std::map<std::pair<int, OperatorId>, Message> compressed;
  for (const Message& message : plan.messages) compressed[{message.from_stage, message.output}] = message;
  const OperatorDag& dag = costs.dag();
  const auto transfer = [&](int from, int to, std::int64_t bytes) {
    return transfer_of(costs.cluster(), from, to, static_cast<double>(bytes));
  };
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    times.stages.push_back(costs.seconds(stage.operators, stage.device));
    if (s + 1 == plan.stages.size()) continue;
    std::int64_t there = 0, back = 0;
    for (const OperatorId output : dag.crossing(static_cast<std::size_t>(stage.operators.end))) {
      const auto found = compressed.find({static_cast<int>(s), output});
      const Message message = found == compressed.end() ? Message{} : found->second;
      there += sent_bytes(dag[output], message.activation_ratio);
      if (!is_integer(dag[output].dtype)) back += sent_bytes(dag[output], message.gradient_ratio);
    }
    const int next = plan.stages[s + 1].device;
    times.activations.push_back(transfer(stage.device, next, there));
    times.gradients.push_back(transfer(next, stage.device, back));
  }
  add_codec(times, plan, costs);
  times.exchanges = exchanges_of(plan, costs);
  times.shared_wires = wires_of(plan, costs.cluster());
  return times;
}

double estimated_seconds(const PipelineTimes& times) {
  const PipelineShape& shape = times.shape;
  double first = 0;
  std::vector<double> computing(index_of(shape.places));
  std::map<std::pair<int, int>, double> carrying;
  for (std::size_t s = 0; s < times.stages.size(); ++s) {
    first += times.stages[s].all();
    const int place = shape.place_of(static_cast<int>(s));
    computing[index_of(place)] += times.stages[s].all();
    if (s + 1 == times.stages.size()) continue;
    const int next = shape.place_of(static_cast<int>(s) + 1);
    first += times.activations[s].seconds() + times.gradients[s].seconds();
    carrying[{place, next}] += times.activations[s].busy_seconds;
    carrying[{next, place}] += times.gradients[s].busy_seconds;
  }
  double period = *std::max_element(computing.begin(), computing.end());
  for (const auto& [link, seconds] : carrying) period = std::max(period, seconds);
  // By stage: what gradients of the last micro-batch have still to pass when they leave it.
  std::vector<double> behind(times.stages.size());
  for (std::size_t s = 1; s < behind.size(); ++s)
    behind[s] = behind[s - 1] + times.stages[s - 1].backward() + times.gradients[s - 1].seconds();
  double exchanged = 0;
  for (const Exchange& exchange : times.exchanges)
    exchanged = std::max({exchanged, exchange.there.seconds() - behind[index_of(exchange.stages[0])],
                          exchange.back.seconds() - behind[index_of(exchange.stages[1])]});
  return first + (shape.micro_batches - 1) * period + exchanged;
}

std::vector<double> peak_bytes(const Plan& plan, const StageCosts& costs) {
  std::vector<std::int64_t> held;
  for (const Stage& stage : plan.stages) held.push_back(costs.held_bytes(stage.operators));
  const PipelineShape shape = plan.shape();
  std::vector<double> peaks = most_held_bytes(shape, held);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    peaks[index_of(shape.place_of(static_cast<int>(s)))] +=
        static_cast<double>(costs.resident_bytes(plan.stages[s].operators));
  return peaks;
}

}  // namespace dear::methods::pipeline
