#include "dear/schedule/codec/compression.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/os/testing/paths.h"
#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"

namespace dear::compression_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Compression, GathersWhatEachRankChoosesByItself) {
  EXPECT_TRUE(Compression{.scheme = Scheme::top_k}.gathers());
  EXPECT_TRUE(Compression{.scheme = Scheme::block_top_k}.gathers());
  EXPECT_FALSE(Compression{.scheme = Scheme::random_k}.gathers());
  EXPECT_TRUE((Compression{.scheme = Scheme::random_k, .own_indices = true}.gathers()));
  EXPECT_TRUE((Compression{.scheme = Scheme::random_block, .own_indices = true}.gathers()));
  for (const Scheme scheme : {Scheme::fp16, Scheme::bf16, Scheme::low_rank, Scheme::sketch}) {
    EXPECT_FALSE(Compression{.scheme = scheme}.gathers()) << name_of(scheme);
  }
}

TEST(Compression, ParsesEveryScheme) {
  EXPECT_EQ(Compression::parse("top-k"), Compression{});
  EXPECT_EQ(Compression::parse("random-k:0.1"), (Compression{.scheme = Scheme::random_k, .ratio = 0.1}));
  EXPECT_EQ(Compression::parse("random-block:1"), (Compression{.scheme = Scheme::random_block, .ratio = 1}));
  EXPECT_EQ(Compression::parse("top-k:1e-3"), (Compression{.scheme = Scheme::top_k, .ratio = 0.001}));
  EXPECT_EQ(Compression::parse("block-top-k:.25"),
            (Compression{.scheme = Scheme::block_top_k, .ratio = 0.25}));
  EXPECT_EQ(Compression::parse("fp16"), Compression{.scheme = Scheme::fp16});
  EXPECT_EQ(Compression::parse("bf16"), Compression{.scheme = Scheme::bf16});
  EXPECT_EQ(Compression::parse("low-rank:2"), (Compression{.scheme = Scheme::low_rank, .rank = 2}));
  EXPECT_EQ(Compression::parse("sketch"), Compression{.scheme = Scheme::sketch});
}

TEST(Compression, ParsesEveryOption) {
  EXPECT_EQ(
      Compression::parse("random-k:0.1,own,scope=bucket,unbiased,decay=1e-4,momentum=0.9,nesterov,seed=7,"
                         "dense-below=4096,dense=*bias;*norm?.*"),
      (Compression{.scheme = Scheme::random_k,
                   .ratio = 0.1,
                   .scope = Scope::bucket,
                   .own_indices = true,
                   .unbiased = true,
                   .momentum = 0.9,
                   .nesterov = true,
                   .weight_decay = 1e-4,
                   .dense_below = 4096,
                   .dense_names = {"*bias", "*norm?.*"},
                   .seed = 7}));
  EXPECT_EQ(Compression::parse("random-block:0.01,ef,momentum=0.9,correction,warmup=200,scope=model,dense="),
            (Compression{.scheme = Scheme::random_block,
                         .scope = Scope::model,
                         .feedback = true,
                         .momentum = 0.9,
                         .correction = true,
                         .warm_up_steps = 200,
                         .dense_names = {}}));
  EXPECT_EQ(Compression::parse("sketch,most-density=0.3,block=16,index=bloom,exact"),
            (Compression{.scheme = Scheme::sketch,
                         .sketch = {.room = 0,
                                    .block = 16,
                                    .index = SketchSpec::Index::bloom,
                                    .exact = true,
                                    .most_density = 0.3}}));
  EXPECT_EQ(Compression::parse("random-k,scope=tensor,momentum=0,seed=1").text(), "random-k:0.01");
}

