// Checkpoints whose description is nearly right, with checksums that are: each is loaded, or refused with one
// sentence.

#include "tests/readers/mutator.h"
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/archive/zip_reader.h"
#include "dear/base/archive/zip_writer.h"
#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"
#include "dear/train/checkpoint/checkpoint.h"
#include "dear/train/checkpoint/testing/job.h"

namespace dear::readers_test {
namespace {

constexpr std::uint64_t kSeed = 32;
constexpr int kMutants = 400;

// Copies a checkpoint of these records, with another description of what they are.
void copy_with(const archive::ZipReader& good, const std::vector<std::string>& names,
               const std::string& description, const std::string& path) {
  archive::ZipWriter writer(path);
  writer.add("data.pkl", description);
  for (const std::string& name : names) writer.add(name, good.read_text(name));
  writer.finish();
}

TEST(Checkpoints, WhoseDescriptionIsNearlyRightAreLoadedOrRefused) {
  const checkpoint::testing::Folder folder;
  const std::string good = folder.path("good.pt"), path = folder.path("mutant.pt");
  train::testing::run_all(1, [&](int, Group group) {
    checkpoint::testing::Job job(group);
    job.steps(2);
    save_checkpoint(*job.parallel, good, {.step = 2, .more = {{"epoch", "1"}}});
    const archive::ZipReader reader(good);
    std::vector<std::string> names;
    for (int i = 0; reader.has("data/" + std::to_string(i)); ++i)
      names.push_back("data/" + std::to_string(i));
    for (const char* const name : {"version", "byteorder"})
      if (reader.has(name)) names.emplace_back(name);
    ASSERT_GT(names.size(), 4U);
    const std::string description = reader.read_text("data.pkl");
    copy_with(reader, names, description, path);
    EXPECT_EQ(load_checkpoint(*job.parallel, path).step, 2);
    Mutator mutator(kSeed);
    for (int m = 0; m < dear::testing::rounds(kMutants); ++m) {
      copy_with(reader, names, mutator.mutant_of(description, false), path);
      try {
        load_checkpoint(*job.parallel, path);
      } catch (const ConfigError& error) {
        EXPECT_TRUE(is_printable(error.what())) << "mutant " << m << ": " << printable(error.what());
      } catch (const std::exception& error) {
        ADD_FAILURE() << "mutant " << m << " ends otherwise: " << error.what();
      }
    }
    load_checkpoint(*job.parallel, good);
    job.steps(1);
  });
}

}  // namespace
}  // namespace dear::readers_test
