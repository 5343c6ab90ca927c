#include "dear/tools/replay/graph_replay.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"
#include "dear/tools/replay/real_time.h"

namespace dear {
namespace {

// Holds what every rank must replay alike.
struct AgreedGraph {
  std::uint64_t digest;
  std::int64_t iterations;
  bool operator==(const AgreedGraph&) const = default;
};

// Runs one collective after another on one buffer, as large as the largest: all stand on one lane.
class RealCollectives {
 public:
  RealCollectives(const GraphReplay& job, Group group, RealTime& time)
      : job_(job), time_(time), group_(std::move(group)) {
    std::int64_t most = 1;
    for (const auto& carried : job.carried)
      if (carried) most = std::max(most, carried->elements);
    buffer_ = group_.allocate(most * size_of(DType::f32));
  }

  void start(Instance which) {
    const GraphReplay::Carried& carried = *job_.carried[which.step];
    time_.expect_end();
    try {
      group_.issue(
          {.collective = carried.collective,
           .view = {.buffer = buffer_, .count = carried.elements, .dtype = DType::f32},
           .root = carried.root,
           .label = which.step},
          [this, which](const CollectiveResult& result) {
            time_.ended({.span = {which, seconds_of(result.timing.begin), seconds_of(result.timing.end)},
                         .error = result.error});
          });
    } catch (...) {
      time_.expect_no_end();
      throw;
    }
  }

 private:
  const GraphReplay& job_;
  RealTime& time_;
  Group group_;
  Buffer buffer_;
};

}  // namespace

Replayed replay(const GraphReplay& job, std::int64_t iterations, Group group) {
  if (iterations < 2)
    throw ConfigError(
        fmt::format("a replay of {} iterations has none to measure: give at least 2", iterations));
  agree(group, "replay", AgreedGraph{.digest = job.digest, .iterations = iterations},
        [&] { return fmt::format("{} {:016x}, {} iterations", job.name, job.digest, iterations); });
  Replayed result;
  RealTime time;
  RealCollectives network(job, group, time);
  group.barrier().wait();
  time.begin();
  try {
    result.spans = conductor::drive(
        job.graph, iterations,
        [&](Instance which) {
          if (job.carried[which.step]) {
            network.start(which);
          } else {
            time.end_at(which, time.now_seconds() + job.seconds(which));
          }
        },
        time, job.name_of);
  } catch (const std::exception& error) {
    group.abort(error.what());
    time.await_ends();  // the network's are told to it
    throw;
  }
  double last = 0;
  for (const conductor::StepSpan& span : result.spans) {
    if (span.which.step != job.commit) continue;
    if (span.which.iteration > 0) result.iteration_seconds.push_back(span.end_seconds - last);
    last = span.end_seconds;
  }
  return result;
}

}  // namespace dear
