#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/predict/tune/tuner.h"
#include "dear/predict/tune/ways.h"

namespace dear::tune {

const std::vector<Method>& methods() {
  static const std::vector<Method> kTable{
      {.name = "bayesian",
       .summary = "expected improvement under a Gaussian process; stops when there is nothing to gain",
       .source = "Jones, Schonlau, Welch 1998, doi:10.1023/A:1008306431147",
       .make = make_bayesian},
      {.name = "grid",
       .summary = "as many even steps through the candidates as there are trials",
       .source = "",
       .make = make_grid}};
  return kTable;
}

const Method& find_method(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Method& method : methods()) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  throw ConfigError(fmt::format("there is no method '{}' of tuning{} choose one of {}", name,
                                did_you_mean(name, names, ":"), fmt::join(names, ", ")));
}

}  // namespace dear::tune
