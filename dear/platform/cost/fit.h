#pragma once

#include <cstdint>
#include <vector>

#include "dear/platform/cluster/network.h"

namespace dear::cost {

// A measured time, and what the alpha-beta model says it is made of: seconds = messages · alpha + bytes ·
// beta for so many messages started one after another and so many bytes carried one after another.
struct Sample {
  double messages = 0;
  double bytes = 0;
  double seconds = 0;
};

// What the model of an operation is made of: `seconds_of` it on a link of one second a message, and of one
// second a byte. For formulas that are linear in alpha and beta.
template <typename SecondsOf>
Sample make_sample(SecondsOf seconds_of, double measured_seconds) {
  return {.messages = seconds_of(Link{.alpha_seconds = 1, .beta_seconds_per_byte = 0}),
          .bytes = seconds_of(Link{.alpha_seconds = 0, .beta_seconds_per_byte = 1}),
          .seconds = measured_seconds};
}

struct LinkFit {
  Link link;
  std::vector<double> residuals;  // (modelled − measured) / measured, for each sample
  double rms_residual = 0;
  double worst_residual = 0;  // the largest without its sign
};

// Least squares of the relative residuals: times span six orders of magnitude, and in absolute terms the
// longest alone would count. Neither alpha nor beta becomes negative. ConfigError for fewer than two samples,
// for one that is not positive and finite, and for samples that cannot tell alpha from beta.
LinkFit fit_link(const std::vector<Sample>& samples);

double modelled_seconds(const Link& link, const Sample& sample);

}  // namespace dear::cost
