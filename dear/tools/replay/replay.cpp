#include "dear/tools/replay/replay.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/buckets/bucket_wire.h"
#include "dear/comm/buckets/layout.h"
#include "dear/comm/group/exchange.h"
#include "dear/platform/cluster/network.h"
#include "dear/platform/cost/collective_times.h"
#include "dear/predict/sim/simulate.h"
#include "dear/tools/replay/real_time.h"

namespace dear {
namespace {

// The executor of computation: each step lasts as long as it is said to.
class SleepingExecutor final : public conductor::LaneExecutor {
 public:
  // `in_turns`, by step: it waits until all others of these have ended.
  SleepingExecutor(std::vector<double> seconds, std::vector<bool> in_turns, RealTime& time)
      : seconds_(std::move(seconds)), in_turns_(std::move(in_turns)), time_(time) {}
  conductor::Started start(Instance which, const Step& /*step*/) override {
    double begin = time_.now_seconds();
    if (in_turns_[which.step] && seconds_[which.step] > 0) {
      begin = std::max(begin, busy_until_);
      busy_until_ = begin + seconds_[which.step];
    }
    time_.end_at(which, begin + seconds_[which.step]);
    return conductor::Started::under_way;
  }

 private:
  std::vector<double> seconds_;
  std::vector<bool> in_turns_;
  double busy_until_ = 0;
  RealTime& time_;
};

// The executor of the network lane, which tells the clock what it has to wait for.
class RealNetwork final : public conductor::LaneExecutor {
 public:
  // `payloads`, by step: of what travels encoded.
  RealNetwork(Group group, std::vector<buckets::BucketWire::Flat> buckets, std::vector<View> payloads,
              RealTime& time)
      : time_(time),
        group_(std::move(group)),
        payloads_(std::move(payloads)),
        wire_(group_, std::move(buckets), [this](const conductor::StepEnd& end) { time_.ended(end); }, {}) {}

  conductor::Started start(Instance which, const Step& step) override {
    time_.expect_end();
    try {
      const auto& work = std::get<Communicate>(step.work);
      if (work.payload != Payload::encoded) return wire_.start(which, step);
      start_encoded(which, work);
      return conductor::Started::under_way;
    } catch (...) {
      time_.expect_no_end();
      throw;
    }
  }

 private:
  void start_encoded(Instance which, const Communicate& work) {
    group_.issue(
        {.collective = work.collective, .view = payloads_[which.step], .label = work.bucket},
        [this, which](const CollectiveResult& result) {
          time_.ended({.span = {which, seconds_of(result.timing.begin), seconds_of(result.timing.end)},
                       .error = result.error});
        });
  }

  RealTime& time_;
  Group group_;
  std::vector<View> payloads_;
  buckets::BucketWire wire_;
};

// By step, for those that carry encoded gradients: a buffer of the bytes foreseen, in whole shards.
std::vector<View> allocate_payloads(const Schedule& schedule, const Group& group) {
  constexpr std::int64_t kAlignment = 64;
  const std::int64_t unit = kAlignment * group.size();
  std::vector<View> views(schedule.steps().size());
  for (StepId step = 0; step < views.size(); ++step) {
    const auto* work = std::get_if<Communicate>(&schedule.steps()[step].work);
    if (work == nullptr || work->payload != Payload::encoded) continue;
    const std::int64_t bytes = (work->chunk.size() + unit - 1) / unit * unit;
    views[step] = {
        .buffer = group.allocate(bytes), .count = bytes / size_of(DType::f32), .dtype = DType::f32};
  }
  return views;
}

std::vector<buckets::BucketWire::Flat> allocate(const Workload& workload, const Grouping& grouping,
                                                Group& group) {
  const std::vector<std::uint32_t> one_group(workload.tensors.size(), 0);
  std::vector<buckets::BucketWire::Flat> flats;
  for (const Bucket& bucket : grouping.buckets()) {
    const buckets::BucketLayout layout = buckets::lay_out(bucket, workload, one_group, group.size());
    const auto view = [&] {
      return View{.buffer = group.allocate(layout.bytes()), .count = layout.elements, .dtype = layout.dtype};
    };
    flats.push_back({.parameters = view(), .gradients = view(), .bucket_bytes = bucket.bytes});
  }
  return flats;
}

// By step, of the compute lane and of the codec's where both work in turns.
std::vector<bool> in_turns(const Schedule& schedule, bool codec_shares_compute) {
  std::vector<bool> in_turns;
  for (const Step& step : schedule.steps())
    in_turns.push_back(codec_shares_compute && schedule.lanes()[step.lane].kind != LaneKind::update);
  return in_turns;
}

// Holds what every rank must replay alike.
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
  // Collectives are real and take the time that they take.
  std::vector<double> seconds = sim::step_seconds(schedule, workload, grouping,
                                                  cost::ring_times(Link{}, group.size()), options.encodings);
  agree(group, "replay", Agreed{.schedule = schedule.digest(), .iterations = options.iterations}, [&] {
    return fmt::format("{} {:016x}, {} iterations", schedule.policy(), schedule.digest(), options.iterations);
  });

  Replayed result;
  for (StepId step = 0; step < seconds.size(); ++step) {
    if (schedule.lanes()[schedule.steps()[step].lane].kind == LaneKind::compute)
      result.compute_seconds += seconds[step];
  }
  std::vector<buckets::BucketWire::Flat> flats = allocate(workload, grouping, group);
  RealTime time;
  SleepingExecutor compute(std::move(seconds), in_turns(schedule, options.codec_shares_compute), time);
  RealNetwork network(group, std::move(flats), allocate_payloads(schedule, group), time);
  group.barrier().wait();
  time.begin();
  try {
    result.spans = conductor::drive(schedule, options.iterations, {compute, compute, network}, time);
  } catch (const std::exception& error) {
    group.abort(error.what());
    time.await_ends();  // the network's are told to it
    throw;
  }

  double last = 0;
  for (const conductor::StepSpan& span : result.spans) {
    if (span.which.step != schedule.commit()) continue;
    if (span.which.iteration > 0) result.iteration_seconds.push_back(span.end_seconds - last);
    last = span.end_seconds;
  }
  return result;
}

}  // namespace dear
