#include "studies/fusionllm/fusionllm.h"

#include "studies/fusionllm/report.h"
#include "studies/report/testing/verdicts.h"
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "dear/base/os/testing/paths.h"
#include "dear/base/vocabulary/error.h"

namespace dear::studies::fusionllm {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr auto kFence = PlanMethod::op_fence, kDp = PlanMethod::plain_dp, kNumber = PlanMethod::equal_number,
               kWork = PlanMethod::equal_work;
constexpr auto kNone = CompressionRule::none, kTop = CompressionRule::top_k,
               kAda = CompressionRule::ada_top_k;

PublishedFusionLlm published() {
  return read_published_fusionllm(dear::testing::source_file("docs/study/fusionllm/published.json"));
}

Digits digits() { return read_digits(dear::testing::source_file("docs/study/fusionllm/digits.txt")); }

Iteration iteration(const std::string& setting, const std::string& model, std::uint64_t seed,
                    PlanMethod method, CompressionRule rule, double seconds) {
  return {.setting = setting,
          .model = model,
          .seed = seed,
          .between_bits_per_second = 8e6,
          .method = method,
          .rule = rule,
          .devices = 48,
          .seconds = seconds,
          .estimated_seconds = seconds,
          .elements = rule == kAda ? 4.0 : 1.0};
}

LearntWith learnt(CompressionRule rule, double ratio, double loss) {
  return {.rule = rule,
          .ratio = ratio,
          .learning_rate = 0.1,
          .by_seed = {{.test_loss = loss}, {.test_loss = loss}},
          .slowest_seconds = {1, 1},
          .elements = {1, 1}};
}

// Every statement holds of these iterations and losses.
FusionLlmFindings as_published() {
  FusionLlmFindings findings;
  for (const std::string& model : published().models) {
    for (const Setting* const setting : {&assumptions()[0], &assumptions()[1]})
      for (const std::uint64_t seed : {1, 2}) {
        const double rivals = seed == 1 ? 1.5 : 9.39;
        for (const auto& [method, rule, seconds] : {std::tuple{kFence, kNone, 1.2},
                                                    {kFence, kTop, 1.0},
                                                    {kFence, kAda, 1.0},
                                                    {kDp, kAda, 2.0},
                                                    {kNumber, kNone, rivals},
                                                    {kNumber, kTop, rivals},
                                                    {kNumber, kAda, 1.4},
                                                    {kWork, kNone, rivals},
                                                    {kWork, kTop, rivals}})
          findings.assumed.all.push_back(iteration(setting->name, model, seed, method, rule, seconds));
      }
    for (const auto& [megabits, gain] : {std::pair{2500.0, 2.0}, {100.0, 6.0}})
      for (const auto& [method, rule] : {std::pair{kFence, kAda}, {kNumber, kNone}}) {
        const Setting setting = with_bandwidth_between(1e6 * megabits);
        findings.by_bandwidth.all.push_back(
            iteration(setting.name, model, 1, method, rule, method == kFence ? 1 : gain));
        findings.by_bandwidth.all.back().between_bits_per_second = 1e6 * megabits;
      }
  }
  findings.learnt = {learnt(kNone, 1, 0.1), learnt(kTop, 5, 0.3), learnt(kAda, 5, 0.11),
                     learnt(kTop, 10, 0.5)};
  return findings;
}

// Multiplies the times of some plans.
auto slower(PlanMethod method, CompressionRule rule, double factor) {
  return [=](FusionLlmFindings& findings) {
    for (Iteration& one : findings.assumed.all)
      if (one.method == method && one.rule == rule) one.seconds *= factor;
  };
}

auto rivals_slower(double factor) {
  return [=](FusionLlmFindings& findings) {
    for (const Rival& rival : rivals()) slower(rival.method, rival.rule, factor)(findings);
  };
}

auto slower_between(double megabits) {
  return [=](FusionLlmFindings& findings) {
    for (Iteration& one : findings.by_bandwidth.all)
      if (one.between_bits_per_second == 1e6 * megabits && one.method == kFence) one.seconds *= 2;
  };
}

auto loss_of(CompressionRule rule, double ratio, double loss) {
  return [=](FusionLlmFindings& findings) {
    for (LearntWith& one : findings.learnt)
      if (one.rule == rule && one.ratio == ratio)
        for (Learnt& seed : one.by_seed) seed.test_loss = loss;
  };
}

std::string verdict(const FusionLlmFindings& findings, const std::string& words) {
  for (const studies::Statement& one : statements_of(published(), findings))
    if (one.says.find(words) != std::string::npos) return one.verdict();
  return "no such statement";
}

TEST(StudyOfFusionLlm, EveryVerdictCanFail) {
  const std::vector<studies::testing::WrongResult<FusionLlmFindings>> wrong{
      {"is at least 1.45 times as fast as equal cuts", rivals_slower(0.1)},
      {"is up to 9.39 times as fast", rivals_slower(2)},
      {"Without compression, OP-Fence is faster than equal numbers", slower(kNumber, kNone, 0.2)},
      {"Without compression, OP-Fence is faster than equal work", slower(kWork, kNone, 0.2)},
      {"OP-Fence is faster than the best cuts", slower(kDp, kAda, 0.4)},
      {"AdaTopK makes equal numbers faster", slower(kNumber, kAda, 9)},
      {"AdaTopK makes OP-Fence faster", slower(kFence, kNone, 0.5)},
      {"OP-Fence with AdaTopK is at least 0.9 times as fast as", slower(kFence, kTop, 0.8)},
      {"AdaTopK sends at least 2 times",
       [](FusionLlmFindings& findings) {
         for (Iteration& one : findings.assumed.all) one.elements = 1;
       }},
      {"Where links between sites have a half", slower_between(2500)},
      {"Where they have a fiftieth", slower_between(100)},
      {"closed form of an iteration",
       [](FusionLlmFindings& findings) { findings.assumed.all.front().estimated_seconds *= 0.7; }},
      {"With the same ratio", loss_of(kTop, 5, 0.111)},
      {"With the slowest link as busy", loss_of(kTop, 10, 0.111)},
      {"A network learns with AdaTopK", loss_of(kAda, 5, 0.2)}};
  studies::testing::expect_every_verdict_can_fail(
      as_published(), wrong,
      [](const FusionLlmFindings& findings) { return statements_of(published(), findings); });
}

// A statement that holds as drawn and not under another assumption is not comparable, and so is a figure that
// is passed over.
TEST(StudyOfFusionLlm, AnAssumptionThatDecidesLeavesTheVerdictOpen) {
  FusionLlmFindings findings = as_published();
  EXPECT_EQ(verdict(findings, "at least 1.45 times as fast as equal cuts"), "holds");
  for (Iteration& one : findings.assumed.all)
    if (one.setting == assumptions()[1].name && one.method == kFence) one.seconds *= 4;
  EXPECT_EQ(verdict(findings, "at least 1.45 times as fast as equal cuts"), "not comparable");
  EXPECT_EQ(verdict(findings, "up to 9.39"), "not comparable");
  for (Iteration& one : findings.assumed.all)
    if (one.setting == assumptions()[0].name && one.method == kFence) one.seconds *= 0.5;
  EXPECT_EQ(verdict(findings, "up to 9.39"), "not comparable");  // above, and below
  for (Iteration& one : findings.assumed.all)
    if (one.method == kFence) one.seconds *= 20;
  EXPECT_EQ(verdict(findings, "up to 9.39"), "does not hold");

  findings = as_published();
  findings.learnt.push_back(learnt(kAda, 10, 0.9));
  EXPECT_EQ(verdict(findings, "A network learns"), "not comparable");
  findings.learnt.back().by_seed.front().test_loss = 0.1;  // one seed each way
  EXPECT_EQ(verdict(findings, "A network learns"), "undecided");
  EXPECT_EQ(verdict({}, "A network learns"), "not looked at");
}

TEST(StudyOfFusionLlm, SettingsChangeWhatTheySay) {
  const auto of = [](const Setting& setting, const std::string& model, PlanMethod method,
                     CompressionRule rule) {
    return play(setting, model, 1, {{.method = method, .rule = rule}}).all.at(0);
  };
  const auto named = [](const std::vector<Setting>& table, const std::string& name) {
    return *std::find_if(table.begin(), table.end(), [&](const Setting& one) { return one.name == name; });
  };
  const Setting& drawn = assumptions().front();
  const Iteration number = of(drawn, "resnet101", kNumber, kNone);
  EXPECT_EQ(number.devices, 48);
  EXPECT_DOUBLE_EQ(number.bytes, 4 * number.elements);
  const double half_bytes = of(named(assumptions(), "16 bits"), "resnet101", kNumber, kNone).bytes;
  EXPECT_DOUBLE_EQ(2 * half_bytes, number.bytes);
  // Five cuts lie between sites instead of nearly every one.
  EXPECT_LT(of(named(assumptions(), "listed by site"), "resnet101", kNumber, kNone).seconds,
            number.seconds / 4);
  EXPECT_LT(of(named(assumptions(), "mild links"), "resnet101", kNumber, kNone).seconds, number.seconds / 4);
  EXPECT_EQ(of(named(assumptions(), "8 micro-batches"), "resnet101", kNumber, kNone).micro_batches, 8);
  EXPECT_NEAR(of(named(assumptions(), "ratio 10"), "resnet101", kNumber, kTop).elements, number.elements / 10,
              number.elements / 100);
  // Matrices of GPT-2 that are tied travel once an iteration, 38.6 million gradients: at 8 to 100 Mb/s
  // between the ends of devices as they are listed, and within a site where OP-Fence chooses the ends.
  const Setting untied = named(assumptions(), "untied");
  EXPECT_GT(of(drawn, "gpt2", kNumber, kTop).seconds - of(untied, "gpt2", kNumber, kTop).seconds, 1);
  EXPECT_LT(of(drawn, "gpt2", kFence, kAda).seconds, 1.1 * of(untied, "gpt2", kFence, kAda).seconds);
  EXPECT_GT(of(named(topologies(), "slow way back"), "resnet101", kNumber, kNone).seconds,
            2 * number.seconds);
  EXPECT_EQ(communities_of(named(topologies(), "2 sites"), 3), 2U);
  EXPECT_EQ(communities_of(named(topologies(), "12 sites"), 3), 12U);
  const Iterations few = play(drawn, "resnet101", 1, {{.rule = kAda, .use = DeviceUse::fastest}});
  EXPECT_LT(few.all.at(0).devices, 48);
  EXPECT_EQ(few.find(drawn.name, "resnet101", 1, kFence, kAda), nullptr);
  EXPECT_NE(few.find(drawn.name, "resnet101", 1, kFence, kAda, DeviceUse::fastest), nullptr);
  Setting fine = drawn;
  fine.schedule = ScheduleKind::interleaved;
  fine.stages_of_device = 2;
  const Iterations none = play(fine, "gpt2", 1, {{}});
  EXPECT_TRUE(none.all.empty());
  EXPECT_THAT(none.left_out.at(0).reason, HasSubstr("96 stages"));
}

// A pencil has the gradient as the difference of two losses.
TEST(StudyOfFusionLlm, GradientsAreDifferencesOfLosses) {
  const ResidualShape shape{.inputs = 3, .width = 4, .blocks = 2, .classes = 3};
  ResidualNetwork network(shape);
  const Batch batch{.inputs = {0.5F, -1, 0.25F, 1, 0.75F, -0.5F}, .labels = {2, 0}};
  std::vector<float> parameters(static_cast<std::size_t>(shape.tensors().back().end));
  for (std::size_t i = 0; i < parameters.size(); ++i)
    parameters[i] = 0.3F * static_cast<float>(static_cast<int>(i * 7 % 11) - 4) / 4;
  std::vector<float> gradient(parameters.size());
  network.learn(parameters, batch, {}, 1, gradient);
  constexpr float kStep = 1.0F / 128;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<float> moved = parameters;
    moved[i] += kStep;
    const double above = network.score(moved, batch, {}).loss;
    moved[i] -= 2 * kStep;
    EXPECT_NEAR(gradient[i], (above - network.score(moved, batch, {}).loss) / (2 * kStep), 2e-3) << i;
  }
}

