#include "dear/tools/bench_collectives/protocol.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"

namespace dear::bench_collectives::protocol_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Protocol, CommandsAreReadAsTheyWereWritten) {
  const Command measure{.kind = Command::Kind::measure,
                        .operation = MeasuredOperation::all_to_all,
                        .dtype = DType::bf16,
                        .bytes = std::int64_t{1} << 40,
                        .unmeasured = 1,
                        .repetitions = 7,
                        .batch = 1000,
                        .computing = true,
                        .touching = true,
                        .late_seconds = 1.0 / 3,
                        .seed = std::uint64_t{1} << 63U};
  EXPECT_EQ(parse_command(to_text(measure)), measure);
  const Command welcome{.kind = Command::Kind::welcome, .prepare_bytes = 4096, .output_bytes = 1};
  EXPECT_EQ(parse_command(to_text(welcome)), welcome);
  EXPECT_EQ(parse_command(to_text(Command{})).kind, Command::Kind::end);
}

TEST(Protocol, RepliesAreReadAsTheyWereWritten) {
  const Reply hello{.kind = Reply::Kind::hello, .rank = 3, .size = 4};
  EXPECT_EQ(parse_reply(to_text(hello)), hello);
  const Reply right{.kind = Reply::Kind::right, .sent_bytes = std::int64_t{1} << 50};
  EXPECT_EQ(parse_reply(to_text(right)), right);
  const Reply failed{.kind = Reply::Kind::failed, .text = "rank 1: \"no\"\nand {more}"};
  EXPECT_EQ(parse_reply(to_text(failed)), failed);
  // A steady clock after a year, to the nanosecond and beyond.
  const Reply measured{.kind = Reply::Kind::measured,
                       .intervals = {{.begin_seconds = 31536000.123456789, .end_seconds = 31536000.123456795},
                                     {.begin_seconds = 1.0 / 3, .end_seconds = 2.0 / 3}},
                       .slowdowns = {1.0 / 3, 7},
                       .processor_shares = {0, 1.0 / 3}};
  EXPECT_EQ(parse_reply(to_text(measured)), measured);
}

TEST(Protocol, TextInAnyEncodingTravels) {
  const Reply reply = parse_reply(to_text(Reply{.kind = Reply::Kind::wrong, .text = "caf\xe9"}));
  EXPECT_EQ(reply.kind, Reply::Kind::wrong);
  EXPECT_THAT(reply.text, HasSubstr("caf"));
}

TEST(Protocol, WhatIsNoMessageIsAnError) {
  const std::string good = to_text(Reply{.kind = Reply::Kind::hello});
  for (const std::string& text : {std::string(), std::string("hello"), std::string("{}"), std::string("[1]"),
                                  good.substr(0, good.size() - 1), to_text(Command{})}) {
    EXPECT_THAT([&] { parse_reply(text); }, ThrowsMessage<TransportError>(HasSubstr("cannot be understood")));
  }
  EXPECT_THROW(parse_reply(R"({"reply":"measured","rank":0,"size":0,"text":"","begins":[1],"ends":[]})"),
               TransportError);
  EXPECT_THROW(parse_command(good), TransportError);
  std::string unknown = to_text(Command{});
  unknown.replace(unknown.find("\"end\""), 5, "\"run\"");
  EXPECT_THROW(parse_command(unknown), TransportError);
}

TEST(Protocol, NumbersThatAMemberCannotHoldAreAnError) {
  const std::string good = to_text(Reply{.kind = Reply::Kind::right, .rank = 77, .sent_bytes = 99});
  EXPECT_NO_THROW(parse_reply(good));
  for (const auto& [number, others] :
       {std::pair("99", std::vector{"1e300", "-1e300", "0.5", "18446744073709551615"}),
        std::pair("77", std::vector{"4294967296", "-2147483649", "true", "1e10"})}) {
    for (const char* const other : others) {
      std::string bad = good;
      bad.replace(bad.find(number), 2, other);
      EXPECT_THROW(parse_reply(bad), TransportError) << bad;
    }
  }
}

}  // namespace
}  // namespace dear::bench_collectives::protocol_test
