#include "dear/comm/buckets/measured_link.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/fit.h"
#include "dear/platform/cost/ring.h"

namespace dear::buckets {

const std::vector<std::int64_t>& measured_elements() {
  static const std::vector<std::int64_t> kElements{4'096, 65'536, 524'288};
  return kElements;
}

Link link_of(const std::vector<double>& seconds, int ranks) {
  std::vector<cost::Sample> samples;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const auto pair = [&](const Link& link) {
      return cost::ring_all_reduce_seconds(link, ranks, measured_elements()[i] * size_of(DType::f32));
    };
    samples.push_back(cost::make_sample(pair, seconds[i]));
  }
  try {
    const Link link = cost::fit_link(samples).link;
    if (link.beta_seconds_per_byte > 0) return link;  // else a small one was late, and no bandwidth was seen
  } catch (const ConfigError&) {
    // No link takes such times.
  }
  return {.alpha_seconds = 0, .beta_seconds_per_byte = samples.back().seconds / samples.back().bytes};
}

Link measure_link(Group& group) {
  constexpr int kRepetitions = 3;
  const Buffer buffer = group.allocate(measured_elements().back() * size_of(DType::f32));
  std::vector<double> medians;
  for (const std::int64_t elements : measured_elements()) {
    const View view{.buffer = buffer, .count = elements, .dtype = DType::f32};
    std::vector<double> seconds;
    for (int i = 0; i < kRepetitions; ++i) {
      group.barrier().wait();
      const double begin = now_seconds();
      group.reduce_scatter(view, Reduction::sum).wait();
      group.all_gather(view).wait();
      seconds.push_back(now_seconds() - begin);
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
    medians.push_back(seconds[kRepetitions / 2]);
  }
  return link_of(medians, group.size());
}

}  // namespace dear::buckets
