#include "dear/tools/command/train_report.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/systems/train_command/train_settings.h"
#include "dear/tools/options/numbers.h"
#include "dear/tools/options/table.h"

namespace dear::cli {
namespace {

double exposed_percent(const train_command::TrainResult& run) {
  const double iteration = run.times.iteration_seconds.median;
  return iteration > 0 ? 100 * run.times.exposed_communication_seconds / iteration : 0;
}

std::string milliseconds(double seconds) { return fmt::format("{:.2f} ms", seconds * 1e3); }

std::string megabytes(double bytes) { return fmt::format("{:.3f} MB", bytes / 1e6); }

// The mean of the last tenth of the losses.
double last_loss(const train_command::TrainResult& run) {
  const auto count = std::max<std::ptrdiff_t>(1, std::ssize(run.losses) / 10);
  return without_sign_of_nan(std::accumulate(run.losses.end() - count, run.losses.end(), 0.0) /
                             static_cast<double>(count));
}

std::string sent_line(const train_command::SentGradients& sent) {
  if (sent.compression == train_command::kDense) return "";
  return fmt::format(
      "gradients: {}, {} sent in a step, of {} dense ({:.1f} times less){}{}\n", sent.compression,
      megabytes(sent.bytes), megabytes(sent.dense_bytes), sent.bytes > 0 ? sent.dense_bytes / sent.bytes : 0,
      sent.residual_norm > 0 ? fmt::format(", norm of the residual {:.3g}", sent.residual_norm) : "",
      sent.dense_exchanges > 0 ? fmt::format(", {} dense exchanges", sent.dense_exchanges) : "");
}

std::string turns_line(const std::vector<train_command::TrainResult>& runs,
                       const train_command::Comparison& comparison) {
  return fmt::format(
      "policies took turns, {} each; {}speed-up over {} in one round of turns: median and quartiles of {} "
      "round{}\n",
      comparison.rounds, comparison.counted_rounds < comparison.rounds ? "the first does not count; " : "",
      runs.front().policy, comparison.counted_rounds, comparison.counted_rounds == 1 ? "" : "s");
}

std::string buckets_line(const train_command::TuningReport& tuning) {
  if (tuning.trials.empty()) return "buckets: not tuned, the run was too short\n";
  std::set<std::size_t> tried;
  for (const tune::Observation& trial : tuning.trials) tried.insert(trial.candidate);
  const std::size_t count = tuning.sizes.groupings[tuning.choice].size();
  return fmt::format("buckets: {} ({} bucket{}), of {} kinds tried{}{}\n",
                     tuning.sizes.candidates[tuning.choice].name, count, count == 1 ? "" : "s", tried.size(),
                     tuning.settled ? "" : "; tuning had not converged",
                     tuning.remark.empty() ? "" : "; what was learned is not kept: " + tuning.remark);
}

}  // namespace

std::string wrong_losses(const train_command::TrainResult& run) {
  const auto bad =
      std::find_if(run.losses.begin(), run.losses.end(), [](double loss) { return !std::isfinite(loss); });
  if (bad == run.losses.end()) return "";
  return fmt::format("the loss of policy {} is {} from step {} on: give a smaller --lr", run.policy,
                     std::isnan(*bad) ? "no number" : "infinite", bad - run.losses.begin() + 1);
}

std::string to_text(const train_command::TrainResult& run) {
  const train_command::IterationTimes& times = run.times;
  return fmt::format(
      "{}: loss {:.3f} at first, {:.3f} at last, in {} steps\n"
      "iteration: {} (p10 {}, p90 {}), {} characters/s, exposed communication {} ({:.1f} %)\n"
      "{}"
      "parameters: SHA-256 {}\n",
      run.policy, without_sign_of_nan(run.losses.front()), without_sign_of_nan(run.losses.back()), run.steps,
      format_seconds(times.iteration_seconds.median), format_seconds(times.iteration_seconds.p10),
      format_seconds(times.iteration_seconds.p90), with_separators(std::llround(run.characters_per_second)),
      format_seconds(times.exposed_communication_seconds), exposed_percent(run),
      (run.tuning ? buckets_line(*run.tuning) : "") + sent_line(run.sent), run.digest);
}

std::string to_text(const std::vector<train_command::TrainResult>& runs,
                    const train_command::Comparison& comparison) {
  Table table({"policy", "iteration", "computation", "exposed communication", "characters/s", "speed-up",
               "quartiles", "same parameters"},
              {.left_columns = 1});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const train_command::TrainResult& run = runs[i];
    const Quartiles& ratio = comparison.speed_ups[i].ratio;
    table.add({run.chosen_policy.empty() ? run.policy : fmt::format("{} ({})", run.policy, run.chosen_policy),
               milliseconds(run.times.iteration_seconds.median), milliseconds(run.times.compute_seconds),
               fmt::format("{} ({:.1f} %)", milliseconds(run.times.exposed_communication_seconds),
                           exposed_percent(run)),
               with_separators(std::llround(run.characters_per_second)),
               fmt::format("{:.2f}{}", ratio.median, comparison.quiet ? "" : " ?"),
               fmt::format("{:.2f} to {:.2f}", ratio.first, ratio.third),
               runs.front().digest == run.digest ? "yes" : "no"});
  }
  return table.to_string() + turns_line(runs, comparison) +
         (comparison.quiet ? "" : comparison.remark + "\n");
}

std::string table_of_compressions(const std::vector<train_command::TrainResult>& runs,
                                  const train_command::Comparison& comparison) {
  Table table({"gradients", "loss at last", "sent in a step", "times less", "residual", "iteration",
               "computation", "exposed communication", "speed-up"},
              {.left_columns = 1});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const train_command::TrainResult& run = runs[i];
    table.add({run.sent.compression, fmt::format("{:.4f}", last_loss(run)), megabytes(run.sent.bytes),
               run.sent.bytes > 0 ? fmt::format("{:.1f}", run.sent.dense_bytes / run.sent.bytes) : "-",
               run.sent.residual_norm > 0 ? fmt::format("{:.3g}", run.sent.residual_norm) : "-",
               milliseconds(run.times.iteration_seconds.median), milliseconds(run.times.compute_seconds),
               milliseconds(run.times.exposed_communication_seconds),
               fmt::format("{:.2f}{}", comparison.speed_ups[i].ratio.median, comparison.quiet ? "" : " ?")});
  }
  return table.to_string() + turns_line(runs, comparison);
}

void say(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) throw Error(with_errno("cannot write to standard output", errno));
}

std::string network_line(const std::string& modelled_network, const std::string& real_network) {
  if (modelled_network.empty()) {
    return fmt::format("network: real, {}\n", real_network);
  }
  return fmt::format("network: modelled, {}; there was no such network, collectives slept for its times\n",
                     modelled_network);
}

}  // namespace dear::cli
