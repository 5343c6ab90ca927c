#include "dear/tools/command/profile_report.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/units.h"
#include "dear/tools/command/train_report.h"
#include "dear/tools/options/numbers.h"
#include "dear/tools/options/table.h"

namespace dear::cli {
namespace {

// The ratio of times of steps that compute the same; a greater one says that something else had the
// processor.
constexpr double kSteady = 1.2;

bool steady(const Spread& spread) { return spread.p90 <= kSteady * spread.p10; }

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

double seconds_of(const Layer& layer) { return layer.forward_seconds + layer.backward_seconds; }

std::int64_t parameters_of(const Layer& layer, const Workload& workload) {
  return std::accumulate(
      layer.tensors.begin(), layer.tensors.end(), std::int64_t{0},
      [&](std::int64_t sum, TensorId tensor) { return sum + workload.tensors[tensor].elements; });
}

std::string times(const train_command::ModelProfile& profile) {
  const Workload& workload = profile.workload;
  const double sum = workload.forward_seconds() + workload.backward_seconds() + workload.update_seconds;
  Table table({"", "median", "p10", "p90", "of the sum"}, {});
  const auto add = [&](const char* name, const Spread& spread) {
    table.add({name, format_seconds(spread.median), format_seconds(spread.p10), format_seconds(spread.p90),
               percent(spread.median, sum)});
  };
  add("forward", profile.forward_seconds);
  add("backward", profile.backward_seconds);
  add("update", profile.update_seconds);
  table.add({"sum: what the file says", format_seconds(sum), "", "", percent(sum, sum)});
  add("whole step, recorded", profile.recorded_step_seconds);
  add("whole step, not recorded", profile.plain_step_seconds);
  return table.to_string();
}

std::string modelled_times(const train_command::ModelProfile& profile) {
  const Workload& workload = profile.workload;
  const double forward = workload.forward_seconds(), backward = workload.backward_seconds();
  const double sum = forward + backward + workload.update_seconds;
  Table table({fmt::format("by the roofline of {}", workload.device), "seconds", "of the sum"}, {});
  table.add({"forward", format_seconds(forward), percent(forward, sum)});
  table.add({"backward", format_seconds(backward), percent(backward, sum)});
  table.add({"update", format_seconds(workload.update_seconds), percent(workload.update_seconds, sum)});
  table.add({"sum: what the file says", format_seconds(sum), percent(sum, sum)});
  return table.to_string();
}

std::string slowest(const Workload& workload, std::size_t count) {
  std::vector<std::size_t> order(workload.layers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return seconds_of(workload.layers[a]) > seconds_of(workload.layers[b]);
  });
  order.resize(std::min(count, order.size()));
  const double both = workload.forward_seconds() + workload.backward_seconds();
  Table table({order.size() < workload.layers.size() ? "slowest layers" : "layers by time", "parameters",
               "forward", "backward", "of both passes"},
              {});
  for (const std::size_t i : order) {
    const Layer& layer = workload.layers[i];
    table.add({layer.name, with_separators(parameters_of(layer, workload)),
               format_seconds(layer.forward_seconds), format_seconds(layer.backward_seconds),
               percent(seconds_of(layer), both)});
  }
  return table.to_string();
}

}  // namespace

std::string to_text(const train_command::ModelProfile& profile, std::size_t layers) {
  const Workload& workload = profile.workload;
  const std::int64_t parameters =
      std::accumulate(workload.tensors.begin(), workload.tensors.end(), std::int64_t{0},
                      [](std::int64_t sum, const Tensor& tensor) { return sum + tensor.elements; });
  std::string text = fmt::format("{} layers, {} tensors, {} parameters ({}), {} of buffers\n",
                                 workload.layers.size(), workload.tensors.size(), with_separators(parameters),
                                 format_bytes(workload.bytes()), format_bytes(workload.buffer_bytes));
  if (profile.frozen_parameters > 0) {
    text += fmt::format("{} parameters are frozen: nothing of them travels, so the file has none of them\n",
                        with_separators(profile.frozen_parameters));
  }
  if (profile.tensors_without_gradient > 0) {
    text += fmt::format(
        "{} of the tensors got no gradient: they travel all the same, as layers that take no time\n",
        profile.tensors_without_gradient);
  }
  std::int64_t activations = 0;
  for (const Layer& layer : workload.layers) activations += layer.activation_bytes;
  text += fmt::format("{} of activations, {:.3g} GFLOP in both passes\n", format_bytes(activations),
                      profile.flops / 1e9);
  if (!workload.device.empty() && device_name(workload.device) != "cpu")
    return text + "\n" + modelled_times(profile) + "\n" + slowest(workload, layers);
  text += "\n" + times(profile);
  if (!steady(profile.recorded_step_seconds) || !steady(profile.plain_step_seconds)) {
    text += "Steps that compute the same took times far apart: measure again when nothing else runs here.\n";
  }
  return text + "\n" + slowest(workload, layers);
}

}  // namespace dear::cli
