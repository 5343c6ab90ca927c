#include "studies/sparse/findings.h"

#include "studies/sparse/sweeps.h"
#include "studies/training/paired.h"
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::studies::sparse {
namespace {

// Computes what a method gains over another, each at its best learning rate, task by task.
training::Paired gain(const MethodAccuracy& one, const MethodAccuracy& other) {
  return training::paired(one.at_best().tests(), other.at_best().tests());
}

studies::Statement block_is_close_to_dense(const Findings& findings) {
  studies::Cases cases(
      "Random-block sparsification reduces communication while its performance stays close to dense SGD "
      "(the abstract)");
  for (const char* const ratio : kRatios) {
    const training::Paired difference =
        gain(findings.accuracy_of({}), findings.accuracy_of(compression_of("random-block", ratio, ",ef")));
    cases.add(difference.within(kClose), fmt::format("ratio {} with feedback: {}", ratio, difference.text()));
  }
  return cases.finish();
}

studies::Statement block_is_like_random_k(const Findings& findings) {
  studies::Cases cases("A random block learns as well as random coordinates");
  for (const char* const ratio : kRatios) {
    for (const char* const feedback : {"", ",ef"}) {
      const training::Paired difference =
          gain(findings.accuracy_of(compression_of("random-k", ratio, feedback)),
               findings.accuracy_of(compression_of("random-block", ratio, feedback)));
      cases.add(difference.within(kClose),
                fmt::format("ratio {}{}: {}", ratio, *feedback ? " with feedback" : "", difference.text()));
    }
  }
  return cases.finish();
}

studies::Statement top_k_is_like_dense(const Findings& findings) {
  studies::Cases cases("Top-k with error feedback learns nearly as well as dense SGD");
  for (const char* const ratio : kRatios) {
    const training::Paired difference =
        gain(findings.accuracy_of({}), findings.accuracy_of(compression_of("top-k", ratio, ",ef")));
    cases.add(difference.within(kClose), fmt::format("ratio {}: {}", ratio, difference.text()));
  }
  return cases.finish();
}

studies::Statement feedback_helps(const Findings& findings) {
  studies::Cases cases("Error feedback makes every scheme learn better, once its learning rate is searched");
  for (const char* const scheme : kSchemes) {
    for (const char* const ratio : kRatios) {
      const training::Paired better = gain(findings.accuracy_of(compression_of(scheme, ratio)),
                                           findings.accuracy_of(compression_of(scheme, ratio, ",ef")));
      cases.add(better.above(0), fmt::format("{}:{} {}", scheme, ratio, better.text()));
    }
  }
  return cases.finish();
}

studies::Statement feedback_wants_small_rates(const Findings& findings) {
  studies::Cases cases(
      "With error feedback, random schemes want a learning rate about 1/ratio times smaller than dense SGD");
  const double dense = findings.accuracy_of({}).at_best().learning_rate;
  for (const char* const scheme : kRandomSchemes) {
    for (const char* const ratio : kRatios) {
      const Compression compression = compression_of(scheme, ratio, ",ef");
      const double smaller = dense / findings.accuracy_of(compression).at_best().learning_rate;
      const double of_predicted = smaller * compression.ratio;
      cases.add(of_predicted >= 1 / kAbout && of_predicted <= kAbout,
                fmt::format("{}:{} {:.3g} times smaller", scheme, ratio, smaller));
    }
  }
  return cases.finish();
}

studies::Statement feedback_collapses_at_the_dense_rate(const Findings& findings) {
  studies::Cases cases("At dense SGD's best learning rate error feedback makes random schemes worse");
  const std::size_t dense = findings.accuracy_of({}).best;
  for (const char* const scheme : kRandomSchemes) {
    for (const char* const ratio : kRatios) {
      const auto at_dense = [&](const char* feedback) {
        return findings.accuracy_of(compression_of(scheme, ratio, feedback)).rates[dense].tests();
      };
      const training::Paired worse = training::paired(at_dense(",ef"), at_dense(""));
      cases.add(worse.above(0), fmt::format("{}:{} {} without", scheme, ratio, worse.text()));
    }
  }
  return cases.finish();
}

studies::Statement own_indices_are_like_shared(const Findings& findings) {
  studies::Cases cases("Whether workers draw their own indices or share them makes little difference");
  for (const char* const scheme : kRandomSchemes) {
    for (const char* const ratio : kRatios) {
      for (const char* const feedback : {"", ",ef"}) {
        const training::Paired difference =
            gain(findings.accuracy_of(compression_of(scheme, ratio, feedback)),
                 findings.accuracy_of(compression_of(scheme, ratio, std::string(",own") + feedback)));
        cases.add(difference.within(kClose),
                  fmt::format("{}:{}{} {}", scheme, ratio, feedback, difference.text()));
      }
    }
  }
  return cases.finish();
}

studies::Statement scope_matters_little(const Findings& findings) {
  studies::Cases cases("Whether the ratio is of each tensor or of the whole model makes little difference");
  for (const char* const scheme : {"top-k", "random-k", "random-block"}) {
    for (const char* const ratio : kRatios) {
      const training::Paired difference =
          gain(findings.accuracy_of(compression_of(scheme, ratio, ",ef")),
               findings.accuracy_of(compression_of(scheme, ratio, ",scope=model,ef")));
      cases.add(difference.within(kClose), fmt::format("{}:{} {}", scheme, ratio, difference.text()));
    }
  }
  return cases.finish();
}

studies::Statement stability_law_holds(const Findings& findings) {
  studies::Cases cases(
      "With error feedback, and a coordinate that travels with probability p, learning rate times curvature "
      "has to stay below 2p/(2-p)");
  for (const StabilityLimit& limit : findings.limits)
    cases.add(std::abs(limit.feedback / limit.law - 1) <= kOfTheLaw,
              fmt::format("p = {}: {:.5f}, the law {:.5f}", limit.p, limit.feedback, limit.law));
  return cases.finish();
}

studies::Statement block_is_cheapest(const Findings& findings) {
  studies::Cases cases("A random block is the cheapest to select and pack");
  const int ranks = findings.speeds.codecs.front().ranks;
  for (const char* const ratio : kRatios) {
    for (const char* const feedback : {"", ",ef"}) {
      const auto encode = [&](const char* scheme) {
        return findings.speed_of(compression_of(scheme, ratio, feedback), ranks)
            .times.encode_seconds_per_byte;
      };
      double next = encode(kSchemes[0]);
      for (const char* const scheme : kSchemes)
        if (std::string_view(scheme) != "random-block") next = std::min(next, encode(scheme));
      const double block = encode("random-block");
      cases.add(block < next, fmt::format("ratio {}{}: {:.3g} of the time of the next", ratio,
                                          *feedback ? " with feedback" : "", block / next));
    }
  }
  return cases.finish();
}

}  // namespace

const MethodAccuracy& Findings::accuracy_of(const Method& method, const Optimiser& optimiser) const {
  const auto found = std::find_if(accuracies.begin(), accuracies.end(), [&](const MethodAccuracy& one) {
    return one.setting.method == method && one.setting.optimiser == optimiser;
  });
  if (found == accuracies.end())
    throw ConfigError(
        fmt::format("the accuracy of {} was not studied: add it", name_of(Setting{method, optimiser})));
  return *found;
}

const CodecSpeed& Findings::speed_of(const Compression& compression, int ranks) const {
  const auto found = std::find_if(speeds.codecs.begin(), speeds.codecs.end(), [&](const CodecSpeed& one) {
    return one.compression == compression && one.ranks == ranks;
  });
  if (found == speeds.codecs.end())
    throw ConfigError(
        fmt::format("the speed of {} on {} ranks was not measured: add it", compression.text(), ranks));
  return *found;
}

Compression compression_of(const std::string& scheme, const std::string& ratio, const std::string& options) {
  return Compression::parse(fmt::format("{}:{}{}", scheme, ratio, options));
}

std::vector<studies::Statement> judge(const Findings& findings) {
  std::vector<studies::Statement> statements = {
      block_is_close_to_dense(findings),     block_is_like_random_k(findings),
      top_k_is_like_dense(findings),         feedback_helps(findings),
      feedback_wants_small_rates(findings),  feedback_collapses_at_the_dense_rate(findings),
      own_indices_are_like_shared(findings), scope_matters_little(findings),
      stability_law_holds(findings),         block_is_cheapest(findings)};
  for (Sweep& sweep : sweeps(findings)) statements.push_back(std::move(sweep.statement));
  return statements;
}

}  // namespace dear::studies::sparse