// Activations that are dropped are not there behind the cut, gradients not in front of it.
TEST(StudyOfFusionLlm, WhatIsDroppedIsGone) {
  const ResidualShape shape{.inputs = 3, .width = 4, .blocks = 1, .classes = 3};
  ResidualNetwork network(shape);
  const Batch batch{.inputs = {0.5F, -1, 0.25F}, .labels = {1}};
  const std::vector<Range> tensors = shape.tensors();
  const std::vector<float> parameters(static_cast<std::size_t>(tensors.back().end), 0.5F);
  const auto gradient_with = [&](std::size_t op, Way way) {
    std::vector<float> gradient(parameters.size());
    network.learn(
        parameters, batch,
        [=](std::size_t at, Way on, std::vector<float>& values) {
          if (at == op && on == way) std::fill(values.begin(), values.end(), 0.0F);
        },
        1, gradient);
    std::vector<bool> moved;
    for (const Range& tensor : tensors)
      moved.push_back(std::any_of(gradient.begin() + tensor.begin, gradient.begin() + tensor.end,
                                  [](float one) { return one != 0; }));
    return moved;
  };
  // They are the weights and biases of three operators.
  EXPECT_EQ(gradient_with(1, Way::activations), (std::vector<bool>{true, true, true, true, false, true}));
  EXPECT_EQ(gradient_with(0, Way::gradients), (std::vector<bool>{false, false, true, true, true, true}));
  EXPECT_EQ(gradient_with(9, Way::gradients), std::vector<bool>(6, true));
}