// The text is refused with a message that has all of these words.
void expect_refused(const std::string& text, const std::vector<std::string>& words) {
  SCOPED_TRACE(text);
  try {
    Compression::parse(text);
    ADD_FAILURE() << "was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'" + text + "'"));
    for (const std::string& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

TEST(Compression, NamesTheSchemeOrOptionThatWasMeant) {
  expect_refused("", {"scheme", "random-block", "sketch"});
  expect_refused("topk:0.01", {"scheme", "'topk'", "mean top-k?", "random-k"});
  expect_refused("Top-k", {"mean top-k?"});
  expect_refused("powersgd:4", {"scheme", "low-rank"});
  expect_refused("lowrank:4", {"mean low-rank?"});
  expect_refused("fp_16", {"mean fp16?"});
  expect_refused("top-k:0.01,error-feedback", {"option", "'error-feedback'", "ef"});
  expect_refused("top-k:0.01,warm-up=3", {"option", "mean warmup?"});
  expect_refused("top-k:0.01,", {"option", "''"});
  expect_refused("top-k:0.01, ef", {"option", "mean ef?"});
  expect_refused("sketch,blok=2", {"option", "mean block?"});
  expect_refused("top-k,decya=2", {"mean decay?"});
}

TEST(Compression, RefusesWhatAnOptionCannotBe) {
  expect_refused("top-k:0", {"ratio", "'0'", "above 0"});
  expect_refused("top-k:1.01", {"ratio", "1.01", "at most 1"});
  expect_refused("top-k:-0.1", {"ratio", "-0.1"});
  expect_refused("top-k:nan", {"ratio", "nan"});
  expect_refused("top-k:inf", {"ratio", "inf"});
  expect_refused("top-k:", {"ratio", "''"});
  expect_refused("top-k:1%", {"ratio", "'1%'"});
  expect_refused("top-k:0.1:ef", {"ratio", "'0.1:ef'"});
  expect_refused("low-rank:0", {"rank", "'0'", "at least 1"});
  expect_refused("low-rank:2.5", {"rank", "'2.5'", "integer"});
  expect_refused("low-rank:99999999999", {"rank"});
  expect_refused("top-k,scope=layer", {"scope", "'layer'", "bucket"});
  expect_refused("top-k,warmup=-1", {"warmup", "'-1'"});
  expect_refused("top-k,warmup=1.5", {"warmup", "'1.5'"});
  expect_refused("top-k,momentum=1", {"momentum", "'1'", "below 1"});
  expect_refused("top-k,momentum=-0.1", {"momentum", "'-0.1'"});
  expect_refused("top-k,decay=-1", {"decay", "'-1'"});
  expect_refused("top-k,decay=inf", {"decay", "'inf'"});
  expect_refused("top-k,dense-below=-1", {"dense-below", "'-1'"});
  expect_refused("top-k,dense=a;;b", {"dense", "'a;;b'", "empty"});
  expect_refused("random-k,seed=-1", {"seed", "'-1'"});
  expect_refused("random-k,seed=x", {"seed", "'x'"});
  expect_refused("sketch,block=3", {"block", "'3'", "power of two"});
  expect_refused("sketch,block=2048", {"block", "1024"});
  expect_refused("sketch,block=-2", {"block", "'-2'"});
  expect_refused("sketch,index=hash", {"index", "'hash'", "bitmap"});
  expect_refused("sketch,most-density=0", {"most-density", "'0'"});
  expect_refused("sketch,most-density=1.1", {"most-density"});
  expect_refused("top-k,ef=yes", {"ef", "'=yes'"});
  expect_refused("top-k,ef=", {"ef", "'='"});
  expect_refused("top-k,momentum", {"momentum", "value"});
  expect_refused("fp16:0.5", {"fp16", "ratio"});
  expect_refused("sketch:", {"sketch", "ratio"});
  expect_refused("top-k,ef,momentum=0.9,ef", {"ef", "twice"});
  expect_refused("top-k,momentum=0.9,momentum=0.9", {"momentum", "twice"});
}

TEST(Compression, RefusesWhatExcludesEachOther) {
  expect_refused("random-k:0.1,ef,unbiased", {"unbiased", "ef"});
  expect_refused("top-k,nesterov", {"nesterov", "momentum"});
  expect_refused("top-k,nesterov,momentum=0", {"nesterov", "momentum"});
  expect_refused("top-k,correction,ef", {"correction", "momentum"});
  expect_refused("top-k,correction,momentum=0.9", {"correction", "ef"});
}

// Every option with a value it can have and that is not its default.
const std::vector<std::pair<std::string, std::string>>& samples() {
  static const std::vector<std::pair<std::string, std::string>> kSamples{
      {"ef", ""},       {"own", ""},          {"unbiased", ""}, {"scope", "bucket"},
      {"warmup", "10"}, {"momentum", "0.5"},  {"nesterov", ""}, {"correction", ""},
      {"decay", "0.1"}, {"dense-below", "3"}, {"dense", "x"},   {"seed", "18446744073709551615"},
      {"block", "32"},  {"index", "bitmap"},  {"exact", ""},    {"most-density", "1"}};
  return kSamples;
}

TEST(Compression, HasOptionsOfItsSchemeOnly) {
  ASSERT_EQ(compression_options().size(), samples().size());
  for (std::size_t i = 0; i < samples().size(); ++i) {
    const CompressionOption option = compression_options()[i];
    const auto& [name, value] = samples()[i];
    ASSERT_EQ(option.name, name);
    EXPECT_EQ(option.value.empty(), value.empty()) << name;
    EXPECT_FALSE(option.summary.empty()) << name;
    for (const SchemeInfo& scheme : schemes()) {
      std::string text = fmt::format("{},{}{}", scheme.name, name, value.empty() ? "" : "=" + value);
      if (std::ranges::find(option.schemes, scheme.name) == option.schemes.end()) {
        expect_refused(text, {std::string(scheme.name), name, std::string(option.schemes.front())});
        continue;
      }
      if (name == "nesterov") text += ",momentum=0.5";
      if (name == "correction") text += ",momentum=0.5,ef";
      EXPECT_NO_THROW(Compression::parse(text)) << text;
    }
  }
}

TEST(Compression, SchemesAreListedInTheirOrder) {
  ASSERT_EQ(schemes().size(), 8U);
  for (std::size_t i = 0; i < schemes().size(); ++i) {
    EXPECT_EQ(schemes()[i].scheme, static_cast<Scheme>(i));
    EXPECT_EQ(name_of(schemes()[i].scheme), schemes()[i].name);
    EXPECT_EQ(Compression::parse(schemes()[i].name).scheme, schemes()[i].scheme);
    EXPECT_FALSE(schemes()[i].summary.empty());
    EXPECT_FALSE(schemes()[i].source.empty());
  }
  EXPECT_THAT(compression_grammar(), HasSubstr("RATIO"));
}

// docs/compression.md without marks of code.
std::string page() {
  std::ifstream file(dear::testing::source_file("docs/compression.md"));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::erase(text, '`');
  return text;
}

TEST(Compression, HasEverySchemeAndOptionOnItsPage) {
  for (const SchemeInfo& scheme : schemes()) {
    const std::string amount = scheme.amount.empty() ? "" : fmt::format(":{}", scheme.amount);
    EXPECT_THAT(page(), HasSubstr(fmt::format("| {}{} | {} |", scheme.name, amount, scheme.summary)));
  }
  for (const CompressionOption& option : compression_options()) {
    const std::string value = option.value.empty() ? "" : fmt::format("={}", option.value);
    const std::string all = option.schemes.size() == schemes().size() ? "all" : "all but sketch";
    const std::string some = fmt::format("{}", fmt::join(option.schemes, ", "));
    EXPECT_THAT(page(), HasSubstr(fmt::format("| {}{} | {} | {} |", option.name, value,
                                              option.schemes.size() > 4 ? all : some, option.summary)));
  }
}

// A random one of the values that validate() takes.
Compression any_valid(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const auto number = [&] {
    return static_cast<double>(1 + below(1ULL << 52)) / static_cast<double>(1ULL << 52);
  };
  const auto once_in = [&](std::uint64_t n) { return below(n) == 0; };
  for (;;) {
    Compression c{.scheme = static_cast<Scheme>(below(8))};
    if (once_in(2)) c.ratio = number();
    if (once_in(2)) c.rank = static_cast<int>(1 + below(100));
    if (once_in(3)) c.scope = static_cast<Scope>(below(3));
    c.own_indices = once_in(4);
    c.feedback = once_in(2);
    c.unbiased = once_in(4);
    if (once_in(2)) c.momentum = 0.99 * number();
    c.nesterov = once_in(3);
    c.correction = once_in(3);
    if (once_in(4)) c.weight_decay = number() * 1e-4;
    if (once_in(4)) c.warm_up_steps = static_cast<std::int64_t>(random() >> 1);
    if (once_in(4)) c.dense_below = static_cast<std::int64_t>(below(1'000'000));
    if (once_in(4)) c.dense_names.resize(below(3));
    if (once_in(4)) c.dense_names.emplace_back("layer?.w=*:");
    if (once_in(4)) c.seed = random();
    if (once_in(4)) c.sketch.block = std::int64_t{1} << below(11);
    if (once_in(4)) c.sketch.index = static_cast<SketchSpec::Index>(below(3));
    c.sketch.exact = once_in(3);
    if (once_in(4)) c.sketch.most_density = number();
    try {
      validate(c);
      return c;
    } catch (const ConfigError&) {
      continue;
    }
  }
}

TEST(Compression, ComesBackFromItsText) {
  std::mt19937_64 random(1);
  std::vector<int> schemes_seen(8);
  for (int i = 0; i < testing::rounds(1000); ++i) {
    const Compression compression = any_valid(random);
    EXPECT_EQ(Compression::parse(compression.text()), compression) << compression.text();
    EXPECT_EQ(Compression::parse(compression.text()).text(), compression.text());
    ++schemes_seen[static_cast<std::size_t>(compression.scheme)];
  }
  EXPECT_THAT(schemes_seen, ::testing::Each(::testing::Gt(0)));
}

TEST(Compression, ItsTextLeavesDefaultsOut) {
  EXPECT_EQ(Compression{}.text(), "top-k:0.01");
  EXPECT_EQ(Compression::parse("top-k:0.001,dense-below=1024,warmup=5,ef").text(), "top-k:0.001,ef,warmup=5");
  EXPECT_EQ(Compression::parse("low-rank").text(), "low-rank:4");
  EXPECT_EQ(Compression::parse("fp16,dense=").text(), "fp16,dense=");
  EXPECT_EQ(Compression::parse("fp16,dense=a;b*").text(), "fp16,dense=a;b*");
}

void expect_invalid(const Compression& compression, const std::string& word) {
  EXPECT_THAT([&] { validate(compression); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr(std::string(name_of(compression.scheme))), HasSubstr(word))));
}

