#include "dear/tools/bench_command/bench_options.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::cli::bench_options_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

// A machine with four cores, much memory and no MPI.
Installation bare() {
  return {.program = "dear",
          .cores = 4,
          .available_bytes = std::int64_t{1} << 40,
          .find_mpi_launcher = [](const std::string&) {
            return std::optional<bench_collectives::MpiLauncher>();
          }};
}

BenchSettings check_alone(const BenchOptions& options) { return check(options, LaunchEnvironment{}, bare()); }

std::vector<std::string> names_of(const BenchSettings& settings) {
  std::vector<std::string> names;
  for (const bench_collectives::SelectedLibrary& selected : settings.benchmark.libraries) {
    names.emplace_back(selected.library->name);
  }
  return names;
}

TEST(BenchOptions, ABackendTakesPartOnceForEachAlgorithmOfAGrid) {
  const BenchSettings settings =
      check_alone({.ranks = 4,
                   .rivals = {"none"},
                   .grid = {.grid = "2x2", .algorithms = {"baseline", "themis"}, .chunks = 16}});
  ASSERT_EQ(settings.benchmark.libraries.size(), 2U);
  const bench_collectives::SelectedLibrary& second = settings.benchmark.libraries[1];
  EXPECT_EQ(second.name(), "shm themis");
  EXPECT_EQ(second.grid->chunks, 16);
  EXPECT_THAT(second.grid_words, ElementsAre("--grid", "2x2", "--algorithm", "themis", "--chunks", "16"));
}

TEST(BenchOptions, TheDefaultsAreComplete) {
  const BenchSettings settings = check_alone({});
  EXPECT_EQ(settings.benchmark.ranks, 2);
  EXPECT_EQ(settings.benchmark.operation, bench_collectives::MeasuredOperation::pair);
  EXPECT_EQ(settings.benchmark.dtype, DType::f32);
  EXPECT_EQ(settings.benchmark.sizes.front(), 4);
  EXPECT_EQ(settings.benchmark.sizes.back(), 64 << 20);
  EXPECT_EQ(settings.benchmark.timeout.count(), 60);
  EXPECT_TRUE(settings.benchmark.bind);
  EXPECT_FALSE(settings.benchmark.reproducible);
  EXPECT_TRUE(check_alone({.reproducible = true}).benchmark.reproducible);
  EXPECT_EQ(settings.benchmark.ahead, 1);
  EXPECT_EQ(check_alone({.ahead = 8}).benchmark.ahead, 8);
  EXPECT_FALSE(settings.benchmark.touch);
  EXPECT_TRUE(check_alone({.touch = true}).benchmark.touch);
  EXPECT_EQ(settings.benchmark.late_seconds, 0);
  const bench_collectives::BenchmarkSettings late = check_alone({.late = "200ms"}).benchmark;
  EXPECT_EQ(late.late_seconds, 0.2);
  for (const bench_collectives::SelectedLibrary& selected : late.libraries)
    EXPECT_FALSE(selected.library->only_copies);
  EXPECT_FALSE(settings.benchmark.interference);
  EXPECT_TRUE(check_alone({.interference = true}).benchmark.interference);
  EXPECT_EQ(check_alone({.interference = true}).benchmark.ahead, 16);
  EXPECT_EQ(check_alone({.ahead = 2, .interference = true}).benchmark.ahead, 2);
  EXPECT_EQ(settings.benchmark.libraries.front().library->name, "shm");
  EXPECT_THAT(names_of(settings), Contains("memcpy"));
  EXPECT_EQ(settings.json, "");
}

TEST(BenchOptions, SizesAreListsAndRanges) {
  EXPECT_THAT(parse_sizes({"4KiB"}), ElementsAre(4096));
  EXPECT_THAT(parse_sizes({"1MiB", "4B", "1MiB"}), ElementsAre(4, 1 << 20));
  EXPECT_THAT(parse_sizes({"4B..64B"}), ElementsAre(4, 16, 64));
  EXPECT_THAT(parse_sizes({"4B..100B"}), ElementsAre(4, 16, 64, 100));
  EXPECT_THAT(parse_sizes({"5B..5B", "1KiB"}), ElementsAre(5, 1024));
  EXPECT_EQ(parse_sizes({"4B..256MiB"}).size(), 14U);
}

TEST(BenchOptions, RanksAreBoundWhereEachCanHaveACore) {
  EXPECT_TRUE(check_alone({.ranks = 4}).benchmark.bind);
  EXPECT_FALSE(check_alone({.ranks = 5}).benchmark.bind);
  EXPECT_TRUE(check_alone({.ranks = 5, .bind = true}).benchmark.bind);
  EXPECT_FALSE(check_alone({.ranks = 2, .bind = false}).benchmark.bind);
}

