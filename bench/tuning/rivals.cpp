#include "bench/tuning/rivals.h"

namespace dear::bench {

const std::vector<tune::Method>& rivals() {
  static const std::vector<tune::Method> kTable{
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

}  // namespace dear::bench
