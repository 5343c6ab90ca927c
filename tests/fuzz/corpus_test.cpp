// Each file of the corpus once, and each that was found to break a reader.

#include "tests/fuzz/target.h"
#include <algorithm>
#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/os/testing/paths.h"

namespace dear::fuzz {

#define DEAR_FUZZ_TARGET(name) void name(std::string_view bytes);
#include "targets.inc"
#undef DEAR_FUZZ_TARGET

namespace {

struct Target {
  std::string name;
  void (*read)(std::string_view);
};

std::vector<Target> targets() {
  return {
#define DEAR_FUZZ_TARGET(name) {#name, name},
#include "targets.inc"
#undef DEAR_FUZZ_TARGET
  };
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class Corpus : public ::testing::TestWithParam<Target> {};

TEST_P(Corpus, IsReadOrRefused) {
  const Target& target = GetParam();
  std::vector<std::string> files;
  for (const char* const folder : {"tests/fuzz/corpus/", "tests/fuzz/found/"})
    for (std::string& file : files_in(dear::testing::source_file(folder) + target.name))
      files.push_back(std::move(file));
  ASSERT_FALSE(files.empty());
  for (const std::string& file : files) EXPECT_NO_THROW(run(target.read, os::read_file(file))) << file;
}

INSTANTIATE_TEST_SUITE_P(Of, Corpus, ::testing::ValuesIn(targets()),
                         [](const auto& target) { return target.param.name; });

}  // namespace
}  // namespace dear::fuzz
