#include "dear/replay/replay.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/cluster/network.h"
#include "dear/collective/exchange.h"
#include "dear/replay/real_time.h"
#include "dear/sim/simulate.h"
#include "dear/wire/bucket_wire.h"
#include "dear/wire/layout.h"

namespace dear {
namespace {

// The executor of computation: each step lasts as long as it is said to.
class SleepingExecutor final : public exec::LaneExecutor {
 public:
  SleepingExecutor(std::vector<double> seconds, RealTime& time) : seconds_(std::move(seconds)), time_(time) {}
  void start(Instance which, const Step& /*step*/) override {
    time_.end_at(which, time_.now_seconds() + seconds_[which.step]);
  }

 private:
  std::vector<double> seconds_;  // by step
  RealTime& time_;
};

// The executor of the network lane, which tells the clock what it has to wait for.
class RealNetwork final : public exec::LaneExecutor {
 public:
  RealNetwork(Group group, std::vector<wire::BucketWire::Flat> buckets, RealTime& time)
      : time_(time),
        wire_(std::move(group), std::move(buckets), [this](const exec::StepEnd& end) { time_.ended(end); }) {}

  void start(Instance which, const Step& step) override {
    time_.expect_end();
    try {
      wire_.start(which, step);
    } catch (...) {
      time_.expect_no_end();
      throw;
    }
  }

 private:
  RealTime& time_;
  wire::BucketWire wire_;
};

std::vector<wire::BucketWire::Flat> allocate(const Workload& workload, const Grouping& grouping,
                                             Group& group) {
  const std::vector<std::uint32_t> one_group(workload.tensors.size(), 0);
  std::vector<wire::BucketWire::Flat> flats;
  for (const Bucket& bucket : grouping.buckets()) {
    const wire::BucketLayout layout = wire::lay_out(bucket, workload, one_group, group.size());
    const auto view = [&] {
      return View{.buffer = group.allocate(layout.bytes()), .count = layout.elements, .dtype = layout.dtype};
    };
    flats.push_back({.parameters = view(), .gradients = view(), .bucket_bytes = bucket.bytes});
  }
  return flats;
}

// Of compute and update steps; collectives are real and take the time that they take.
std::vector<double> seconds_of_steps(const Schedule& schedule, const Workload& workload,
                                     const Grouping& grouping, int ranks) {
  return sim::step_seconds(schedule, workload, grouping, Link{}, ranks);
}

// What every rank must replay alike.
struct Agreed {
  std::uint64_t schedule;  // its digest
  std::int64_t iterations;
  bool operator==(const Agreed&) const = default;
};

}  // namespace

Replayed replay(const Schedule& schedule, const Workload& workload, const Grouping& grouping, Group group,
                const ReplayOptions& options) {
  if (options.iterations < 2)
    throw ConfigError(
        fmt::format("a replay of {} iterations has none to measure: give at least 2", options.iterations));
  std::vector<double> seconds = seconds_of_steps(schedule, workload, grouping, group.size());
  agree(group, "replay", Agreed{.schedule = schedule.digest(), .iterations = options.iterations}, [&] {
    return fmt::format("{} {:016x}, {} iterations", schedule.policy(), schedule.digest(), options.iterations);
  });

  Replayed result;
  for (StepId step = 0; step < seconds.size(); ++step) {
    if (schedule.lanes()[schedule.steps()[step].lane].kind == LaneKind::compute)
      result.compute_seconds += seconds[step];
  }
  std::vector<wire::BucketWire::Flat> flats = allocate(workload, grouping, group);
  RealTime time;
  SleepingExecutor compute(std::move(seconds), time);
  RealNetwork network(group, std::move(flats), time);
  group.barrier().wait();
  time.begin();
  try {
    result.spans = exec::drive(schedule, options.iterations, {compute, compute, network}, time);
  } catch (const std::exception& error) {
    group.abort(error.what());
    time.await_ends();  // the network's are told to it
    throw;
  }

  double last = 0;
  for (const exec::StepSpan& span : result.spans) {
    if (span.which.step != schedule.commit()) continue;
    if (span.which.iteration > 0) result.iteration_seconds.push_back(span.end_seconds - last);
    last = span.end_seconds;
  }
  return result;
}

}  // namespace dear