TEST(BenchOptions, RivalsThatAreNotThereAreNoted) {
  const BenchSettings settings = check_alone({});
  EXPECT_THAT(names_of(settings), Not(Contains("mpich")));
  EXPECT_THAT(settings.notes, Contains(HasSubstr("mpich does not take part: ")));
  EXPECT_THAT(settings.notes, Contains(HasSubstr("openmpi does not take part: ")));
}

TEST(BenchOptions, RivalsMayBeNamedOrNone) {
  EXPECT_THAT(names_of(check_alone({.rivals = {"none"}})), ElementsAre("shm"));
  EXPECT_THAT(names_of(check_alone({.rivals = {"memcpy"}})), ElementsAre("shm", "memcpy"));
  EXPECT_TRUE(check_alone({.rivals = {"memcpy"}}).notes.empty());
}

TEST(BenchOptions, ABarrierHasNoSizesAndNothingToCopy) {
  const BenchSettings settings = check_alone({.operation = "barrier"});
  EXPECT_THAT(settings.benchmark.sizes, ElementsAre(0));
  EXPECT_THAT(names_of(settings), Not(Contains("memcpy")));
}

TEST(BenchOptions, BytesAreMovedButNotAdded) {
  EXPECT_EQ(check_alone({.operation = "all-gather", .dtype = "uint8"}).benchmark.dtype, DType::u8);
}

LaunchEnvironment launched_by(const std::string& launcher) {
  return {.rank = 1, .size = 4, .local_rank = 1, .local_size = 2, .launcher = launcher};
}

TEST(BenchOptions, UnderALauncherItsRanksTakePart) {
  const BenchSettings settings = check({}, launched_by("torchrun"), bare());
  EXPECT_TRUE(settings.benchmark.launched);
  EXPECT_EQ(settings.benchmark.ranks, 4);
  EXPECT_FALSE(settings.benchmark.bind);
  EXPECT_THAT(names_of(settings), ElementsAre("auto", "memcpy"));
  EXPECT_THAT(settings.notes, Contains(HasSubstr("mpich does not take part: ")));
}

TEST(BenchOptions, UnderALauncherBackendsHaveTheirOwnNames) {
  const BenchOptions options{.backends = {"two-level"}, .rivals = {"none"}};
  EXPECT_THAT(names_of(check(options, launched_by("Open MPI"), bare())), ElementsAre("two-level"));
  EXPECT_THAT(
      [] { check({.backends = {"mpi-openmpi"}}, launched_by("Open MPI"), bare()); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("no 'mpi-openmpi'"), HasSubstr("auto, shm, gloo, mpi"))));
}

TEST(BenchOptions, WhatTheLauncherHasSettledIsRefused) {
  const auto check_launched = [](const BenchOptions& options) {
    check(options, launched_by("Open MPI"), bare());
  };
  EXPECT_THAT([&] { check_launched({.ranks = 3}); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("--ranks"), HasSubstr("Open MPI has started 4"))));
  EXPECT_THAT([&] { check_launched({.bind = true}); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("--bind"), HasSubstr("Open MPI has started 4"))));
}

TEST(BenchOptions, AnotherMpiThanThatOfTheLauncherIsRefused) {
  EXPECT_THAT([] { check({.rivals = {"mpich"}}, launched_by("Slurm"), bare()); },
              ThrowsMessage<ConfigError>(HasSubstr("--rivals: mpich cannot take part: ")));
}

TEST(BenchOptions, MemoryIsCheckedBefore) {
  Installation small = bare();
  small.available_bytes = 100 << 20;
  EXPECT_NO_THROW(check({.sizes = {"1MiB"}}, LaunchEnvironment{}, small));
  EXPECT_THAT(
      [&] { check({.sizes = {"64MiB"}}, LaunchEnvironment{}, small); },
      ThrowsMessage<ConfigError>(AllOf(HasSubstr("--sizes"), HasSubstr("64 MiB"), HasSubstr("100 MiB"))));
}

