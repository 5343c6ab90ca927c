// A pipeline over Gloo.

#include "dear/base/os/testing/reserved_port.h"
#include "dear/comm/backends/gloo_in_test.h"
#include "dear/systems/pipeline/testing/killed.h"

namespace dear::systems::pipeline::gloo_test {
namespace {

TEST(PipelineOverGloo, NamesAKilledRankAndWhatItWasWaitedFor) {
  const os::testing::ReservedPort port;
  testing::expect_a_killed_rank_is_named(
      [&](int rank) { return backends::testing::gloo_group(port.number(), rank, 3); });
}

}  // namespace
}  // namespace dear::systems::pipeline::gloo_test
