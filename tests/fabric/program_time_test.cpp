#include "dear/platform/cost/program_time.h"

#include <gtest/gtest.h>

#include "dear/platform/algorithm/algorithms.h"
#include "dear/platform/fabric/play.h"

namespace dear::program_time_test {
namespace {

using algorithm::find_algorithm;
using algorithm::make_program;

constexpr Link kLink{.alpha_seconds = 30e-6, .beta_seconds_per_byte = 8e-10};

// One message out of each rank and one into it at a time: nothing is shared, so fairness and order are the
// same.
bool meets_nowhere(const algorithm::Program& program) {
  for (const std::vector<algorithm::Part>& round : program.rounds) {
    for (const algorithm::Part& part : round) {
      if (part.sends.size() > 1 || part.receives.size() + part.reduces.size() > 1) return false;
    }
  }
  return true;
}

TEST(Fabric, TakesTheTimeOfTheCostModelWhereNothingIsShared) {
  int compared = 0;
  for (int ranks = 2; ranks <= 33; ++ranks) {
    const fabric::Topology flat(
        {.name = "flat", .dimensions = {{.name = "ranks", .size = ranks, .link = kLink}}});
    for (const algorithm::Algorithm& way : algorithm::algorithms()) {
      for (const Collective collective :
           {Collective::reduce_scatter, Collective::all_gather, Collective::all_reduce, Collective::broadcast,
            Collective::reduce, Collective::all_to_all}) {
        if (!has(way, collective)) continue;
        const algorithm::Program program = make_program(way, collective, {.ranks = ranks, .blocks = 4});
        if (!meets_nowhere(program)) continue;
        for (const std::int64_t bytes : {0, 1'000, 9'000'001}) {
          const double expected = cost::program_seconds(program, kLink, bytes);
          EXPECT_NEAR(fabric::play(program, flat, static_cast<double>(bytes)).seconds, expected,
                      1e-9 * expected)
              << program.name << ", " << ranks << " ranks, " << bytes << " bytes";
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace dear::program_time_test