struct Refusal {
  std::string name;
  BenchOptions options;
  std::vector<std::string> naming;
};
class RefusedBenchOptions : public ::testing::TestWithParam<Refusal> {};
TEST_P(RefusedBenchOptions, AreNamed) {
  try {
    check_alone(GetParam().options);
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    for (const std::string& part : GetParam().naming) {
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(
    Options, RefusedBenchOptions,
    ::testing::Values(
        Refusal{"ranks0", {.ranks = 0}, {"--ranks is 0", "1 to 128"}},
        Refusal{"ranksmany", {.ranks = 129}, {"--ranks is 129"}},
        Refusal{"grid", {.grid = {.grid = "2x2"}}, {"--grid", "4 ranks", "2"}},
        Refusal{"gridcluster",
                {.ranks = 4, .grid = {.grid = "2x2"}, .cluster = "/tmp/dear-bench-options-test.json"},
                {"--cluster", "grid"}},
        Refusal{"gridonecopy",
                {.ranks = 4, .backends = {"shm-one-copy"}, .grid = {.grid = "2x2"}},
                {"--backend", "shm-one-copy"}},
        Refusal{"networkofone", {.network = "1gbit"}, {"--network", "1gbit"}},
        Refusal{"networkofpairs", {.network = "two-sites"}, {"--network", "two-sites"}},
        Refusal{"repeat0", {.repeat = 0}, {"--repeat is 0"}},
        Refusal{"sizeunit", {.sizes = {"4"}}, {"--sizes: ", "'4'"}},
        Refusal{"sizeempty", {.sizes = {""}}, {"--sizes: "}},
        Refusal{"sizeback", {.sizes = {"8MiB..4B"}}, {"--sizes: '8MiB..4B'"}},
        Refusal{"sizeopen", {.sizes = {"4B.."}}, {"--sizes: "}},
        Refusal{"sizehuge", {.sizes = {"4B..17GiB"}}, {"--sizes: ", "16 GiB"}},
        Refusal{"backend",
                {.backends = {"pigeon"}},
                {"--backend: there is no 'pigeon'", "shm-one-copy, mpi-openmpi"}},
        Refusal{"rivalasbackend", {.backends = {"memcpy"}}, {"--backend: there is no 'memcpy'"}},
        Refusal{"twice", {.backends = {"shm", "shm"}}, {"--backend names shm twice"}},
        Refusal{"mpi", {.backends = {"mpi-mpich"}}, {"--backend: mpi-mpich"}},
        Refusal{"rival", {.rivals = {"nccl"}}, {"--rivals: there is no 'nccl'", "or none"}},
        Refusal{"absent", {.rivals = {"memcpy", "openmpi"}}, {"--rivals: openmpi"}},
        Refusal{"operation", {.operation = "gather"}, {"--operation: there is no operation 'gather'"}},
        Refusal{"dtype", {.dtype = "fp8"}, {"--dtype: unknown dtype 'fp8'"}},
        Refusal{"bytes", {.dtype = "uint8"}, {"--dtype: sums of uint8"}},
        Refusal{"ahead0", {.ahead = 0}, {"--ahead"}}, Refusal{"aheadmany", {.ahead = 100'000}, {"--ahead"}},
        Refusal{"idle", {.operation = "barrier", .interference = true}, {"--interference", "leave it out"}},
        Refusal{"waiting", {.ahead = 1, .interference = true}, {"--interference", "give 2 or more"}},
        Refusal{"seedofnothing", {.seed = 3}, {"--seed", "all-to-all-v", "leave it out"}},
        Refusal{"negativeseed", {.operation = "all-to-all-v", .seed = -1}, {"--seed"}},
        Refusal{"unevenfit",
                {.sizes = {"4KiB..1MiB"}, .operation = "all-to-all-v", .cluster = "here.json"},
                {"--cluster", "all-to-all"}},
        Refusal{"notlate", {.late = "0s"}, {"--late is 0"}},
        Refusal{"lateasnever", {.late = "soon"}, {"--late", "soon"}},
        Refusal{"toolate", {.late = "20s", .timeout = "30s"}, {"--late is 20s", "30 s", "--timeout"}},
        Refusal{"latealone", {.ranks = 1, .late = "1s"}, {"--late", "--ranks"}},
        Refusal{"latetouched", {.touch = true, .late = "1s"}, {"--late", "leave out --touch"}},
        Refusal{"lateplotted", {.late = "1s", .plot = "here.svg"}, {"--late", "--plot"}},
        Refusal{
            "latecopies", {.rivals = {"memcpy"}, .late = "1s"}, {"--rivals", "memcpy waits for no other"}},
        Refusal{"untouched", {.operation = "barrier", .touch = true}, {"--touch", "leave it out"}},
        Refusal{"touchedahead", {.ahead = 2, .touch = true}, {"--touch", "leave out --ahead"}},
        Refusal{"touchedfit", {.touch = true, .cluster = "here.json"}, {"--touch", "--cluster"}},
        Refusal{"timeout", {.timeout = "soon"}, {"--timeout: 'soon'"}},
        Refusal{"timeout0", {.timeout = "0s"}, {"--timeout is 0"}},
        Refusal{
            "json", {.json = "/no/such/folder/x.json"}, {"--json: cannot write '/no/such/folder/x.json'"}},
        Refusal{"plot", {.plot = "/"}, {"--plot: cannot write '/'"}},
        Refusal{"same",
                {.json = "/tmp/dear-bench-options-test", .cluster = "/tmp/dear-bench-options-test"},
                {"name the same file"}},
        Refusal{"plotbarrier",
                {.operation = "barrier", .plot = "/tmp/dear-bench-options-test.svg"},
                {"--plot", "barrier"}},
        Refusal{"onesize",
                {.sizes = {"4B"}, .cluster = "/tmp/dear-bench-options-test"},
                {"--cluster", "two or more sizes"}},
        Refusal{"onerank",
                {.ranks = 1, .cluster = "/tmp/dear-bench-options-test"},
                {"--cluster", "more --ranks"}}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace dear::cli::bench_options_test
