#include "dear/codec/compression.h"

#include <gtest/gtest.h>

namespace dear::compression_test {
namespace {

TEST(Compression, GathersWhatEachRankChoosesByItself) {
  EXPECT_TRUE(Compression{.scheme = Scheme::top_k}.gathers());
  EXPECT_FALSE(Compression{.scheme = Scheme::random_k}.gathers());
  EXPECT_TRUE((Compression{.scheme = Scheme::random_k, .own_indices = true}.gathers()));
  EXPECT_FALSE(Compression{.scheme = Scheme::sketch}.gathers());
}

}  // namespace
}  // namespace dear::compression_test
