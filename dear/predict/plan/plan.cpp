#include "dear/predict/plan/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/predict/plan/verdict.h"
#include "dear/schedule/policies/collective.h"
#include "dear/schedule/policies/fusion_choice.h"
#include "dear/workload/layers/checkpointing.h"

namespace dear::plan {
namespace {

constexpr std::array kFusions = {"usual", "planned", "1MiB",   "2MiB",   "4MiB",  "8MiB", "16MiB",
                                 "32MiB", "64MiB",   "128MiB", "256MiB", "layer", "all"};
// Longer schedules are not searched: of these, all groupings together take a minute.
constexpr double kMostSteps = 60'000;
constexpr int kMostTooLong = 2;  // groupings, after which a policy is given up

// Whether one is rather to be used: what fits before what does not, and what runs before what is only
// simulated.
bool comes_before(const Row& one, const Row& other) {
  return one.fits != other.fits ? one.fits : one.runs() && !other.runs();
}

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
        times_(cost::times_on(cluster, options.times)),
        evaluate_(options.evaluate) {
    evaluate_.most_steps = std::min(evaluate_.most_steps, kMostSteps);
  }

  // Takes the seconds of a broadcast of all buffers; 0 without any.
  double buffers_seconds() const {
    return workload_.buffer_bytes > 0 ? seconds_of_buffers(workload_, times_) : 0;
  }

  // ConfigError when no grouping suits it.
  Row best_of(const Policy& policy) const { return best_of(policy, workload_, evaluate_); }

  // The fastest policy with a compression, of those whose rows are given. ConfigError where none can.
  CompressedRow best_with(const CompressionModel& compression, const std::vector<Row>& dense) const {
    sim::EvaluateOptions evaluate = evaluate_;
    evaluate.compression = compression;
    const Row* same = nullptr;
    std::optional<Row> best;
    std::exception_ptr refused;
    for (const Row& row : dense) {
      try {
        Row compressed = best_of(*row.policy, workload_, evaluate);
        if (best && (comes_before(*best, compressed) ||
                     (!comes_before(compressed, *best) && compressed.seconds() >= best->seconds())))
          continue;
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
                                          .options = evaluate_,
                                          .compression = compression,
                                          .dense = same->grouping,
                                          .compressed = best->grouping});
    return {.model = compression,
            .row = std::move(*best),
            .dense_seconds = same->seconds(),
            .crossover = std::move(crossover)};
  }

  // Finds, of all policies there are, the one that needs the least memory.
  std::optional<Row> least_of_all() const {
    std::optional<Row> least;
    for (const Policy& policy : policies()) {
      try {
        Row row = best_of(policy);
        if (!least || row.memory() < least->memory()) least = std::move(row);
      } catch (const ConfigError&) {
        // No grouping suits it.
      }
    }
    return least;
  }

  // The row's policy with activation checkpointing, where that needs less.
  std::optional<Row> checkpointed(const Row& row) const {
    if (options_.checkpointed) return std::nullopt;
    Row with = best_of(*row.policy, with_activation_checkpointing(workload_), evaluate_);
    if (with.memory() >= row.memory()) return std::nullopt;
    return with;
  }

  std::optional<Gain> gain_over(const Row* one, const Row* other) const {
    if (one == nullptr || other == nullptr || one == other || !one->fits || !other->fits) return std::nullopt;
    return plan::gain_over({*one->policy, one->grouping}, {*other->policy, other->grouping}, workload_,
                           cluster_, options_.times, evaluate_);
  }

  std::vector<Sensitivity> sensitivities(const Row& row) const {
    if (!row.fits) return {};
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
    std::vector<Sensitivity> all{change(row, "twice the bandwidth", workload_, scaled(cluster_, 1, 0.5), 1),
                                 change(row, "half the latency", workload_, scaled(cluster_, 0.5, 1), 1),
                                 change(row, "twice the samples a rank", larger, cluster_, 2),
                                 change(row, "devices twice as fast", faster, cluster_, 1)};
    if (!cluster_.stragglers.empty()) all.push_back(balanced(row));
    return all;
  }

