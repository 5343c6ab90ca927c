// Run by an mpirun on several ranks: mpi_backend_test IMPLEMENTATION. Every rank runs every test, in the same
// order.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/init.h"
#include "dear/comm/group/exchange.h"
#include "dear/comm/group/testing/conformance.h"
#include "dear/comm/mpi/mpi.h"

namespace dear::backends::mpi_backend_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string implementation;

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

MpiBackend make(const std::string& cache_folder = "", bool share_memory = true) {
  return make_mpi(channels::open_mpi({.implementation = implementation, .deadline = patience()}),
                  {.cache_folder = cache_folder, .share_memory = share_memory, .deadline = patience()});
}

// With memory beside MPI, and by messages alone.
class MpiBackendTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, MpiBackendTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "SharingMemory" : "ByMessages"; });

TEST_P(MpiBackendTest, DoesWhatEveryBackendDoes) {
  MpiBackend made = make("", GetParam());
  EXPECT_EQ(made.choices.find("through shared memory") != std::string::npos,
            GetParam() && made.backend->size() > 1)
      << made.choices;
  EXPECT_THAT(made.backend->description(), StartsWith("mpi, "));
  Group group(std::move(made.backend), {.timeout = std::chrono::seconds(60)});
  comm::testing::check_group(group);
  if (group.size() > 1) {
    comm::testing::check_waiting(group);
  }
  comm::testing::check_parts(group);
  EXPECT_EQ(group.shares_memory(), GetParam() && group.size() > 1);
  if (group.shares_memory()) {
    comm::testing::check_shared_buffers(group);
  }
}

// Parts of vectors around the lengths that one message, or all that are sent so, can hold.
TEST_P(MpiBackendTest, CarriesWhatTakesSeveralMessages) {
  Group group(make("", GetParam()).backend, {.timeout = std::chrono::seconds(60)});
  std::vector<std::int64_t> counts;
  for (const std::int64_t each : {992, 1000, 1008, 2048, 2064, 4096, 8192, 8208, 65'536, 262'144, 262'160}) {
    counts.push_back(each * group.size());
    counts.push_back(each * group.size() - 3);  // shards of several lengths
  }
  const comm::testing::ConformanceOptions options{
      .dtypes = {DType::f32, DType::i64}, .reductions = {Reduction::sum}, .counts = counts};
  comm::testing::check_reductions(group, options);
  comm::testing::check_movements(group, options);
}

// As `dear train --backend mpi` does it.
TEST(MpiBackend, IsThereByName) {
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);  // the tests leave nothing behind in the user's
  std::string said;
  Group group = init({.backend = "mpi", .say = [&](const std::string& sentence) { said = sentence; }});
  EXPECT_EQ(said.empty(), group.rank() != 0 || group.size() == 1) << said;
  agree(group, "number of ranks", group.size(), [&] { return std::to_string(group.size()); });
}

// CMakeLists.txt runs these cases on two ranks alone.
class Remembering : public ::testing::Test {
 protected:
  static MpiBackend by_messages(const std::string& cache_folder) { return make(cache_folder, false); }

  // Of rank 0; only that one is read and written.
  Remembering() { std::filesystem::remove_all(folder_); }
  ~Remembering() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.path().extension() == ".json") {
        return entry.path();
      }
    }
    return "";
  }

  [[nodiscard]] nlohmann::json content() const { return nlohmann::json::parse(os::read_file(file())); }
  void rewrite(const std::function<void(nlohmann::json&)>& change) const {
    if (!std::filesystem::exists(folder_)) {  // not rank 0
      return;
    }
    nlohmann::json changed = content();
    change(changed);
    os::write_file_atomically(file(), changed.dump());
  }
  // The least and the greatest in the file; on other ranks than 0 `elsewhere`.
  [[nodiscard]] std::pair<double, double> seconds(double elsewhere) const {
    std::vector<double> all = {elsewhere};
    if (std::filesystem::exists(folder_)) {
      all.clear();
      const nlohmann::json now = content();
      for (const auto& one : now.at("found")) {
        all.push_back(one.at("seconds").get<double>());
      }
    }
    const auto [least, greatest] = std::minmax_element(all.begin(), all.end());
    return {*least, *greatest};
  }

  const std::string folder_ =
      (std::filesystem::temp_directory_path() / ("dear-mpi-test-" + std::to_string(getpid()))).string();
};

// As if everything had been so slow that nothing is slower today.
TEST_F(Remembering, WhatWasMeasuredServesTheNextTime) {
  const std::string first = by_messages(folder_).choices;
  EXPECT_THAT(first, HasSubstr("measured in"));
  rewrite([](nlohmann::json& file) {
    for (auto& one : file.at("found")) {
      one["seconds"] = 1e6;
      one.erase("second");
    }
  });
  const std::string second = by_messages(folder_).choices;
  EXPECT_THAT(second, HasSubstr("remembered in"));
  EXPECT_THAT(second, Not(HasSubstr("measured")));
  EXPECT_EQ(first.substr(first.find(" (reduce-scatter:")), second.substr(second.find(" (reduce-scatter:")));
  // What is faster than it was is remembered so, or the check would not see it become slow again.
  EXPECT_LT(seconds(0).first, 1e6);
}

TEST_F(Remembering, WhatIsSlowerThanItWasIsMeasuredAgain) {
  by_messages(folder_);
  static constexpr double kNothingTakes = 1e-12;
  rewrite([](nlohmann::json& file) {
    for (auto& one : file.at("found")) {
      one["seconds"] = kNothingTakes;
    }
  });
  EXPECT_THAT(by_messages(folder_).choices, HasSubstr("slower than then"));
  EXPECT_GT(seconds(1).second, kNothingTakes);
}

TEST_F(Remembering, AFileWithoutTimesIsMeasuredAnew) {
  by_messages(folder_);
  rewrite([](nlohmann::json& file) { file["dear-mpi-choices"] = 7; });
  EXPECT_THAT(by_messages(folder_).choices, StartsWith("algorithms measured in"));
}

TEST_F(Remembering, ABrokenFileIsMeasuredAnew) {
  by_messages(folder_);
  if (std::filesystem::exists(folder_)) {
    os::write_file_atomically(file(), "{");
  }
  EXPECT_THAT(by_messages(folder_).choices, HasSubstr("measured in"));
}

TEST_F(Remembering, AFolderThatCannotBeWrittenIsNoError) {
  MpiBackend made = by_messages("/proc/nowhere");
  if (made.backend->rank() == 0) {
    EXPECT_THAT(made.choices, HasSubstr("not remembered: "));
  }
}

}  // namespace
}  // namespace dear::backends::mpi_backend_test

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (argc != 2) {
    std::fprintf(stderr, "usage: mpi_backend_test IMPLEMENTATION\n");
    return 2;
  }
  dear::backends::mpi_backend_test::implementation = argv[1];
  return RUN_ALL_TESTS();
}
