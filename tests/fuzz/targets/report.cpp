#include "tests/fuzz/target.h"

#include "dear/tools/report_command/page.h"
#include "dear/tools/report_command/run.h"

namespace dear::fuzz {

// A trace, lines of metrics or results, as `dear report` takes them.
void report(std::string_view bytes) {
  report_command::Runs runs;
  runs.add("a run", kSource, bytes);
  static_cast<void>(report_command::data_of(runs, "a title"));
}

}  // namespace dear::fuzz