TEST(Compression, ValidatesWhatWasNotParsed) {
  EXPECT_NO_THROW(validate({}));
  for (const double ratio : {0.0, -1.0, 1.5, kNan, kInfinity}) expect_invalid({.ratio = ratio}, "ratio");
  expect_invalid({.scheme = Scheme::fp16, .ratio = 0.5}, "ratio");
  expect_invalid({.scheme = Scheme::low_rank, .rank = 0}, "rank");
  expect_invalid({.scheme = Scheme::top_k, .own_indices = true}, "own");
  expect_invalid({.scheme = Scheme::random_k, .feedback = true, .unbiased = true}, "unbiased");
  for (const double momentum : {-0.1, 1.0, kNan}) expect_invalid({.momentum = momentum}, "momentum");
  expect_invalid({.nesterov = true}, "nesterov");
  expect_invalid({.feedback = true, .correction = true}, "correction");
  expect_invalid({.momentum = 0.9, .correction = true}, "correction");
  expect_invalid({.scheme = Scheme::bf16, .feedback = true, .momentum = 0.9, .correction = true},
                 "correction");
  for (const double decay : {-1.0, kInfinity, kNan}) expect_invalid({.weight_decay = decay}, "decay");
  expect_invalid({.warm_up_steps = -1}, "warmup");
  expect_invalid({.dense_below = -1}, "dense-below");
  for (const std::string pattern : {"", "a,b", "a;b"}) expect_invalid({.dense_names = {pattern}}, "dense");
  for (const int block : {-1, 3, 2048}) {
    expect_invalid({.scheme = Scheme::sketch, .sketch = {.block = block}}, "block");
  }
  for (const double density : {0.0, -0.5, 1.5, kNan}) {
    expect_invalid({.scheme = Scheme::sketch, .sketch = {.most_density = density}}, "most-density");
  }
  expect_invalid({.scheme = Scheme::sketch, .feedback = true}, "ef");
  expect_invalid({.scheme = Scheme::top_k, .sketch = {.exact = true}}, "exact");
}

