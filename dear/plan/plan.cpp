#include "dear/plan/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/plan/fusion_choice.h"
#include "dear/sim/simulate.h"

namespace dear::plan {
namespace {

constexpr std::array kFusions = {"usual", "planned", "1MiB",   "2MiB",   "4MiB",  "8MiB", "16MiB",
                                 "32MiB", "64MiB",   "128MiB", "256MiB", "layer", "all"};
// Differences below it are none: models are not that exact.
constexpr double kSame = 0.01;

std::int64_t memory_of(const Row& row) { return row.evaluation.memory.total(); }

// Whether a grouping has the same buckets as one of them.
bool is_among(const std::vector<std::vector<Bucket>>& tried, const Grouping& grouping) {
  return std::any_of(tried.begin(), tried.end(), [&](const std::vector<Bucket>& other) {
    return std::equal(other.begin(), other.end(), grouping.buckets().begin(), grouping.buckets().end(),
                      [](const Bucket& a, const Bucket& b) { return a.tensors == b.tensors; });
  });
}

class Planner {
 public:
  Planner(const Workload& workload, const Cluster& cluster, const Options& options)
      : workload_(workload),
        cluster_(cluster),
        options_(options),
        times_of_(cluster, options.times),
        times_(cost::times_on(cluster, options.times)) {}

  // ConfigError when no grouping suits it.
  Row best_of(const Policy& policy) const { return best_of(policy, options_.evaluate); }

  // The fastest policy with a compression, of those whose rows are given. ConfigError where none can.
  CompressedRow best_with(const CompressionModel& compression, const std::vector<Row>& dense) const {
    sim::EvaluateOptions evaluate = options_.evaluate;
    evaluate.compression = compression;
    const Row* same = nullptr;
    std::optional<Row> best;
    std::exception_ptr refused;
    for (const Row& row : dense) {
      try {
        Row compressed = best_of(*row.policy, evaluate);
        if (best && compressed.evaluation.iteration.seconds >= best->evaluation.iteration.seconds) continue;
        best = std::move(compressed);
        same = &row;
      } catch (const ConfigError&) {
        if (!refused) refused = std::current_exception();
      }
    }
    if (!best) std::rethrow_exception(refused);
    Crossover crossover = find_crossover({.policy = *same->policy,
                                          .workload = workload_,
                                          .cluster = cluster_,
                                          .times = options_.times,
                                          .options = options_.evaluate,
                                          .compression = compression,
                                          .dense = same->grouping,
                                          .compressed = best->grouping});
    return {.model = compression,
            .row = std::move(*best),
            .dense_seconds = same->evaluation.iteration.seconds,
            .crossover = std::move(crossover)};
  }

  // Of all policies there are, the one that needs the least memory.
  std::optional<Row> least_of_all() const {
    std::optional<Row> least;
    for (const Policy& policy : policies()) {
      try {
        Row row = best_of(policy);
        if (!least || memory_of(row) < memory_of(*least)) least = std::move(row);
      } catch (const ConfigError&) {
        // No grouping suits it.
      }
    }
    return least;
  }

  Sensitivity change(const Row& row, std::string what, const Workload& workload, const Cluster& cluster,
                     double samples) const {
    const double seconds = sim::evaluate(*row.policy, workload, row.grouping, cluster,
                                         cost::times_on(cluster, options_.times), options_.evaluate)
                               .iteration.seconds;
    return {.change = std::move(what),
            .iteration_seconds = seconds,
            .speed_up = samples * row.evaluation.iteration.seconds / seconds};
  }

  std::vector<Sensitivity> sensitivities(const Row& row) const {
    Workload larger = workload_;
    for (Layer& layer : larger.layers) {
      layer.forward_seconds *= 2;
      layer.backward_seconds *= 2;
      layer.activation_bytes *= 2;
    }
    Workload faster = workload_;
    for (Layer& layer : faster.layers) {
      layer.forward_seconds /= 2;
      layer.backward_seconds /= 2;
    }
    faster.update_seconds /= 2;
    return {change(row, "twice the bandwidth", workload_, scaled(cluster_, 1, 0.5), 1),
            change(row, "half the latency", workload_, scaled(cluster_, 0.5, 1), 1),
            change(row, "twice the samples a rank", larger, cluster_, 2),
            change(row, "devices twice as fast", faster, cluster_, 1)};
  }

