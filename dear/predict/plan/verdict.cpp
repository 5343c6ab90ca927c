#include "dear/predict/plan/verdict.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/units.h"
#include "dear/predict/sim/simulate.h"

namespace dear::plan {
namespace {

constexpr const char* kOnlySimulated = "can only be simulated here";

std::string percent(double part) {
  return std::abs(part) < 0.0095 ? fmt::format("{:.1f} %", 100 * part) : fmt::format("{:.0f} %", 100 * part);
}

bool is_faster(const Row& one, const Row& other) { return one.seconds() < other.seconds() * (1 - kSame); }

// ": 8 % by its schedule, 3 % by sharding the update".
std::string causes_of(const Gain& gain, double seconds) {
  const auto counts = [&](const Gain::Part& part) { return std::abs(part.seconds) > kSame * seconds; };
  const std::vector<Gain::Part> parts = gain.parts();
  if (std::count_if(parts.begin(), parts.end(), counts) <= 1)
    return fmt::format(", by {}", name_of(parts.front().cause));
  std::vector<std::string> causes;
  for (const Gain::Part& part : parts)
    if (counts(part))
      causes.push_back(fmt::format("{} by {}", percent(part.seconds / seconds), name_of(part.cause)));
  return fmt::format(": {}", fmt::join(causes, ", "));
}

// Says what would make a row fit.
std::vector<std::string> how_to_fit(const Row& least, const Circumstances& circumstances) {
  const std::int64_t memory_bytes = circumstances.memory_bytes;
  const std::int64_t activations = least.evaluation.memory.activations;
  std::vector<std::string> sentences;
  const std::optional<Row>& sharded = circumstances.least_of_all;
  if (sharded && sharded->fits && !least.fits && sharded->policy->name != least.policy->name)
    sentences.push_back(fmt::format(
        "It would fit with policy {}, which shards more{}: {}.", sharded->policy->name,
        sharded->runs() ? "" : " and can only be simulated here", format_bytes(sharded->memory())));
  if (const std::optional<Row>& checkpointed = circumstances.checkpointed;
      checkpointed && checkpointed->fits) {
    sentences.push_back(
        fmt::format("It would fit with activation checkpointing: {} with {} an iteration under {}.",
                    format_bytes(checkpointed->memory()), format_seconds(checkpointed->seconds()),
                    checkpointed->policy->name));
    return sentences;
  }
  const std::int64_t rest = least.memory() - activations;
  if (rest < memory_bytes) {
    sentences.push_back(fmt::format(
        "It would fit with activations of {}: fewer samples a rank (and gradients accumulated over more "
        "passes), or shorter ones.",
        format_bytes(memory_bytes - rest)));
  } else {
    sentences.push_back(fmt::format(
        "Without activations it needs {}: more ranks to shard over, or a model that is cut as well (by "
        "tensors or layers), would make it fit.",
        format_bytes(rest)));
  }
  return sentences;
}

std::string nothing_fits(const Row& least, std::int64_t memory_bytes, const char* what) {
  return fmt::format("{} fits into the {} of a rank: {} needs least, {}, {} of it for activations.", what,
                     format_bytes(memory_bytes), least.policy->name, format_bytes(least.memory()),
                     format_bytes(least.evaluation.memory.activations));
}

std::string what_to_use(const Row& best, bool all_fit) {
  const std::string figures =
      fmt::format("{} an iteration, {} of it computation", format_seconds(best.seconds()),
                  percent(best.breakdown.compute / best.seconds()));
  if (best.runs()) return fmt::format("Use {} with fusion {}: {}.", best.policy->name, best.fusion, figures);
  return fmt::format("The fastest{} is {} with fusion {}, which {}: {}.", all_fit ? "" : " that fits",
                     best.policy->name, best.fusion, kOnlySimulated, figures);
}

// Those that are faster than the row to use, and why they are passed over.
void add_passed_over(const Answer& answer, std::int64_t memory_bytes, std::vector<std::string>& verdict) {
  const Row& best = answer.rows[answer.best];
  std::vector<std::string_view> too_large, simulated;
  double largest = 0;
  for (const Row& row : answer.rows) {
    if (!is_faster(row, best)) continue;
    (row.fits ? simulated : too_large).push_back(row.policy->name);
    if (row.fits) largest = std::max(largest, best.seconds() / row.seconds() - 1);
  }
  if (!too_large.empty())
    verdict.push_back(fmt::format("Faster, but too large to fit into the {} of a rank: {}.",
                                  format_bytes(memory_bytes), fmt::join(too_large, ", ")));
  if (!simulated.empty())
    verdict.push_back(fmt::format("Faster by up to {}, but {}: {}.", percent(largest), kOnlySimulated,
                                  fmt::join(simulated, ", ")));
}

// Says what the row to use gains over wfbp.
void add_gain(const Answer& answer, std::vector<std::string>& verdict) {
  if (!answer.gain) return;
  const Row& best = answer.rows[answer.best];
  const Row& wfbp = *find_row(answer, "wfbp");
  if (is_faster(best, wfbp)) {
    verdict.push_back(fmt::format("{} gains {} over wait-free backpropagation (wfbp) here{}.",
                                  best.policy->name, percent(answer.gain->seconds / best.seconds()),
                                  causes_of(*answer.gain, best.seconds())));
    return;
  }
  const bool hides = wfbp.evaluation.r_seconds <= wfbp.evaluation.b_seconds;
  std::string sentence =
      fmt::format("Wait-free backpropagation (wfbp) is as fast here{}",
                  hides ? ", because the backward pass is long enough for all communication" : "");
  if (best.memory() < wfbp.memory())
    sentence += fmt::format("; {} needs {} less memory", best.policy->name,
                            format_bytes(wfbp.memory() - best.memory()));
  verdict.push_back(sentence + ".");
}

std::string why_dear_is_slower(const Row& dear, const Row& wfbp, const std::optional<Gain>& gain) {
  if (!gain || gain->seconds >= 0) return "";
  const std::vector<Gain::Part> parts = gain->parts();
  const auto loss =
      std::min_element(parts.begin(), parts.end(),
                       [](const Gain::Part& a, const Gain::Part& b) { return a.seconds < b.seconds; });
  if (loss->cause == Gain::Cause::collectives)
    return fmt::format(
        ", because its reduce-scatter and all-gather (by {}) take longer than an all-reduce (by {})",
        dear.algorithm, wfbp.algorithm);
  if (dear.evaluation.r_seconds / 2 > dear.evaluation.f_seconds)
    return ", because the forward pass is too short for half of the communication";
  return fmt::format(", because of {}", name_of(loss->cause));
}

// Says what DDP loses to its buffers, which no other policy sends.
void add_buffers(const Answer& answer, const Circumstances& circumstances,
                 std::vector<std::string>& verdict) {
  const Row* const ddp = find_row(answer, "ddp");
  if (ddp == nullptr || circumstances.buffers_seconds <= kSame * ddp->seconds()) return;
  const std::string how_many = circumstances.buffers > 0 ? fmt::format("{} ", circumstances.buffers) : "";
  verdict.push_back(
      fmt::format("ddp waits {} of its {} for the {}buffers that it broadcasts before each forward pass; "
                  "broadcast_buffers=False saves them.",
                  format_seconds(circumstances.buffers_seconds), format_seconds(ddp->seconds()), how_many));
}

// Speaks of DeAR's policies, where the row to use is none of them.
void add_dear(const Answer& answer, const Circumstances& circumstances, std::vector<std::string>& verdict) {
  const Row& best = answer.rows[answer.best];
  const Row* const dear = fastest_of_dear(answer);
  if (dear == nullptr || is_of_dear(*best.policy)) return;
  if (!dear->fits) {
    if (circumstances.least_that_runs) return;  // nothing fits that runs here, as is said already
    verdict.push_back(fmt::format("DeAR does not fit here: {} needs {}.", dear->policy->name,
                                  format_bytes(dear->memory())));
  } else if (is_faster(best, *dear)) {
    const Row* const wfbp = find_row(answer, "wfbp");  // which is as fast as what is simpler
    const bool is_why = wfbp != nullptr && !is_faster(best, *wfbp);
    verdict.push_back(fmt::format("DeAR is not the answer here: {} takes {} longer than {}{}.",
                                  dear->policy->name, percent(dear->seconds() / best.seconds() - 1),
                                  best.policy->name,
                                  is_why ? why_dear_is_slower(*dear, *wfbp, circumstances.dear_gain) : ""));
  } else if (!is_faster(*dear, best)) {
    verdict.push_back(
        fmt::format("DeAR is not needed here: {} is as fast as {}.", best.policy->name, dear->policy->name));
  }
}

std::string sentence_on(const CompressedRow& one) {
  const double seconds = one.row.seconds(), limit = one.crossover.bits_per_second;
  std::string sentence =
      fmt::format("Compressed by {}, {} takes {} an iteration, {:.2f} times as fast as without{}",
                  one.model.compression.text(), one.row.policy->name, format_seconds(seconds),
                  one.dense_seconds / seconds,
                  !one.row.fits     ? ", but does not fit into the memory of a rank"
                  : !one.row.runs() ? ", but can only be simulated here"
                                    : "");
  if (std::isinf(limit)) return sentence + ". It pays on links of any bandwidth.";
  if (limit == 0)
    return fmt::format("{}. It pays on links of no bandwidth: {}.", sentence, one.crossover.why);
  return fmt::format("{}. It pays on links below {} (here {}); above, {}.", sentence,
                     sim::format_bandwidth(limit), sim::format_bandwidth(one.crossover.here),
                     one.crossover.why);
}

}  // namespace

bool is_of_dear(const Policy& policy) { return policy.name.starts_with("dear"); }

const Row* find_row(const Answer& answer, std::string_view policy) {
  const auto found = std::find_if(answer.rows.begin(), answer.rows.end(),
                                  [&](const Row& row) { return row.policy->name == policy; });
  return found != answer.rows.end() ? &*found : nullptr;
}

const Row* fastest_of_dear(const Answer& answer) {
  const Row* fastest = nullptr;
  for (const Row& row : answer.rows)
    if (is_of_dear(*row.policy) && (fastest == nullptr || (row.fits && !fastest->fits))) fastest = &row;
  return fastest;
}

std::vector<std::string> verdict_on(const Answer& answer, const Circumstances& circumstances) {
  const Row& best = answer.rows[answer.best];
  const std::int64_t memory_bytes = circumstances.memory_bytes;
  std::vector<std::string> verdict;
  const auto add_how_to_fit = [&](const Row& least) {
    for (std::string& sentence : how_to_fit(least, circumstances)) verdict.push_back(std::move(sentence));
  };
  if (!best.fits) {
    verdict.push_back(nothing_fits(best, memory_bytes, "Nothing"));
    add_how_to_fit(best);
    return verdict;
  }
  verdict.push_back(what_to_use(
      best, std::all_of(answer.rows.begin(), answer.rows.end(), [](const Row& row) { return row.fits; })));
  if (!best.runs() && circumstances.least_that_runs) {
    verdict.push_back(
        nothing_fits(*circumstances.least_that_runs, memory_bytes, "Nothing that `dear train` runs"));
    add_how_to_fit(*circumstances.least_that_runs);
  }
  add_passed_over(answer, memory_bytes, verdict);
  add_gain(answer, verdict);
  add_dear(answer, circumstances, verdict);
  add_buffers(answer, circumstances, verdict);
  if (const Row* const dear = find_row(answer, "dear"); best.policy->name == "dear-eager" && dear != nullptr)
    verdict.push_back(
        fmt::format("dear-eager updates ahead of step(), which not every program bears "
                    "(docs/policies.md); dear takes {}{}.",
                    format_seconds(dear->seconds()), dear->fits ? "" : ", and does not fit"));
  if (best.seconds() < answer.floor_seconds * (1 + kSame) && !is_faster(answer.rows.front(), best))
    verdict.emplace_back("No schedule of these collectives can be faster: this is max(f + b, r).");
  for (const CompressedRow& one : answer.compressed) verdict.push_back(sentence_on(one));
  return verdict;
}

}  // namespace dear::plan
