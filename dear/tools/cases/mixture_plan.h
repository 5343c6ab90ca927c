#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/methods/moe/passes.h"
#include "dear/tools/cases/mixture_cases.h"

namespace dear::cases {

// All-to-alls are as good as free where no more than this part of an iteration waits for them.
inline constexpr double kFreePart = 0.01;

// From which bandwidth on all-to-alls are free under one overlap: by bisection over bandwidths up to a
// million times as high and as low as the cluster's, to a hundredth. Passes choose anew at each bandwidth, so
// that what waits may rise a little where a choice changes: this is a bandwidth that is enough, and a
// hundredth less is not.
struct FreeFrom {
  // A multiple of the cluster's, all links scaled alike. 0 where they are free at any bandwidth, infinite
  // where they are at none: then start-up of messages alone exposes them.
  double factor = 0;
  double exposed_at_best = 0;  // part of an iteration that waits for all-to-alls without any beta
};

// A MixtureAnswer says what each way to overlap gains, and what it takes.
struct MixtureAnswer {
  struct Row {
    MixtureCase one;
    FreeFrom free;
    double saved_seconds = 0;  // of an unoptimised iteration

    // Whether dear.MoE does it: it cuts nothing but its own layers.
    [[nodiscard]] bool trains() const { return !one.overlap->partition; }
  };
  const MixtureScenario* scenario = nullptr;
  std::vector<Row> rows;             // all overlaps, the fastest first
  double here_bits_per_second = 0;   // of the outermost link; infinite for one without beta
  std::vector<std::string> verdict;  // sentences: what is fastest, what each gains, where it cuts, from which
                                     // bandwidth on all-to-alls are free
};
// The scenario outlives what is returned. `progress` is as that of plan::Options: of overlaps, with the next.
using MixtureProgress = std::function<void(std::size_t done, std::size_t all, std::string_view next)>;
MixtureAnswer plan_mixture(const MixtureScenario& scenario, const MixtureProgress& progress = {});

// A list of {model, cluster, ranks, rows, verdict, ...}: see docs/formats.md.
std::string to_json(const std::vector<MixtureAnswer>& answers);
// SVG: a panel for each scenario, a bar for each overlap.
std::string plot(const std::vector<MixtureAnswer>& answers);

}  // namespace dear::cases