TEST(Compression, TheRatioFallsExponentially) {
  const Compression compression{.ratio = 0.001, .warm_up_steps = 7};
  EXPECT_EQ(compression.ratio_at(0), 0.25);
  for (std::int64_t step = 1; step < 7; ++step) {
    EXPECT_NEAR(compression.ratio_at(step), 0.25 * std::pow(0.004, static_cast<double>(step) / 7), 1e-14);
    EXPECT_LT(compression.ratio_at(step), compression.ratio_at(step - 1));
  }
  EXPECT_GT(compression.ratio_at(6), 0.001);
  EXPECT_EQ(compression.ratio_at(7), 0.001);
  EXPECT_EQ(compression.ratio_at(1'000'000'000'000), 0.001);
}

TEST(Compression, TheRatioHasNoWarmUpAboveAQuarter) {
  const Compression compression{.ratio = 0.5, .warm_up_steps = 10};
  for (std::int64_t step = 0; step < 12; ++step) EXPECT_EQ(compression.ratio_at(step), 0.5);
  EXPECT_EQ(Compression{.ratio = 0.01}.ratio_at(0), 0.01);
}

TEST(Compression, TheRatioFallsOverAnyNumberOfSteps) {
  const std::int64_t longest = std::numeric_limits<std::int64_t>::max();
  const Compression compression{.ratio = 0.01, .warm_up_steps = longest};
  EXPECT_NEAR(compression.ratio_at(longest / 2), 0.05, 1e-12);  // halfway: the geometric mean
  EXPECT_NEAR(compression.ratio_at(longest - 1), 0.01, 1e-12);
}