 private:
  // Ranks that take samples in proportion to their speeds compute equally long: the passes of all take what
  // equal shares would take at the mean speed. Updates go on as slowly as the slowest rank makes them, and
  // the quickest rank has the most activations.
  Sensitivity balanced(const Row& row) const {
    double speeds = cluster_.ranks(), slowest = 1, quickest = 1;
    if (std::ssize(cluster_.stragglers) == cluster_.ranks()) quickest = 0;
    for (const Straggler& one : cluster_.stragglers) {
      speeds += 1 / one.slowdown - 1;
      slowest = std::max(slowest, one.slowdown);
      quickest = std::max(quickest, 1 / one.slowdown);
    }
    const double longer = cluster_.ranks() / speeds;
    Workload shared = workload_;
    for (Layer& layer : shared.layers) {
      layer.forward_seconds *= longer;
      layer.backward_seconds *= longer;
      layer.activation_bytes = std::llround(static_cast<double>(layer.activation_bytes) * quickest * longer);
    }
    shared.update_seconds *= slowest;
    Cluster even = cluster_;
    even.stragglers.clear();
    return change(row, "batches shared by speed", shared, even, 1);
  }

  // Planned borders are sought once for all policies that overlap alike: it takes seconds for a large model.
  Grouping grouping_of(std::string_view text, const Policy& policy, const Workload& workload) const {
    const FusionChoice choice = FusionChoice::of_simulation(text);
    if (text != "planned" || &workload != &workload_) return choice.resolve(policy, workload, times_);
    const auto found = planned_.find(policy.overlap);
    if (found != planned_.end()) return found->second;
    return planned_.emplace(policy.overlap, choice.resolve(policy, workload, times_)).first->second;
  }

  [[nodiscard]] bool fits(const sim::Evaluation& evaluation) const {
    return options_.memory_bytes == 0 || evaluation.memory.total() <= options_.memory_bytes;
  }

  Sensitivity change(const Row& row, std::string what, const Workload& workload, const Cluster& cluster,
                     double samples) const {
    const sim::Evaluation evaluation = sim::evaluate(*row.policy, workload, row.grouping, cluster,
                                                     cost::times_on(cluster, options_.times), evaluate_);
    return {.change = std::move(what),
            .iteration_seconds = evaluation.iteration.seconds,
            .speed_up = samples * row.seconds() / evaluation.iteration.seconds,
            .fits = fits(evaluation),
            .memory_bytes = evaluation.memory.total()};
  }

  Row best_of(const Policy& policy, const Workload& workload, const sim::EvaluateOptions& evaluate) const {
    int too_long = 0;
    std::vector<std::vector<Bucket>> tried;
    std::optional<Row> best;
    std::exception_ptr refused;
    for (const char* const text : kFusions) {
      std::optional<Grouping> made;
      std::optional<sim::Evaluation> evaluated;
      try {
        made = grouping_of(text, policy, workload);
        if (is_among(tried, *made)) continue;
        evaluated = sim::evaluate(policy, workload, *made, cluster_, times_, evaluate);
      } catch (const sim::TooManySteps&) {
        if (!refused) refused = std::current_exception();
        if (++too_long == kMostTooLong) break;
        continue;
      } catch (const ConfigError&) {
        if (!refused) refused = std::current_exception();
        continue;
      }
      tried.push_back(made->buckets());
      // What fits is better than what is fast; where nothing fits, what needs least is nearest to it. Of what
      // is as good the first: the usual one needs no explanation.
      const bool into_memory = fits(*evaluated);
      if (best && best->fits && !into_memory) continue;
      if (best && best->fits == into_memory &&
          (into_memory || evaluated->memory.total() == best->memory()
               ? evaluated->iteration.seconds >= best->seconds() * (1 - 1e-6)
               : evaluated->memory.total() > best->memory()))
        continue;
      best = Row{.policy = &policy,
                 .fusion = text,
                 .grouping = std::move(*made),
                 .algorithm = {},
                 .evaluation = std::move(*evaluated),
                 .breakdown = {},
                 .why = {},
                 .fits = into_memory};
    }
    if (!best) std::rethrow_exception(refused);
    describe(*best, workload, evaluate);
    return std::move(*best);
  }