TEST(StudyOfFusionLlm, LearnsWithWhatTravels) {
  const std::vector<LearntWith> all = learn(digits(), {.shape = {.width = 32, .blocks = 4},
                                                       .steps = 80,
                                                       .seeds = 1,
                                                       .ratios = {2, 8},
                                                       .learning_rates = {0.1, 1e-6}});
  ASSERT_EQ(all.size(), 5U);
  // There are five cuts, two ways, four micro-batches of 16 x 32 elements; one in 8 with its index is a
  // quarter of the bytes.
  EXPECT_EQ(all[0].elements.at(0), 5 * 2 * 4 * 512);
  EXPECT_EQ(all[3].elements.at(0), 5 * 2 * 4 * 64);
  EXPECT_NEAR(all[3].slowest_seconds.at(0) / all[0].slowest_seconds.at(0), 0.25, 1e-9);
  EXPECT_NEAR(all[4].slowest_seconds.at(0) / all[0].slowest_seconds.at(0), 0.125, 1e-9);
  EXPECT_GT(all[4].elements.at(0), all[3].elements.at(0));
  EXPECT_LT(all[0].mean_loss(), 0.6);  // a guess has 2.3
  EXPECT_EQ(all[0].mean_whole_loss(), all[0].mean_loss());
  EXPECT_EQ(all[0].learning_rate, 0.1);
  // An element with its index is as long as two elements: a ratio of 2 saves nothing, and all travels dense.
  EXPECT_EQ(find(all, kTop, 2)->losses(), all[0].losses());
  EXPECT_NE(find(all, kTop, 8)->losses(), all[0].losses());
  EXPECT_EQ(find(all, kTop, 3), nullptr);
}