TEST(Compression, LeavesSmallTensorsDense) {
  const Compression compression{.dense_below = 100, .dense_names = {}};
  EXPECT_TRUE(compression.leaves_dense("weight", 99));
  EXPECT_FALSE(compression.leaves_dense("weight", 100));
  EXPECT_FALSE((Compression{.dense_below = 0, .dense_names = {}}.leaves_dense("weight", 0)));
}

TEST(Compression, LeavesTensorsOfMatchingNamesDense) {
  const Compression usual{.dense_below = 0};
  EXPECT_TRUE(usual.leaves_dense("layers.0.bias", 1 << 20));
  EXPECT_TRUE(usual.leaves_dense("layers.0.norm1.weight", 1 << 20));
  EXPECT_FALSE(usual.leaves_dense("layers.0.bias_of_others", 1 << 20));
  EXPECT_FALSE(usual.leaves_dense("layers.0.weight", 1 << 20));
  const auto matches = [](const std::string& pattern, std::string_view name) {
    return Compression{.dense_below = 0, .dense_names = {pattern}}.leaves_dense(name, 1);
  };
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("**", "ab"));
  EXPECT_TRUE(matches("a*", "a"));
  EXPECT_TRUE(matches("a?c", "abc"));
  EXPECT_FALSE(matches("a?c", "ac"));
  EXPECT_FALSE(matches("?", ""));
  EXPECT_TRUE(matches("*ab*ab", "abxabab"));
  EXPECT_FALSE(matches("*ab*ab", "abxaba"));
  EXPECT_TRUE(matches("a.b[0]", "a.b[0]"));
  EXPECT_FALSE(matches("a.b", "axb"));
  EXPECT_FALSE(matches("abc", "ab"));
  EXPECT_FALSE(matches("ab", "abc"));
  EXPECT_FALSE(matches("*a*a*a*a*a*a*a*a*b", std::string(10'000, 'a')));  // not exponential
}

}  // namespace
}  // namespace dear::compression_test
