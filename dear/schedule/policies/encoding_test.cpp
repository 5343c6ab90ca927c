#include "dear/schedule/policies/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/schedule/policies/decision.h"
#include "dear/schedule/policies/one_copy.h"
#include "dear/schedule/policies/policy.h"
#include "dear/schedule/policies/testing/pieces.h"

namespace dear::encoding_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Way = EncodedPart::Way;

const Workload kWorkload = testing::two_layers();
const Grouping kGrouping = group(kWorkload, PerLayer{});

const Encoding kReducible{.parts = {{.bytes = 8}}};
const Encoding kGatherable{.parts = {{.way = Way::gathered, .bytes = 32}}};
const Encoding kLowRank{
    .parts = {{.way = Way::reduced, .bytes = 12}, {.way = Way::halves, .round = 1, .bytes = 20}}};

Schedule encoded(const std::string& policy, const Encoding& encoding, const Grouping& grouping = kGrouping) {
  return with_encodings(make_schedule(find_policy(policy), kWorkload, grouping), kWorkload, grouping,
                        std::vector<Encoding>(grouping.size(), encoding));
}

std::vector<std::string> lane_of(const Schedule& schedule, const std::string& name) {
  std::vector<std::string> names;
  for (LaneId lane = 0; lane < schedule.lanes().size(); ++lane)
    if (schedule.lanes()[lane].name == name)
      for (const StepId step : schedule.steps_of(lane)) names.push_back(name_of(schedule.steps()[step].work));
  return names;
}

TEST(Encoding, ReduciblePayloadsTravelInTheHalvesOfDear) {
  const Schedule schedule = encoded("dear", kReducible);
  EXPECT_THAT(lane_of(schedule, "codec"),
              ElementsAre("encode, bucket 1", "encode, bucket 0", "decode, bucket 0", "decode, bucket 1"));
  EXPECT_THAT(
      lane_of(schedule, "network"),
      ElementsAre("reduce-scatter of encoded part 0, bucket 1", "reduce-scatter of encoded part 0, bucket 0",
                  "all-gather of encoded part 0, bucket 0", "all-gather of encoded part 0, bucket 1"));
  EXPECT_THAT(lane_of(schedule, "update"),
              ElementsAre("update of whole, bucket 0", "update of whole, bucket 1"));
  EXPECT_EQ(schedule.publishers_of(1).front(), schedule.update_of(1));
}

TEST(Encoding, UnderAPolicyThatAllReducesTheyTravelInOne) {
  const Schedule schedule = encoded("wfbp", kReducible);
  EXPECT_THAT(lane_of(schedule, "network"), ElementsAre("all-reduce of encoded part 0, bucket 1",
                                                        "all-reduce of encoded part 0, bucket 0"));
  EXPECT_THAT(lane_of(schedule, "codec"), ::testing::SizeIs(4));
}

TEST(Encoding, GatherablePayloadsTravelOnceEarlyOrLate) {
  const std::vector<std::string> early = {"all-gather of encoded part 0, bucket 1",
                                          "all-gather of encoded part 0, bucket 0"};
  EXPECT_EQ(lane_of(encoded("dear", kGatherable), "network"), early);
  EXPECT_EQ(lane_of(encoded("serial", kGatherable), "network"), early);
  Encoding late = kGatherable;
  late.gathers_late = true;
  EXPECT_THAT(lane_of(encoded("dear", late), "network"), ElementsAre(early[1], early[0]));
  EXPECT_EQ(lane_of(encoded("wfbp", late), "network"), early);
}

TEST(Encoding, SecondRoundsFollowTheNextBucketsFirst) {
  const Schedule schedule = encoded("dear", kLowRank);
  EXPECT_THAT(lane_of(schedule, "codec"),
              ElementsAre("encode, bucket 1", "encode, bucket 0", "encode round 1, bucket 1",
                          "encode round 1, bucket 0", "decode, bucket 0", "decode, bucket 1"));
  EXPECT_THAT(
      lane_of(schedule, "network"),
      ElementsAre("all-reduce of encoded part 0, bucket 1", "all-reduce of encoded part 0, bucket 0",
                  "reduce-scatter of encoded part 1, bucket 1", "reduce-scatter of encoded part 1, bucket 0",
                  "all-gather of encoded part 1, bucket 0", "all-gather of encoded part 1, bucket 1"));
}

TEST(Encoding, DenseBucketsStayAsTheyAre) {
  const Schedule dense = make_schedule(find_policy("dear"), kWorkload, kGrouping);
  EXPECT_EQ(with_encodings(dense, kWorkload, kGrouping, {{}, {}}).digest(), dense.digest());
  const Schedule mixed = with_encodings(dense, kWorkload, kGrouping, {{}, kReducible});
  EXPECT_THAT(
      lane_of(mixed, "network"),
      ElementsAre("reduce-scatter of encoded part 0, bucket 1", "reduce-scatter of gradients, bucket 0",
                  "all-gather of parameters, bucket 0", "all-gather of encoded part 0, bucket 1"));
  EXPECT_EQ(mixed.publishers_of(0).size(), 1U);
}