TEST(StudyOfFusionLlm, WritesItsPage) {
  PublishedFusionLlm figures = published();
  figures.models = {"gpt2"};
  FusionLlmOptions options = quick_study();
  options.assumptions = options.topologies = 1;
  options.between_megabits = {100};
  options.learning.steps = 2;
  const std::vector<studies::StudyFile> files = study_of_fusionllm(figures, digits(), options);
  ASSERT_EQ(files.size(), 6U);
  EXPECT_EQ(files[0].name, "README.md");
  EXPECT_THAT(files[0].content, HasSubstr("| as drawn | `gpt2` | "));
  const nlohmann::json results = nlohmann::json::parse(files[1].content);
  EXPECT_EQ(results["assumptions"]["iterations"].size(), 12U);
  EXPECT_EQ(results["learning"].size(), 5U);
  for (std::size_t picture = 2; picture < files.size(); ++picture)
    EXPECT_THAT(files[picture].content, HasSubstr("</svg>"));
}

TEST(StudyOfFusionLlm, RefusesFiguresAndImagesThatAreNone) {
  const auto parse = [](const std::string& most, const std::string& models) {
    return [=] {
      parse_published_fusionllm(
          R"({"format": "dear-published-fusionllm", "version": 1, "source": "x", "devices": 48,
          "least_bits_per_second": 8e6, "most_bits_per_second": 1e10, "least_speed_up": 1.45, "most_speed_up": )" +
              most + R"(, "models": [)" + models + "]}",
          "figures.json");
    };
  };
  EXPECT_NO_THROW(parse("9", R"("gpt2")")());
  EXPECT_THAT(parse("1", ""),
              ThrowsMessage<ConfigError>(HasSubstr("most_speed_up: expected a number that is not")));
  EXPECT_THAT(parse("9", R"("vgg16")"), ThrowsMessage<ConfigError>(HasSubstr("models[0]")));
  EXPECT_THAT([] { parse_published_fusionllm("{", "figures.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("figures.json")));

  const std::string image = std::string(64, 'g') + " 7\n";
  std::string images = "# images\n";
  for (int i = 0; i < 100; ++i) images += image;
  const Digits read = parse_digits(images, "images");
  EXPECT_EQ(read.labels, std::vector<int>(100, 7));
  EXPECT_EQ(read.images, std::vector<float>(6400, 1.0F));
  for (const std::string& line : {std::string("7"), std::string(64, 'h') + " 7", std::string(64, '0') + " x",
                                  std::string(64, '0') + "-7", std::string(65, '0') + " 7", std::string()})
    EXPECT_THAT([&] { parse_digits(images + line + "\n", "images"); },
                ThrowsMessage<ConfigError>(HasSubstr("images: line 102 is no image")))
        << line;
  EXPECT_THAT([&] { parse_digits(image, "images"); },
              ThrowsMessage<ConfigError>(HasSubstr("1 images are too few")));
  EXPECT_THAT([&] { learn(read, {.seeds = 1, .ratios = {}}); },
              ThrowsMessage<ConfigError>(HasSubstr("of 100 images 256 are held back")));
}

}  // namespace
}  // namespace dear::studies::fusionllm