 private:
  Row best_of(const Policy& policy, const sim::EvaluateOptions& evaluate) const {
    std::vector<std::vector<Bucket>> tried;
    std::optional<Row> best;
    std::exception_ptr refused;
    for (const char* const text : kFusions) {
      std::optional<Grouping> made;
      std::optional<sim::Evaluation> evaluated;
      try {
        made = FusionChoice::parse(text).resolve(policy, workload_, times_);
        if (is_among(tried, *made)) continue;
        evaluated = sim::evaluate(policy, workload_, *made, cluster_, times_, evaluate);
      } catch (const ConfigError&) {
        if (!refused) refused = std::current_exception();
        continue;
      }
      tried.push_back(made->buckets());
      // What fits is better than what is fast. Of what is as good the first: the usual one needs no
      // explanation.
      const bool fits = options_.memory_bytes == 0 || evaluated->memory.total() <= options_.memory_bytes;
      if (best && best->fits && !fits) continue;
      if (best && best->fits == fits &&
          evaluated->iteration.seconds >= best->evaluation.iteration.seconds * (1 - 1e-6))
        continue;
      best = Row{.policy = &policy,
                 .fusion = text,
                 .grouping = std::move(*made),
                 .algorithm = {},
                 .evaluation = std::move(*evaluated),
                 .breakdown = {},
                 .why = {},
                 .fits = fits};
    }
    if (!best) std::rethrow_exception(refused);
    describe(*best, evaluate);
    return std::move(*best);
  }

  void describe(Row& row, const sim::EvaluateOptions& evaluate) const {
    row.breakdown =
        break_down(*row.policy, workload_, row.grouping, cluster_, options_.times, evaluate, row.evaluation);
    std::int64_t largest = 0;
    for (const Bucket& bucket : row.grouping.buckets()) largest = std::max(largest, bucket.bytes);
    row.algorithm = times_of_
                        .choose(row.policy->overlap == Overlap::all_reduce ? Collective::all_reduce
                                                                           : Collective::reduce_scatter,
                                largest)
                        .algorithm;
    const Breakdown& parts = row.breakdown;
    const double seconds = row.evaluation.iteration.seconds;
    if (seconds - parts.compute < kSame * seconds) {
      row.why = "nothing: communication hides under computation";
      return;
    }
    const std::array reasons = {
        std::pair{parts.overlap, "bandwidth: it cannot hide that much under computation"},
        std::pair{parts.fusion, "buckets at the ends, which nothing hides"},
        std::pair{parts.start_up, "start-up of messages"},
        std::pair{parts.interference,
                  "interference: what communication and computation take from each other"}};
    const auto& [most, reason] = *std::max_element(reasons.begin(), reasons.end());
    row.why = fmt::format("{} ({} of {} that wait)", reason, format_seconds(most),
                          format_seconds(seconds - parts.compute));
  }

  const Workload& workload_;
  const Cluster& cluster_;
  const Options& options_;
  const cost::ClusterTimes times_of_;
  const cost::CollectiveTimes times_;
};

// See Answer::best.
std::size_t choose(const std::vector<Row>& rows) {
  const auto first = std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.fits; });
  if (first == rows.end()) {
    const auto least = std::min_element(rows.begin(), rows.end(), [](const Row& one, const Row& other) {
      return memory_of(one) < memory_of(other);
    });
    return static_cast<std::size_t>(least - rows.begin());
  }
  const double enough = first->evaluation.iteration.seconds * (1 + kSame);
  const auto trains = std::find_if(first, rows.end(), [&](const Row& row) {
    return row.policy->trains && row.fits && row.evaluation.iteration.seconds <= enough;
  });
  return static_cast<std::size_t>((trains != rows.end() ? trains : first) - rows.begin());
}

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

// What would make the row fit that needs least.
std::vector<std::string> how_to_fit(const Row& least, const Planner& planner, std::int64_t memory_bytes) {
  const sim::Memory& memory = least.evaluation.memory;
  std::vector<std::string> sentences = {
      fmt::format("Nothing fits into the {} of a rank: {} needs least, {}, {} of it for activations.",
                  format_bytes(memory_bytes), least.policy->name, format_bytes(memory.total()),
                  format_bytes(memory.activations))};
  if (const std::optional<Row> sharded = planner.least_of_all(); sharded && sharded->fits)
    sentences.push_back(fmt::format("It would fit with policy {}, which shards more: {}.",
                                    sharded->policy->name, format_bytes(memory_of(*sharded))));
  const std::int64_t rest = memory.total() - memory.activations;
  if (rest < memory_bytes) {
    sentences.push_back(
        fmt::format("It would fit with activations of {}: fewer samples a rank, shorter ones, or activation "
                    "checkpointing.",
                    format_bytes(memory_bytes - rest)));
  } else {
    sentences.push_back(
        fmt::format("Without activations it needs {}: more ranks to shard over, or a model that is cut as "
                    "well (by tensors or "
                    "layers), would make it fit.",
                    format_bytes(rest)));
  }
  return sentences;
}

