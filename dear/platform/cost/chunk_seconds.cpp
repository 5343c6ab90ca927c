#include "dear/platform/cost/chunk_seconds.h"

#include <algorithm>
#include <cmath>

#include "dear/base/vocabulary/ids.h"

namespace dear::cost {
namespace {

constexpr double kFirstBytes = 64;
constexpr double kSizesPerOctave = 4;

std::size_t place_of(Collective collective) {
  return collective == Collective::reduce_scatter ? 0 : collective == Collective::all_gather ? 1 : 2;
}

}  // namespace

double ChunkSeconds::bytes_at(int size) {
  return size == 0 ? 0 : std::floor(kFirstBytes * std::exp2((size - 1) / kSizesPerOctave));
}

double ChunkSeconds::seconds_at(Collective collective, int size) const {
  Known& known = known_[place_of(collective)][index_of(size)];
  std::call_once(known.once, [&] {
    known.seconds = make_chunk_plan(network_, collective, static_cast<std::int64_t>(bytes_at(size)),
                                    {.algorithm = algorithm_})
                        .seconds;
  });
  return known.seconds;
}

double ChunkSeconds::seconds(Collective collective, std::int64_t bytes) const {
  const auto wanted = static_cast<double>(bytes);
  int above = 1;
  if (wanted > kFirstBytes) above = 2 + static_cast<int>(kSizesPerOctave * std::log2(wanted / kFirstBytes));
  above = std::min(above, kSizes - 1);
  while (above > 1 && bytes_at(above - 1) >= wanted) --above;
  const double low = bytes_at(above - 1);
  const double high = bytes_at(above);
  const double part = (wanted - low) / (high - low);
  const double before = seconds_at(collective, above - 1);
  return launch_beyond_start_ups(network_, collective) + before +
         part * (seconds_at(collective, above) - before);
}

}  // namespace dear::cost