  void describe(Row& row, const Workload& workload, const sim::EvaluateOptions& evaluate) const {
    row.breakdown =
        break_down(*row.policy, workload, row.grouping, cluster_, options_.times, evaluate, row.evaluation);
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
    const bool buffers = row.policy->name == "ddp" && 2 * buffers_seconds() > parts.start_up;
    const std::array reasons = {
        std::pair{parts.overlap, "bandwidth: it cannot hide that much under computation"},
        std::pair{parts.fusion, "buckets at the ends, which nothing hides"},
        std::pair{parts.start_up,
                  buffers ? "buffers, which it broadcasts before each forward pass" : "start-up of messages"},
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
  sim::EvaluateOptions evaluate_;
  mutable std::map<Overlap, Grouping> planned_;
};

// Where its policy stands in the table, which goes from simple ones to those that do more.
std::ptrdiff_t complexity_of(const Row& row) {
  const std::vector<Policy>& all = policies();
  return std::find_if(all.begin(), all.end(),
                      [&](const Policy& one) { return one.name == row.policy->name; }) -
         all.begin();
}

const Row* least_of(const std::vector<const Row*>& rows) {
  const auto least = std::min_element(rows.begin(), rows.end(), [](const Row* one, const Row* other) {
    return one->memory() < other->memory();
  });
  return least != rows.end() ? *least : nullptr;
}

template <typename Keep>
std::vector<const Row*> those(const std::vector<const Row*>& rows, Keep keep) {
  std::vector<const Row*> kept;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept),
               [&](const Row* row) { return keep(*row); });
  return kept;
}

// See Answer::best. `rows` go from the fastest.
std::size_t choose(const std::vector<Row>& rows) {
  std::vector<const Row*> left;
  left.reserve(rows.size());
  for (const Row& row : rows) left.push_back(&row);
  const std::vector<const Row*> fit = those(left, [](const Row& row) { return row.fits; });
  if (fit.empty()) return static_cast<std::size_t>(least_of(left) - rows.data());
  left = those(fit, [](const Row& row) { return row.runs(); });
  if (left.empty()) left = fit;
  const double enough = left.front()->seconds() * (1 + kSame);
  left = those(left, [&](const Row& row) { return row.seconds() <= enough; });
  const double little = static_cast<double>(least_of(left)->memory()) * (1 + kSame);
  left = those(left, [&](const Row& row) { return static_cast<double>(row.memory()) <= little; });
  const Row* const simplest = *std::min_element(
      left.begin(), left.end(),
      [](const Row* one, const Row* other) { return complexity_of(*one) < complexity_of(*other); });
  return static_cast<std::size_t>(simplest - rows.data());
}

Circumstances circumstances_of(const Answer& answer, const Planner& planner, const Workload& workload,
                               std::int64_t memory_bytes) {
  Circumstances circumstances{
      .memory_bytes = memory_bytes,
      .buffers = workload.buffers,
      .buffers_seconds = planner.buffers_seconds(),
      .dear_gain = planner.gain_over(fastest_of_dear(answer), find_row(answer, "wfbp")),
      .least_that_runs = {},
      .least_of_all = {},
      .checkpointed = {}};
  const Row& best = answer.rows[answer.best];
  const Row* least = &best;
  if (best.fits) {
    std::vector<const Row*> running;
    for (const Row& row : answer.rows)
      if (row.runs()) running.push_back(&row);
    if (best.runs() || running.empty()) return circumstances;
    least = least_of(running);
    circumstances.least_that_runs = *least;
  } else if (answer.rows.size() + answer.left_out.size() < policies().size()) {
    circumstances.least_of_all = planner.least_of_all();  // others are there than those chosen from
  }
  circumstances.checkpointed = planner.checkpointed(*least);
  return circumstances;
}

}  // namespace

Answer plan(const Workload& workload, const Cluster& cluster, const Options& options) {
  std::vector<const Policy*> chosen = options.policies;
  if (chosen.empty())
    for (const Policy& policy : policies()) chosen.push_back(&policy);
  const Planner planner(workload, cluster, options);
  std::size_t done = 0;
  const auto begin = [&](std::string_view what) {
    if (options.progress) options.progress(done++, chosen.size() + options.compressions.size(), what);
  };
  Answer answer;
  std::exception_ptr refused;
  for (const Policy* policy : chosen) {
    begin(policy->name);
    try {
      answer.rows.push_back(planner.best_of(*policy));
    } catch (const ConfigError& error) {
      if (!refused) refused = std::current_exception();
      answer.left_out.push_back({policy, error.what()});
    }
  }
  if (answer.rows.empty()) std::rethrow_exception(refused);
  std::stable_sort(answer.rows.begin(), answer.rows.end(),
                   [](const Row& one, const Row& other) { return one.seconds() < other.seconds(); });
  answer.best = choose(answer.rows);
  const Row& best = answer.rows[answer.best];
  const sim::Evaluation& evaluation = best.evaluation;
  answer.floor_seconds =
      stale_gradient_floor(options.evaluate.micro_batches * evaluation.f_seconds,
                           options.evaluate.micro_batches * evaluation.b_seconds, evaluation.r_seconds);
  answer.gain = planner.gain_over(&best, find_row(answer, "wfbp"));
  answer.sensitivities = planner.sensitivities(best);
  for (const CompressionModel& compression : options.compressions) {
    begin(compression.compression.text());
    answer.compressed.push_back(planner.best_with(compression, answer.rows));
  }
  answer.verdict = verdict_on(answer, circumstances_of(answer, planner, workload, options.memory_bytes));
  return answer;
}

}  // namespace dear::plan
