#include <string>

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

const Method& find_method(std::string_view name) { return find_named(methods(), name, "method of tuning"); }

}  // namespace dear::tune