TEST(Encoding, EveryPolicyThatTrainsTakesAnyEncodingOrRefusesAll) {
  for (const Policy& policy : training_policies()) {
    SCOPED_TRACE(policy.name);
    for (const Encoding& encoding : {kReducible, kGatherable, kLowRank}) {
      if (policy.name == "dear-eager") {
        EXPECT_THROW((void)encoded(std::string(policy.name), encoding), ScheduleError);
        continue;
      }
      const Schedule schedule = encoded(std::string(policy.name), encoding);
      EXPECT_NO_THROW((void)with_decision(schedule, kWorkload, kGrouping));
      EXPECT_THROW((void)with_one_copy(schedule, kWorkload, kGrouping), ScheduleError);
    }
  }
}

// Parameters are gathered in pieces, again, inside nodes, or in the next iteration.
TEST(Encoding, PoliciesThatGatherParametersOtherwiseRefuseIt) {
  for (const char* const name : {"fsdp", "hsdp", "megatron"})
    EXPECT_THROW((void)encoded(name, kReducible), ScheduleError) << name;
  for (const char* const name : {"ddp", "horovod", "mg-wfbp", "zero-1"})
    EXPECT_NO_THROW((void)encoded(name, kReducible)) << name;
}

TEST(Encoding, TheDigestCountsBytesAndParts) {
  Encoding other = kReducible;
  other.parts[0].bytes = 12;
  EXPECT_NE(encoded("dear", kReducible).digest(), encoded("dear", other).digest());
}

// A schedule of one bucket, of two layers, that travels encoded: steps 5 to 9.
struct EncodedPieces : testing::Pieces {
  LaneId codec = builder.lane("codec", LaneKind::codec);
  bool decodes_after_commit = true, encodes_after_backward = true;

  static Communicate part(Collective collective, std::uint8_t number = 0) {
    return {.collective = collective, .payload = Payload::encoded, .chunk = {0, 8}, .part = number};
  }
  void with(const std::vector<Communicate>& parts, int encodes = 1, int decodes = 1) {
    program();
    std::vector<StepId> encoded_at;
    for (int i = 0; i < encodes; ++i) encoded_at.push_back(builder.add(Encode{0}, codec));
    if (encodes_after_backward && encodes > 0) builder.edge(2, encoded_at[0]).edge(3, encoded_at[0]);
    std::optional<StepId> last;
    for (const Communicate& work : parts) {
      const StepId step = builder.add(work, network);
      if (encodes > 0) builder.edge(last.value_or(encoded_at[0]), step);
      last = step;
    }
    for (int i = 0; i < decodes; ++i) {
      const StepId decode = builder.add(Decode{0}, codec);
      if (last) builder.edge(*last, decode);
      if (decodes_after_commit) builder.edge(4, decode);
      last = decode;
    }
    const StepId updated = update(UpdateScope::whole, last.value_or(4));
    builder.edge(updated, 2, 1).edge(updated, 3, 1);
    publish(updated);
  }
};

TEST(Builder, RefusesEncodedBucketsThatAreNotReducedOnceOrDecodedOnce) {
  const Communicate all_reduce = EncodedPieces::part(Collective::all_reduce);
  struct Fault {
    std::vector<Communicate> parts;
    int encodes, decodes;
    const char* message;
  };
  const std::vector<Fault> faults = {
      {{}, 1, 1, "no part of it travels"},
      {{all_reduce}, 0, 1, "never encoded"},
      {{all_reduce}, 2, 1, "do the same work"},
      {{all_reduce}, 1, 0, "never decoded"},
      {{all_reduce}, 1, 2, "decoded twice"},
      {{all_reduce, all_reduce}, 1, 1, "reduced twice"},
      {{EncodedPieces::part(Collective::reduce_scatter)}, 1, 1, "add an all-gather"},
      {{all_reduce, testing::Pieces::all_reduce()}, 1, 1, "travels encoded: leave it out"}};
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.message);
    EncodedPieces pieces;
    pieces.with(fault.parts, fault.encodes, fault.decodes);
    testing::expect_refused(pieces, HasSubstr(fault.message));
  }
}

TEST(Builder, RefusesCodecStepsThatMayComeTooEarly) {
  const Communicate all_reduce = EncodedPieces::part(Collective::all_reduce);
  {
    EncodedPieces pieces;
    pieces.with({all_reduce});
    EXPECT_NO_THROW((void)pieces.build());
  }
  {
    EncodedPieces pieces;
    pieces.encodes_after_backward = false;
    pieces.with({all_reduce});
    testing::expect_refused(pieces, HasSubstr("backward adds to"));
  }
  {
    EncodedPieces pieces;
    pieces.decodes_after_commit = false;
    pieces.with({all_reduce});
    testing::expect_refused(pieces, HasSubstr("may still read"));
  }
  {
    EncodedPieces pieces;
    pieces.program();
    pieces.builder.add(Encode{0}, pieces.updates);
    testing::expect_refused(pieces, HasSubstr("lane of its own kind"));
  }
}

}  // namespace
}  // namespace dear::encoding_test
