#include "dear/comm/grid/measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/start_thread.h"
#include "dear/base/vocabulary/ids.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/grid/start_up_exchange.h"
#include "dear/platform/cost/fit.h"
#include "dear/platform/cost/ring.h"

namespace dear::grid {
namespace {

// The smallest vectors tell the start-up, the largest the seconds of a byte: the first of these sizes that
// takes so long. What lies between tells neither: wires let bursts of a few hundred KiB through at once.
constexpr std::int64_t kSmall = 4 << 10;
constexpr std::array<std::int64_t, 4> kLarge{256 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr double kLong = 40e-3;
constexpr int kRepeat = 5;  // and one before that does not count
// Two dimensions share a lane where both at once take more than the longer alone by so much of the shorter.
constexpr double kShared = 0.5;

class Measurement {
 public:
  Measurement(Backend& whole, const std::vector<std::unique_ptr<Backend>>& lines, Deadline deadline)
      : whole_(whole), lines_(lines), deadline_(deadline) {
    for (const auto& line : lines_) {
      buffers_.push_back(line ? line->allocate(kLarge.back(), deadline) : Buffer());
    }
  }

  // The seconds of a reduce-scatter, or of an all-gather, in each of these dimensions, all at once, on the
  // rank where they last longest: in the repetition of this rank, by time, 0 for the quickest.
  double seconds(const std::vector<int>& dimensions, std::int64_t bytes, int which = kRepeat / 2) {
    std::vector<double> times;
    for (int repetition = 0; repetition <= kRepeat; ++repetition) {
      whole_.run({}, deadline_);
      const SteadyTime begin = SteadyClock::now();
      at_once(dimensions, bytes);
      if (repetition > 0)
        times.push_back(std::chrono::duration<double>(SteadyClock::now() - begin).count() / 2);
    }
    std::vector<double> longest(kRepeat, 0);
    for (const std::vector<double>& of_rank : gather_numbers(whole_, times, deadline_)) {
      for (std::size_t i = 0; i < longest.size(); ++i) longest[i] = std::max(longest[i], of_rank[i]);
    }
    std::sort(longest.begin(), longest.end());
    return longest[index_of(which)];
  }

 private:
  void at_once(const std::vector<int>& dimensions, std::int64_t bytes) {
    std::exception_ptr error;
    std::thread other;
    if (dimensions.size() > 1) {
      other = os::start_thread("that measures a line", [&] {
        try {
          pair(dimensions[1], bytes);
        } catch (...) {
          error = std::current_exception();
        }
      });
    }
    try {
      pair(dimensions[0], bytes);
    } catch (const std::exception& here) {
      if (other.joinable()) lines_[index_of(dimensions[1])]->abort(here.what());
      if (other.joinable()) other.join();
      throw;
    }
    if (other.joinable()) other.join();
    if (error) std::rethrow_exception(error);
  }

  void pair(int dimension, std::int64_t bytes) {
    const View view{.buffer = buffers_[index_of(dimension)], .count = bytes / 4};
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather})
      lines_[index_of(dimension)]->run({.collective = collective, .view = view}, deadline_);
  }

  Backend& whole_;
  const std::vector<std::unique_ptr<Backend>>& lines_;
  Deadline deadline_;
  std::vector<Buffer> buffers_;
};

}  // namespace

cost::ChunkNetwork measure_lines(Backend& whole, const std::vector<std::unique_ptr<Backend>>& lines,
                                 const algorithm::Grid& grid, Deadline deadline) {
  Measurement measurement(whole, lines, deadline);
  std::vector<double> start_ups(lines.size(), 0);
  std::vector<double> per_byte(lines.size(), 0);
  std::vector<double> lanes(lines.size(), 0);
  std::vector<std::int64_t> largest(lines.size(), 0);
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    lanes[index_of(dimension)] = dimension;
    if (!lines[index_of(dimension)]) continue;
    const int members = grid.sizes[index_of(dimension)];
    const auto sample = [&](std::int64_t bytes, double seconds) {
      return cost::make_sample(
          [&](const Link& link) { return cost::ring_reduce_scatter_seconds(link, members, bytes); }, seconds);
    };
    std::vector<cost::Sample> samples{sample(kSmall, measurement.seconds({dimension}, kSmall, 0))};
    for (const std::int64_t bytes : kLarge) {
      const double seconds = measurement.seconds({dimension}, bytes);
      largest[index_of(dimension)] = bytes;
      if (seconds < kLong && bytes != kLarge.back()) continue;
      samples.push_back(sample(bytes, seconds));
      break;
    }
    const Link link = cost::fit_link(samples).link;
    start_ups[index_of(dimension)] = (members - 1) * link.alpha_seconds;
    per_byte[index_of(dimension)] = link.beta_seconds_per_byte * (members - 1) / members;
    for (int other = 0; other < dimension; ++other) {
      if (!lines[index_of(other)] || lanes[index_of(dimension)] != dimension) continue;
      const std::int64_t bytes = std::min(largest[index_of(dimension)], largest[index_of(other)]);
      const double one = measurement.seconds({dimension}, bytes);
      const double two = measurement.seconds({other}, bytes);
      const double both = measurement.seconds({dimension, other}, bytes);
      if (both > std::max(one, two) + kShared * std::min(one, two))
        lanes[index_of(dimension)] = lanes[index_of(other)];
    }
  }
  cost::ChunkNetwork network{.grid = grid, .algorithms = {}, .lanes = {}, .lines = {}};
  const auto of_rank_0 = [&](const std::vector<double>& mine) {
    return gather_numbers(whole, mine, deadline).front();
  };
  start_ups = of_rank_0(start_ups);
  per_byte = of_rank_0(per_byte);
  lanes = of_rank_0(lanes);
  // Lanes are numbered without gaps.
  std::vector<double> numbers;
  for (int dimension = 0; dimension < grid.dimensions(); ++dimension) {
    const double lane = lanes[index_of(dimension)];
    auto number = std::find(numbers.begin(), numbers.end(), lane);
    if (number == numbers.end()) number = numbers.insert(numbers.end(), lane);
    network.algorithms.emplace_back("ring");
    network.lanes.push_back(static_cast<int>(number - numbers.begin()));
    network.lines.push_back({.start_up_seconds = start_ups[index_of(dimension)],
                             .seconds_per_byte = per_byte[index_of(dimension)]});
  }
  return network;
}

std::string describe(const cost::ChunkNetwork& network) {
  std::vector<std::string> dimensions;
  for (int dimension = 0; dimension < network.grid.dimensions(); ++dimension) {
    if (network.grid.sizes[index_of(dimension)] == 1) continue;
    dimensions.push_back(fmt::format(
        "dimension {}: {:.4g} MB/s, start-up {}{}", dimension, network.bytes_per_second(dimension) / 1e6,
        format_seconds(network.lines[index_of(dimension)].start_up_seconds),
        std::count(network.lanes.begin(), network.lanes.end(), network.lanes[index_of(dimension)]) > 1
            ? fmt::format(", lane {}", network.lanes[index_of(dimension)])
            : ""));
  }
  return fmt::format("{}", fmt::join(dimensions, "; "));
}

Link link_of_line(const cost::ChunkNetwork& network, int dimension) {
  const int members = network.grid.sizes[index_of(dimension)];
  if (members == 1) return {};
  const cost::LineTime& line = network.lines[index_of(dimension)];
  return {.alpha_seconds = line.start_up_seconds / (members - 1),
          .beta_seconds_per_byte = line.seconds_per_byte * members / (members - 1)};
}

}  // namespace dear::grid