std::string sentence_on(const CompressedRow& one) {
  const double seconds = one.row.evaluation.iteration.seconds, limit = one.crossover.bits_per_second;
  std::string sentence =
      fmt::format("Compressed by {}, {} takes {} an iteration, {:.2f} times as fast as without",
                  one.model.compression.text(), one.row.policy->name, format_seconds(seconds),
                  one.dense_seconds / seconds);
  if (std::isinf(limit)) return sentence + ". It pays on links of any bandwidth.";
  if (limit == 0)
    return fmt::format("{}. It pays on links of no bandwidth: {}.", sentence, one.crossover.why);
  return fmt::format("{}. It pays on links below {} (here {}); above, {}.", sentence,
                     sim::format_bandwidth(limit), sim::format_bandwidth(one.crossover.here),
                     one.crossover.why);
}

std::vector<std::string> verdict_on(const Answer& answer, const Planner& planner, std::int64_t memory_bytes) {
  const std::vector<Row>& rows = answer.rows;
  const Row& best = rows[answer.best];
  const double seconds = best.evaluation.iteration.seconds;
  if (!best.fits) return how_to_fit(best, planner, memory_bytes);
  std::vector<std::string> verdict = {
      fmt::format("Use {} with fusion {}: {} an iteration, {} of it computation.", best.policy->name,
                  best.fusion, format_seconds(seconds), percent(best.breakdown.compute / seconds))};
  if (!rows.front().fits) {
    verdict.push_back(
        fmt::format("Those that are faster do not fit into the {} of a rank.", format_bytes(memory_bytes)));
  }
  const auto find = [&](std::string_view name) {
    return std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.policy->name == name; });
  };
  const auto dear = find("dear");
  const auto wfbp = find("wfbp");
  if (dear != rows.end() && wfbp != rows.end()) {
    const double of_dear = dear->evaluation.iteration.seconds;
    const double of_wfbp = wfbp->evaluation.iteration.seconds;
    if (of_dear < of_wfbp * (1 - kSame)) {
      verdict.push_back(
          fmt::format("DeAR gains {} over wait-free backpropagation here.", percent(of_wfbp / of_dear - 1)));
    } else if (of_dear > of_wfbp * (1 + kSame)) {
      verdict.push_back(
          fmt::format("DeAR is not the answer here: it is {} slower than wait-free backpropagation{}.",
                      percent(of_dear / of_wfbp - 1),
                      dear->evaluation.r_seconds / 2 > dear->evaluation.f_seconds
                          ? ", because the forward pass is too short for half of the communication"
                          : ""));
    } else {
      verdict.push_back(fmt::format("DeAR is not needed here: wait-free backpropagation is as fast{}.",
                                    wfbp->evaluation.r_seconds <= wfbp->evaluation.b_seconds
                                        ? ", because the backward pass is long enough for all communication"
                                        : ""));
    }
  }
  if (seconds < answer.floor_seconds * (1 + kSame))
    verdict.emplace_back("No schedule can be faster: this is max(f + b, r).");
  for (const CompressedRow& one : answer.compressed) verdict.push_back(sentence_on(one));
  return verdict;
}

}  // namespace

Answer plan(const Workload& workload, const Cluster& cluster, const Options& options) {
  std::vector<const Policy*> chosen = options.policies;
  if (chosen.empty())
    for (const Policy& policy : policies()) chosen.push_back(&policy);
  const Planner planner(workload, cluster, options);
  Answer answer;
  for (const Policy* policy : chosen) answer.rows.push_back(planner.best_of(*policy));
  std::stable_sort(answer.rows.begin(), answer.rows.end(), [](const Row& one, const Row& other) {
    return one.evaluation.iteration.seconds < other.evaluation.iteration.seconds;
  });
  answer.best = choose(answer.rows);
  const Row& best = answer.rows[answer.best];
  answer.floor_seconds =
      stale_gradient_floor(best.evaluation.f_seconds, best.evaluation.b_seconds, best.evaluation.r_seconds);
  answer.sensitivities = planner.sensitivities(best);
  for (const CompressionModel& compression : options.compressions)
    answer.compressed.push_back(planner.best_with(compression, answer.rows));
  answer.verdict = verdict_on(answer, planner, options.memory_bytes);
  return answer;
}

}  // namespace dear::plan
