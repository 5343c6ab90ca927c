#include "dear/tools/bench_command/bench_report.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::cli::bench_report_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

bench_collectives::Result result(const std::string& backend, bench_collectives::MeasuredOperation operation,
                                 std::int64_t bytes, double seconds) {
  return {.backend = backend,
          .operation = operation,
          .ranks = 4,
          .bytes = bytes,
          .seconds = {.median = seconds, .p10 = 0.9 * seconds, .p90 = 1.2 * seconds},
          .verified = true,
          .copies = backend == "memcpy"};
}

std::vector<bench_collectives::Result> some_results() {
  std::vector<bench_collectives::Result> results;
  for (const std::int64_t bytes : {4, 1 << 10, 1 << 20}) {
    const double seconds = 1e-6 + static_cast<double>(bytes) * 1e-9;
    results.push_back(result("shm", bench_collectives::MeasuredOperation::pair, bytes, seconds));
    results.push_back(
        result("openmpi", bench_collectives::MeasuredOperation::all_reduce, bytes, 3 * seconds));
    results.push_back(result("memcpy", bench_collectives::MeasuredOperation::pair, bytes, seconds / 2));
  }
  return results;
}

TEST(Report, TheTableComparesWithTheFirst) {
  const std::string table = result_table(some_results());
  EXPECT_THAT(table, AllOf(HasSubstr("x shm"), HasSubstr("1 KiB"), HasSubstr("all-reduce"),
                           HasSubstr("  3.00\n"), HasSubstr("  0.50\n"), Not(HasSubstr("NO"))));
  std::vector<bench_collectives::Result> results = some_results();
  results[1].verified = false;
  EXPECT_THAT(result_table(results), HasSubstr(" NO "));
  EXPECT_EQ(result_table({}), "");
}

TEST(Report, SaysWhatWaitingRanksUse) {
  bench_collectives::BenchmarkSettings settings;
  EXPECT_THAT(heading(settings), Not(HasSubstr("late")));
  settings.late_seconds = 0.2;
  EXPECT_THAT(heading(settings), HasSubstr("rank 0 late by 200 ms"));
  std::vector<bench_collectives::Result> results = some_results();
  EXPECT_THAT(result_table(results), Not(HasSubstr("waiting")));
  for (bench_collectives::Result& result : results) result.waiting_share = 0.0125;
  EXPECT_THAT(result_table(results), AllOf(HasSubstr("waiting, % of a core"), HasSubstr(" 1.25\n")));
}

TEST(Report, SaysWhatAPlanExpected) {
  std::vector<bench_collectives::Result> results = some_results();
  EXPECT_THAT(result_table(results), Not(HasSubstr("planned")));
  results[0].planned_seconds = results[0].seconds.median / 2;
  EXPECT_THAT(result_table(results), AllOf(HasSubstr("planned/median"), HasSubstr(" 0.50\n")));
}

TEST(Report, SaysUnderWhichCircumstances) {
  bench_collectives::BenchmarkSettings settings{.ranks = 2, .bind = true};
  bench_collectives::BenchmarkOutcome outcome;
  outcome.descriptions.emplace_back("shm", "shm, 2 ranks on this host");
  outcome.notes.emplace_back("gloo does not take part");
  const Circumstances idle{.cores = 2, .load_before = 0.1, .load_after = 0.9, .program = "dear 1.2"};
  EXPECT_THAT(circumstances_text(settings, outcome, idle),
              AllOf(HasSubstr("shm: shm, 2 ranks"), HasSubstr("note: gloo"), HasSubstr("dear 1.2 on 2 cores"),
                    HasSubstr("cores of their own"), HasSubstr("load 0.10 before, 0.90 after"),
                    Not(HasSubstr("busy"))));
  settings.ranks = 4;
  EXPECT_THAT(circumstances_text(settings, outcome, {.cores = 2, .load_before = 2}),
              AllOf(HasSubstr("several to a core"), HasSubstr("busy")));
  settings.bind = false;
  EXPECT_THAT(circumstances_text(settings, outcome, idle), HasSubstr("not bound"));
  EXPECT_THAT(failures_text({{.library = "mpich", .reason = "rank 1 ended", .output = "oh\nno\n"}}, "dear"),
              "dear: mpich: rank 1 ended\n  mpich | oh\n  mpich | no\n");
}

}  // namespace
}  // namespace dear::cli::bench_report_test
