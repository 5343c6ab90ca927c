#include "dear/methods/pipeline/messages.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/pipeline/models_in_test.h"
#include "dear/schedule/codec/codec.h"

namespace dear::methods::pipeline::messages_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

constexpr CompressionRule kTopK = CompressionRule::top_k, kAda = CompressionRule::ada_top_k;

Operator output_of(std::int64_t elements, DType dtype = DType::f32) {
  return {.name = "x", .output_bytes = elements * size_of(dtype), .dtype = dtype};
}

// What the codec itself writes.
TEST(Messages, HaveTheSizeOfTheCodec) {
  for (const std::int64_t elements : {1, 7, 100, 4096, 100000}) {
    for (const double ratio : {2.5, 3.0, 10.0, 100.0, 300.0}) {
      const auto codec = codec::make_gatherable(
          {.scheme = Scheme::top_k, .ratio = 1 / ratio, .dense_below = 0}, {{.range = {0, elements}}}, 0);
      EXPECT_EQ(sent_bytes(output_of(elements), ratio), codec->bytes(0)) << elements << " " << ratio;
    }
  }
  EXPECT_EQ(sent_bytes(output_of(100), 1), 400);
  EXPECT_EQ(sent_elements(output_of(100), 1), 100);
  EXPECT_EQ(sent_elements(output_of(3), 100), 1);  // never none
}

// Three devices; the first link carries 8 times as fast as the second, and the way back of that is faster.
PairCluster three_devices() {
  PairCluster cluster = alike_cluster(3, 1, 800);
  cluster.bytes_per_second[1][2] = 100;
  cluster.bytes_per_second[2][1] = 200;
  return cluster;
}

std::vector<Message> messages_of(const LinkCompression& compression, std::vector<Operator> operators) {
  const OperatorDag dag("m", std::move(operators));
  return compressed_messages(dag, three_devices(), {{0, {0, 1}}, {1, {1, 2}}, {2, {2, 3}}}, compression);
}

TEST(AdaTopK, GivesSlowLinksLargeRatios) {
  const std::vector<Message> messages =
      messages_of({.rule = kAda, .ratio = 20, .overhead = 2}, chain_of(3, 1, 4000));
  ASSERT_THAT(messages, SizeIs(2));
  // Busy for 5, 5, 40 and 20 s.
  EXPECT_DOUBLE_EQ(messages[0].activation_ratio, 5);
  EXPECT_DOUBLE_EQ(messages[0].gradient_ratio, 5);
  EXPECT_DOUBLE_EQ(messages[1].activation_ratio, 40);
  EXPECT_DOUBLE_EQ(messages[1].gradient_ratio, 20);
  // The slowest carries 1 / 20 of its bytes, and all of them take equally long.
  const Operator output = output_of(1000);
  EXPECT_EQ(sent_bytes(output, 40), 4000 / 20);
  EXPECT_EQ(sent_bytes(output, 5) / 800.0, sent_bytes(output, 40) / 100.0);
}

TEST(AdaTopK, LeavesDenseWhatWouldBeNoSmaller) {
  // Ratios of 2.0, 2.0, 16 and 8: at 2 an index and a value are as much as two values.
  std::vector<Message> messages =
      messages_of({.rule = kAda, .ratio = 8, .overhead = 2}, chain_of(3, 1, 4000));
  ASSERT_THAT(messages, SizeIs(1));
  EXPECT_EQ(messages[0].from_stage, 1);
  messages = messages_of({.rule = kAda, .ratio = 8.5, .overhead = 2}, chain_of(3, 1, 4000));
  EXPECT_THAT(messages, SizeIs(2));
  // Of half the bytes an element it pays from 4 on.
  std::vector<Operator> halves = chain_of(3, 1, 4000);
  for (Operator& op : halves) op.dtype = DType::bf16;
  EXPECT_THAT(messages_of({.rule = kTopK, .ratio = 4}, halves), IsEmpty());
  EXPECT_THAT(messages_of({.rule = kTopK, .ratio = 4.1}, halves), SizeIs(2));
  // A single element is smaller dense.
  EXPECT_THAT(messages_of({.rule = kTopK, .ratio = 100}, chain_of(3, 1, 4)), IsEmpty());
  EXPECT_THAT(messages_of({.rule = kAda, .ratio = 1, .overhead = 1}, chain_of(3, 1, 4000)), IsEmpty());
  EXPECT_THAT(messages_of({}, chain_of(3, 1, 4000)), IsEmpty());
}

TEST(AdaTopK, NeverTouchesIntegers) {
  std::vector<Operator> operators = chain_of(3, 1, 4000);
  operators[0].dtype = DType::i64;
  operators[2].inputs = {0, 1};
  for (const CompressionRule rule : {kTopK, kAda}) {
    for (const Message& message : messages_of({.rule = rule, .ratio = 100}, operators)) {
      EXPECT_EQ(message.output, 1U);
      EXPECT_EQ(message.from_stage, 1);
    }
  }
}

// Links that are as slow as each other get the same ratio, and so do all outputs on one.
TEST(AdaTopK, TreatsTiesAlike) {
  std::vector<Operator> operators = chain_of(4, 1, 4000);
  operators[3].inputs = {0, 2};
  const OperatorDag dag("m", operators);
  const std::vector<Message> messages = compressed_messages(
      dag, alike_cluster(2, 1, 10), {{0, {0, 2}}, {1, {2, 4}}}, {.rule = kAda, .ratio = 50, .overhead = 3});
  ASSERT_THAT(messages, SizeIs(2));
  for (const Message& message : messages) {
    EXPECT_EQ(message.activation_ratio, 150);
    EXPECT_EQ(message.gradient_ratio, 150);
  }
  EXPECT_EQ(messages[0].output, 0U);
  EXPECT_EQ(messages[1].output, 1U);
  // Nothing travels within a device.
  EXPECT_THAT(compressed_messages(dag, alike_cluster(1, 1, 10), {{0, {0, 2}}, {0, {2, 4}}},
                                  {.rule = kTopK, .ratio = 50}),
              IsEmpty());
}

TEST(AdaTopK, IsRefusedWithOneSentence) {
  const auto refused = [](const LinkCompression& compression, const std::string& message) {
    EXPECT_THAT([&] { check(compression); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double ratio : {0.5, 0.0, -1.0, kNan, HUGE_VAL})
    refused({.ratio = ratio}, "the ratio of a compression is");
  refused({.overhead = kNan}, "the overhead of a compression is nan");
  EXPECT_EQ(find_compression_rule("ada-top-k"), kAda);
  EXPECT_THAT([] { (void)find_compression_rule("ada-topk"); },
              ThrowsMessage<ConfigError>(HasSubstr("did you mean ada-top-k?")));
}

}  // namespace
}  // namespace dear::methods::pipeline::messages_test
