#include "dear/train/streams/collective_times.h"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "dear/train/streams/own_operators.h"
#include "dear/train/streams/stream_clock.h"

namespace dear::streams {

std::vector<double> time_collectives(StreamCollectives& collectives, BucketStreams& streams,
                                     c10::Device device, const std::vector<std::int64_t>& elements) {
  constexpr int kRepetitions = 3;
  const OwnOperators own;
  std::vector<double> medians;
  for (const std::int64_t count : elements) {
    StreamClock clock(device);
    {
      const auto guard = streams.on_communication();
      at::Tensor vector = at::zeros({count}, at::TensorOptions(device).dtype(at::kFloat));
      collectives.all_reduce(vector, StreamCollectives::Joined::sum);  // the ranks come together
      for (int i = 0; i < kRepetitions; ++i) {
        clock.mark();
        collectives.reduce_scatter(vector);
        collectives.all_gather(vector);
      }
      clock.mark();
    }
    streams.synchronize();
    std::vector<double> seconds;
    for (int i = 0; i < kRepetitions; ++i) seconds.push_back(clock.seconds(i, i + 1));
    std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
    medians.push_back(seconds[kRepetitions / 2]);
  }
  return medians;
}

}  // namespace dear::streams
