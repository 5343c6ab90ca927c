// Bad input is one sentence, and a rank that fails or leaves is named by the others.

#include <limits>

#include "dear/base/vocabulary/error.h"
#include "dear/systems/moe/mixture.h"
#include "dear/systems/moe/testing/passed.h"

namespace dear::systems::moe::failures_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::input_of;
using testing::kExperts;
using testing::kWidth;
using testing::options_of;
using train::testing::groups_of;
using train::testing::message_of;
using train::testing::run_all;
using train::testing::run_each;
using train::testing::what_of;

std::string refusal(int ranks, const MixtureOptions& options) {
  std::string message;
  run_all(ranks, [&](int rank, const Group& group) {
    const std::string mine =
        message_of<ConfigError>([&] { Mixture(options, std::make_shared<ExpertGroup>(group)); });
    if (rank == 0) message = mine;
  });
  return message;
}

TEST(Refusals, OfOptionsAreOneSentence) {
  const auto with = [](auto change) {
    MixtureOptions options = options_of({});
    change(options);
    return options;
  };
  EXPECT_THAT(refusal(2, with([](auto& o) { o.experts = 7; })),
              HasSubstr("7 experts cannot be dealt to 2 ranks"));
  EXPECT_THAT(refusal(1, with([](auto& o) { o.experts = 0; })), HasSubstr("0 experts"));
  EXPECT_THAT(refusal(1, with([](auto& o) { o.gate = "swish"; })),
              HasSubstr("there is no gate 'swish': choose one of switch, top2, batch-prioritized"));
  EXPECT_THAT(refusal(1, with([](auto& o) { o.capacity_factor = 0; })), HasSubstr("a capacity factor of 0"));
  EXPECT_THAT(refusal(1, with([](auto& o) { o.width = 0; })), HasSubstr("each must be at least 1"));
  EXPECT_THAT(refusal(1, with([](auto& o) { o.parts = 0; })), HasSubstr("each must be at least 1"));
  EXPECT_THAT(message_of<ConfigError>([] { static_cast<void>(find_expert_overlap("all")); }),
              HasSubstr("there is no overlap 'all': choose one of none, experts, lancet"));
}

TEST(Refusals, OfOptionsThatDifferNameTheRank) {
  for (const std::exception_ptr& error : run_each(groups_of(2), [](int rank, const Group& group) {
         MixtureOptions options = options_of({});
         options.capacity_factor += rank;
         Mixture(options, std::make_shared<ExpertGroup>(group));
       }))
    EXPECT_THAT(what_of(error), AllOf(HasSubstr("mixture of experts"), HasSubstr("rank 1")));
}

TEST(Refusals, OfInputsAreOneSentence) {
  const auto refused = [](const torch::Tensor& x, int parts = 1) {
    return message_of<ConfigError>([&] {
      run_all(1, [&](int /*rank*/, const Group& group) {
        Mixture mixture(options_of({.parts = parts}), std::make_shared<ExpertGroup>(group));
        mixture(x);
      });
    });
  };
  EXPECT_THAT(refused(torch::ones({4, 9, kWidth + 1})),
              HasSubstr("takes (batch, ..., 8), and this is [4, 9, 9]"));
  EXPECT_THAT(refused(torch::ones({kWidth})), HasSubstr("this is [8]"));
  EXPECT_THAT(refused(torch::ones({0, 9, kWidth})), HasSubstr("this is [0, 9, 8]"));
  EXPECT_THAT(refused(torch::ones({1, kExperts - 1, kWidth})),
              HasSubstr("7 tokens are too few for 8 experts"));
  EXPECT_THAT(refused(torch::ones({4, 9, kWidth}), 3), HasSubstr("3 parts do not divide a batch of 4"));
  EXPECT_THAT(refused(torch::ones({4, 9, kWidth}, torch::kFloat64)), HasSubstr("was given Double on cpu"));
  EXPECT_THAT(refused(torch::full({4, 9, kWidth}, std::numeric_limits<float>::quiet_NaN())),
              HasSubstr("is not a finite number"));
}

