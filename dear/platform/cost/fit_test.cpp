#include "dear/platform/cost/fit.h"

#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/cost/ring.h"

namespace dear::cost::fit_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Link kLink{.alpha_seconds = 20e-6, .beta_seconds_per_byte = 0.8e-9};

Sample all_reduce(int ranks, std::int64_t bytes, double factor = 1) {
  const auto seconds = [&](const Link& link) { return ring_all_reduce_seconds(link, ranks, bytes); };
  return make_sample(seconds, factor * seconds(kLink));
}

TEST(FitLink, RecoversTheLinkOfTimesThatFollowTheModel) {
  std::vector<Sample> samples;
  for (std::int64_t bytes = 4; bytes <= 256 << 20; bytes *= 4) {
    samples.push_back(all_reduce(5, bytes));
  }
  const LinkFit fit = fit_link(samples);
  EXPECT_NEAR(fit.link.alpha_seconds / kLink.alpha_seconds, 1, 1e-9);
  EXPECT_NEAR(fit.link.beta_seconds_per_byte / kLink.beta_seconds_per_byte, 1, 1e-9);
  EXPECT_LT(fit.rms_residual, 1e-9);
  EXPECT_LT(fit.worst_residual, 1e-9);
  EXPECT_EQ(fit.residuals.size(), samples.size());
}

TEST(FitLink, TwoSizesAreEnough) {
  const LinkFit fit = fit_link({all_reduce(2, 4), all_reduce(2, 1 << 20)});
  EXPECT_NEAR(fit.link.alpha_seconds / kLink.alpha_seconds, 1, 1e-9);
  EXPECT_NEAR(fit.link.beta_seconds_per_byte / kLink.beta_seconds_per_byte, 1, 1e-9);
}

// In absolute terms an error of a tenth at 256 MiB is larger than every small time together.
TEST(FitLink, NoiseCountsByItsShareOfTheTime) {
  std::mt19937 random(7);  // NOLINT: the same numbers in every run
  std::uniform_real_distribution<double> factor(0.9, 1.1);
  std::vector<Sample> samples;
  for (std::int64_t bytes = 4; bytes <= 256 << 20; bytes *= 2) {
    samples.push_back(all_reduce(4, bytes, factor(random)));
  }
  const LinkFit fit = fit_link(samples);
  EXPECT_NEAR(fit.link.alpha_seconds / kLink.alpha_seconds, 1, 0.05);
  EXPECT_NEAR(fit.link.beta_seconds_per_byte / kLink.beta_seconds_per_byte, 1, 0.05);
  EXPECT_GT(fit.rms_residual, 0.01);
  EXPECT_LT(fit.rms_residual, 0.1);
  EXPECT_LE(fit.rms_residual, fit.worst_residual);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_NEAR(modelled_seconds(fit.link, samples[i]) / samples[i].seconds - 1, fit.residuals[i], 1e-12);
  }
}

TEST(FitLink, IsTheLeastOfItsNeighbours) {
  const std::vector<Sample> samples{all_reduce(3, 64, 1.5), all_reduce(3, 1 << 16, 0.7),
                                    all_reduce(3, 1 << 20, 1.2), all_reduce(3, 1 << 24, 0.9)};
  const LinkFit fit = fit_link(samples);
  const auto squares = [&](double alpha_factor, double beta_factor) {
    double total = 0;
    for (const Sample& sample : samples) {
      const Link link{.alpha_seconds = fit.link.alpha_seconds * alpha_factor,
                      .beta_seconds_per_byte = fit.link.beta_seconds_per_byte * beta_factor};
      total += std::pow(modelled_seconds(link, sample) / sample.seconds - 1, 2);
    }
    return total;
  };
  for (const double alpha_factor : {0.99, 1.0, 1.01}) {
    for (const double beta_factor : {0.99, 1.0, 1.01}) {
      EXPECT_LE(squares(1, 1), squares(alpha_factor, beta_factor));
    }
  }
}

TEST(FitLink, NeitherAlphaNorBetaIsNegative) {
  // A byte each and then a thousand times as much, a thousand and five times as slow: alpha would be below 0.
  const LinkFit no_alpha =
      fit_link({{.messages = 1, .bytes = 1, .seconds = 1}, {.messages = 1, .bytes = 1000, .seconds = 2000}});
  EXPECT_EQ(no_alpha.link.alpha_seconds, 0);
  EXPECT_GT(no_alpha.link.beta_seconds_per_byte, 0);
  // More bytes in less time: beta would be.
  const LinkFit no_beta =
      fit_link({{.messages = 1, .bytes = 1, .seconds = 2}, {.messages = 1, .bytes = 1000, .seconds = 1}});
  EXPECT_GT(no_beta.link.alpha_seconds, 0);
  EXPECT_EQ(no_beta.link.beta_seconds_per_byte, 0);
}

TEST(FitLink, RefusesWhatDoesNotTell) {
  const auto refuse = [](const std::vector<Sample>& samples, const char* naming) {
    EXPECT_THAT([&] { fit_link(samples); }, ThrowsMessage<ConfigError>(HasSubstr(naming)));
  };
  refuse({}, "two or more sizes");
  refuse({all_reduce(2, 4)}, "two or more sizes");
  refuse({all_reduce(2, 4), all_reduce(2, 4)}, "told apart");
  refuse({all_reduce(2, 4), {.messages = 2, .bytes = 8, .seconds = 0}}, "above 0");
  refuse({all_reduce(2, 4), {.messages = 2, .bytes = 8, .seconds = std::nan("")}}, "finite");
  refuse({all_reduce(2, 4), {.messages = 2, .bytes = std::numeric_limits<double>::infinity(), .seconds = 1}},
         "finite");
  // One rank sends nothing.
  refuse({{.seconds = 1}, {.seconds = 2}}, "two or more ranks");
}

}  // namespace
}  // namespace dear::cost::fit_test
