#include "dear/base/launch/own_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dear::launch::own_command_test {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

TEST(OwnCommand, BeginsWithThePathOfTheProgram) {
  EXPECT_THAT(own_program(), EndsWith("launch_test"));
  EXPECT_EQ(own_command("--none").front(), own_program());
}

TEST(OwnCommand, LeavesOutWordsButTheProgram) { EXPECT_THAT(own_command(""), ElementsAre(own_program())); }

}  // namespace
}  // namespace dear::launch::own_command_test
