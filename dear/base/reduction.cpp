#include "dear/base/reduction.h"

namespace dear {

std::string name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::average:
      return "average";
    case Reduction::max:
      return "max";
    case Reduction::min:
      return "min";
  }
  return "unknown reduction";
}

}  // namespace dear
