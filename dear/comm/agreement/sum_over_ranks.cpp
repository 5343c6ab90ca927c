#include "dear/comm/agreement/sum_over_ranks.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "dear/base/os/cache_line.h"
#include "dear/base/vocabulary/error.h"

namespace dear::agreement {

double SumOverRanks::of(const CallMade& call, double mine, As as) {
  if (group_.size() == 1) return mine;
  struct Said {
    CallMade call;
    double value;
  };
  constexpr std::int64_t kBlock = os::whole_cache_lines(static_cast<std::int64_t>(sizeof(Said)));
  if (numbers_.bytes() == 0) numbers_ = group_.allocate(kBlock * group_.size());
  const auto said_by = [&](int rank) { return numbers_.data() + kBlock * rank; };
  const Said own{call, mine};
  std::memcpy(said_by(group_.rank()), &own, sizeof own);
  group_.perform({.collective = Collective::all_gather,
                  .view = {.buffer = numbers_, .count = kBlock * group_.size(), .dtype = DType::u8}});
  double all = 0;
  CallMade first{};
  for (int rank = 0; rank < group_.size(); ++rank) {
    Said said{};
    std::memcpy(&said, said_by(rank), sizeof said);
    if (rank == 0) first = said.call;
    if (said.call != first)
      throw MismatchError(fmt::format("rank {}: rank {} called {}, rank 0 {}", group_.rank(), rank,
                                      text_of(said.call), text_of(first)));
    if (as == As::sum) all += said.value;
    if (as == As::largest && !std::isnan(all) && !(all >= said.value)) all = said.value;
  }
  return all;
}

}  // namespace dear::agreement
