#include "dear/wire/measured_link.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "dear/base/deadline.h"
#include "dear/base/error.h"
#include "dear/cost/fit.h"
#include "dear/cost/ring.h"

namespace dear::wire {

Link measure_link(Group& group) {
  constexpr std::array<std::int64_t, 3> kElements{4'096, 65'536, 524'288};
  constexpr int kRepetitions = 3;
  const Buffer buffer = group.allocate(kElements.back() * size_of(DType::f32));
  std::vector<cost::Sample> samples;
  for (const std::int64_t elements : kElements) {
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
    const auto pair = [&](const Link& link) {
      return cost::ring_all_reduce_seconds(link, group.size(), elements * size_of(DType::f32));
    };
    samples.push_back(cost::make_sample(pair, seconds[kRepetitions / 2]));
  }
  try {
    const Link link = cost::fit_link(samples).link;
    if (link.beta_seconds_per_byte > 0) return link;  // else a small one was late, and no bandwidth was seen
  } catch (const ConfigError&) {
    // No link takes such times.
  }
  return {.alpha_seconds = 0, .beta_seconds_per_byte = samples.back().seconds / samples.back().bytes};
}

}  // namespace dear::wire
