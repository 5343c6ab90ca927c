#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/error.h"
#include "dear/tune/tuner.h"
#include "dear/tune/ways.h"

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
       .make = make_grid},
      {.name = "random",
       .summary = "candidates at random, none twice",
       .source = "Bergstra and Bengio 2012, jmlr.org/papers/v13/bergstra12a.html",
       .make = make_random},
      {.name = "golden-section",
       .summary = "narrows down one valley; for one dimension",
       .source = "Kiefer 1953, doi:10.1090/S0002-9939-1953-0055639-3",
       .make = make_golden_section},
      {.name = "reference",
       .summary = "as DeAR's first implementation: 25 MB, then 1 to 100 MB on a linear scale, xi = 0.1 s",
       .source = "arXiv 2302.12445, github.com/lzhangbv/dear_pytorch",
       .make = make_reference}};
  return kTable;
}

const Method& find_method(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Method& method : methods()) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  throw ConfigError(
      fmt::format("there is no method '{}' of tuning: choose one of {}", name, fmt::join(names, ", ")));
}

}  // namespace dear::tune
