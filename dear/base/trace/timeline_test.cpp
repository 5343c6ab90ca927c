#include "dear/base/trace/timeline.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::timeline_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

Span span(int rank, const char* lane, const char* name, Activity activity, std::int64_t iteration,
          double begin, double end) {
  return {.rank = rank,
          .lane = lane,
          .name = name,
          .activity = activity,
          .iteration = iteration,
          .begin_seconds = begin,
          .end_seconds = end};
}

Trace two_iterations() {
  return {.title = "dear <simulate>",
          .network = "modelled: 1gbit",
          .spans = {span(0, "compute", "forward block", Activity::forward, 0, 1.0, 1.1),
                    span(0, "network", "all-gather bucket 0", Activity::communication, 0, 1.1, 1.2),
                    span(0, "compute", "forward block", Activity::forward, 1, 1.2, 1.3),
                    span(0, "compute", "start", Activity::other, -1, 0.0, 1.0)}};
}

TEST(Timeline, HasABarForEachSpanOfAnIteration) {
  const std::string svg = timeline(two_iterations());
  EXPECT_EQ(count(svg, "</title></rect>"), 3U);
  EXPECT_THAT(svg, HasSubstr("all-gather bucket 0, iteration 0: 100 ms"));
  EXPECT_THAT(svg, HasSubstr(">dear &lt;simulate&gt;</text>"));
  EXPECT_THAT(svg, HasSubstr(">compute</text>"));
  EXPECT_THAT(svg, HasSubstr(">communication</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(">backward</text>")));  // a legend of what there is
}

TEST(Timeline, BeginsWithTheFirstSpanThatIsDrawn) {
  const std::string svg = timeline(two_iterations(), {.first_iteration = 1, .iterations = 1});
  EXPECT_EQ(count(svg, "</title></rect>"), 1U);
  EXPECT_THAT(svg, HasSubstr("<rect x=\"126.0\" y=\"89.0\" width=\"819.7\""));
}

TEST(Timeline, NamesRanksWhereThereAreSeveral) {
  Trace trace = two_iterations();
  trace.spans.push_back(span(2, "compute", "forward block", Activity::forward, 0, 1.0, 1.1));
  const std::string svg = timeline(trace);
  EXPECT_THAT(svg, HasSubstr(">0 network</text>"));
  EXPECT_THAT(svg, HasSubstr(">2 compute</text>"));
}

TEST(Timeline, RefusesToDrawNothing) {
  EXPECT_THROW((void)timeline(two_iterations(), {.first_iteration = 2}), ConfigError);
  EXPECT_THROW((void)timeline({}), ConfigError);
}

}  // namespace
}  // namespace dear::timeline_test
