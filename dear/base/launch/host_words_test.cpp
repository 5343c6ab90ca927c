#include "dear/base/launch/host_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::launch {
namespace {

TEST(HostWords, AreReadAsTheyWereSaid) {
  const Words host =
      words_of(Introduction{.name = "node1", .hosts = 3, .ranks = 4, .address = "10.0.0.2", .port = 4711});
  EXPECT_EQ(words_of(introduction_in(host).value()), host);
  const Words job = words_of(HostJob{.job = {.ranks = 7,
                                             .first_rank = 3,
                                             .local_ranks = 4,
                                             .host = 1,
                                             .hosts = 3,
                                             .master_address = "10.0.0.1",
                                             .master_port = {.port = 29'400},
                                             .run_id = "dear-1-2",
                                             .restarts = 5},
                                     .elastic = true,
                                     .all_ranks = 8});
  EXPECT_EQ(words_of(job_in(job).value()), job);
  const Words end = words_of(RankEnd{.rank = 3, .ending = {.signal = 9}, .step = 1'000'000'000'000});
  EXPECT_EQ(words_of(end_in(end).value()), end);
}

TEST(HostWords, AreNothingWhereOneIsWrong) {
  const Words host = words_of(Introduction{.name = "n", .address = "::1", .port = 1});
  const Words job = words_of(HostJob{.job = {.master_port = {.port = 1}}});
  const Words end = words_of(RankEnd{});
  const auto refuses = [](const Words& words) {
    return !introduction_in(words) && !job_in(words) && !end_in(words);
  };
  EXPECT_FALSE(refuses(host) || refuses(job) || refuses(end));
  for (const Words& right : {host, job, end})
    for (std::size_t at = 0; at < right.size(); ++at) {
      Words wrong = right;
      wrong.erase(wrong.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_TRUE(refuses(wrong)) << at;
      if (!number_in(right, at)) continue;
      for (const char* const other : {"-1", "", "x", "1x", "99999999999999999999"}) {
        wrong = right;
        wrong[at] = other;
        EXPECT_TRUE(refuses(wrong)) << at << " " << other;
      }
    }
  Words beyond = job;
  beyond[5] = "1";  // its only rank is 0
  EXPECT_TRUE(refuses(beyond));
}

}  // namespace
}  // namespace dear::launch