// Rank 1 does `act` in place of a pass; what the others of three ranks say.
void expect_blame(const std::function<void(Mixture&)>& act, const std::string& why) {
  const auto errors = run_each(groups_of(3), [&](int rank, const Group& group) {
    MixtureOptions options = options_of({});
    options.experts = 6;
    Mixture mixture(options, std::make_shared<ExpertGroup>(group));
    if (rank == 1) return act(mixture);
    mixture(input_of(rank)).sum().backward();
  });
  for (const std::size_t rank : {0, 2})
    EXPECT_THAT(what_of(errors[rank]), AllOf(HasSubstr("rank 1"), HasSubstr(why)));
}

TEST(Failures, OfARankAreToldToAll) {
  expect_blame([](Mixture& mixture) { mixture(input_of(1) * std::numeric_limits<float>::infinity()); },
               "not a finite number");
  expect_blame([](Mixture& /*mixture*/) { throw std::runtime_error("no more data"); }, "ended");
  expect_blame(
      [](Mixture& mixture) {  // within the backward pass
        torch::Tensor y = mixture(input_of(1));
        y.register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
          throw std::runtime_error("a hook that fails, of " + std::to_string(gradient.numel()));
        });
        y.sum().backward();
      },
      "ended");
}

TEST(Failures, OfARankThatLeavesNameIt) {
  expect_blame([](Mixture& mixture) { mixture = nullptr; }, "");
}

// Rank 1 keeps to the room of each part, but both parts together are beyond the capacity.
TEST(Failures, CountsBeyondTheCapacityNameTheRankThatSentThem) {
  const auto errors = run_each(groups_of(2), [&](int rank, const Group& group) {
    // 36 tokens and 8 experts: 2 places, and room for as many in each part.
    const MixtureOptions options = options_of({.capacity_factor = 0.5, .parts = 2});
    Mixture mixture(options, std::make_shared<ExpertGroup>(group));
    if (rank == 0) {
      mixture(input_of(rank));
      return;
    }
    const auto launch = [&] {
      return mixture->ranks()->launch("rows", {.chunks = 4, .room = 2, .width = kWidth},
                                      std::vector<std::int64_t>(8, 2), [](std::byte* /*rows*/) {});
    };
    const auto end = [&](auto under_way) {
      mixture->ranks()->wait(*under_way);
      mixture->ranks()->done(under_way);
    };
    const auto first = launch(), second = launch();  // the tokens of both parts
    end(first);
    const auto results = launch();  // of the first part
    end(second);
    end(results);
    end(launch());  // those of the second never come
  });
  EXPECT_THAT(what_of(errors[0]), AllOf(HasSubstr("rank 0: rank 1 says that it sends 4 tokens to expert 0"),
                                        HasSubstr("2 places")));
  EXPECT_THAT(what_of(errors[1]), HasSubstr("rank 0"));
}

TEST(Failures, CountsBeyondTheRoomAreRefusedBeforeARowIsWritten) {
  const auto errors = run_each(groups_of(2), [&](int rank, const Group& group) {
    ExpertGroup ranks(group);
    const auto one =
        ranks.launch("tokens", {.chunks = 1, .room = 2, .width = 4},
                     rank == 1 ? std::vector<std::int64_t>{3, 0} : std::vector<std::int64_t>{2, 0},
                     [](std::byte* rows) { std::fill_n(rows, 2 * 2 * 4 * sizeof(float), std::byte{1}); });
    const std::string message = message_of<TransportError>([&] { ranks.wait(*one); });
    EXPECT_NE(message, "no such error");
    const bool written = std::any_of(one->taken(), one->taken() + 2 * 2 * 4 * sizeof(float),
                                     [](std::byte byte) { return byte != std::byte{0}; });
    EXPECT_FALSE(rank == 0 && written);
    throw std::runtime_error(message);
  });
  EXPECT_THAT(what_of(errors[0]), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace dear::systems::moe::failures_test
