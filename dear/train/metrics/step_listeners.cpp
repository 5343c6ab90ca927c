#include "dear/train/metrics/step_listeners.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"

namespace dear::metrics {
namespace {

struct Number {
  const char* name;
  double (*of)(const StepMetrics&);
};
constexpr std::array<Number, 7> kReduced{{
    {"seconds", [](const StepMetrics& m) { return m.seconds; }},
    {"exposed_seconds", [](const StepMetrics& m) { return m.exposed_seconds; }},
    {"communication_seconds", [](const StepMetrics& m) { return m.communication_seconds; }},
    {"overlap", [](const StepMetrics& m) { return m.overlap; }},
    {"bytes", [](const StepMetrics& m) { return m.bytes; }},
    {"bandwidth", [](const StepMetrics& m) { return m.bandwidth; }},
    {"resident_bytes", [](const StepMetrics& m) { return static_cast<double>(m.resident_bytes); }},
}};
constexpr std::int64_t kBlock = os::whole_cache_lines(kReduced.size() * sizeof(double));

}  // namespace

std::int64_t resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long all = 0;
  long long resident = 0;
  const int read = std::fscanf(file, "%lld %lld", &all, &resident);
  std::fclose(file);
  return read == 2 ? resident * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

RemovableHandle StepListeners::add(StepCallback callback, const StepReports& reports) {
  if (!callback)
    throw ConfigError(
        fmt::format("rank {}: a callback for metrics is empty: give a function", group_.rank()));
  if (reports.every < 1)
    throw ConfigError(fmt::format("rank {}: a report every {} steps cannot be: give a number of at least 1",
                                  group_.rank(), reports.every));
  Listener listener{.callback = std::move(callback),
                    .reports = reports,
                    .among = {},
                    .numbers = {},
                    .last = sampler_(),
                    .last_seconds = now_seconds()};
  if (reports.report == Report::reduced) {
    listener.among = group_.duplicate();
    listener.numbers = listener.among->allocate(kBlock * group_.size());
  }
  if (reports.report == Report::rank_0 && group_.rank() != 0) return {};
  return listeners_.add(std::move(listener));
}

void StepListeners::count(End end) {
  ++ended_;
  const std::optional<double> norm = std::exchange(gradient_norm_, {});
  if (!listeners_.any()) return;
  const std::string nonfinite = std::exchange(nonfinite_, {});
  listeners_.for_each([&](Listener& listener) {
    ++listener.steps;
    if (end == End::given_up) ++listener.given_up;
    if (norm) listener.gradient_norm = norm;
    if (!nonfinite.empty()) listener.nonfinite = nonfinite;
  });
}

void StepListeners::step_ended() {
  if (!listeners_.any()) return;
  std::optional<StepSample> sample;
  double seconds = 0;
  std::exception_ptr first;  // those after it have their turn: a reduced report is a collective
  listeners_.for_each([&](Listener& listener) {
    if (listener.steps < listener.reports.every) return;
    if (!sample) {
      sample = sampler_();
      seconds = now_seconds();
    }
    try {
      report(listener, *sample, seconds);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  });
  if (first) std::rethrow_exception(first);
}

void StepListeners::report(Listener& listener, const StepSample& now, double now_seconds) {
  const auto steps = static_cast<double>(listener.steps);
  StepMetrics metrics{
      .rank = group_.rank(),
      .ranks = group_.size(),
      .iteration = ended_ - 1,
      .steps = std::exchange(listener.steps, 0),
      .given_up = std::exchange(listener.given_up, 0),
      .seconds = (now_seconds - listener.last_seconds) / steps,
      .exposed_seconds = (now.exposed_seconds - listener.last.exposed_seconds) / steps,
      .communication_seconds = (now.communication_seconds - listener.last.communication_seconds) / steps,
      .bytes = (now.bytes - listener.last.bytes) / steps,
      .buckets = now.buckets,
      .tuning = now.tuning,
      .candidate = now.candidate,
      .loss_scale = loss_scale_,
      .gradient_norm = std::exchange(listener.gradient_norm, {}),
      .nonfinite = std::exchange(listener.nonfinite, {}),
      .resident_bytes = resident_bytes()};
  if (metrics.communication_seconds > 0) {
    metrics.overlap = std::clamp(1 - metrics.exposed_seconds / metrics.communication_seconds, 0.0, 1.0);
    metrics.bandwidth = metrics.bytes / metrics.communication_seconds;
  }
  listener.last = now;
  listener.last_seconds = now_seconds;
  if (listener.among) reduce(listener, metrics);
  if (listener.reports.report == Report::each_rank || group_.rank() == 0) listener.callback(metrics);
}

void StepListeners::reduce(Listener& listener, StepMetrics& metrics) {
  std::array<double, kReduced.size()> numbers{};
  std::transform(kReduced.begin(), kReduced.end(), numbers.begin(),
                 [&](const Number& number) { return number.of(metrics); });
  const auto said_by = [&](int rank) { return listener.numbers.data() + kBlock * rank; };
  std::memcpy(said_by(group_.rank()), numbers.data(), sizeof numbers);
  listener.among->perform(
      {.collective = Collective::all_gather,
       .view = {.buffer = listener.numbers, .count = kBlock * group_.size(), .dtype = DType::u8}});
  for (std::size_t i = 0; i < kReduced.size(); ++i) {
    OverRanks all;
    for (int rank = 0; rank < group_.size(); ++rank) {
      std::memcpy(numbers.data(), said_by(rank), sizeof numbers);
      all.min = rank == 0 ? numbers[i] : std::min(all.min, numbers[i]);
      all.max = rank == 0 ? numbers[i] : std::max(all.max, numbers[i]);
      all.mean += numbers[i] / group_.size();
    }
    metrics.over_ranks[kReduced[i].name] = all;
  }
}

}  // namespace dear::metrics
