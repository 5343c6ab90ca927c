#include "dear/base/trace/trace.h"

#include "tests/fuzz/target.h"

#include "dear/base/trace/chrome.h"
#include "dear/base/trace/summary.h"

namespace dear::fuzz {

void trace(std::string_view bytes) {
  const Trace read = parse_chrome_trace(bytes, kSource);
  static_cast<void>(to_text(summarize(read), read));
  const Trace again = parse_chrome_trace(to_chrome_json(read), kSource);
  if (again.spans.size() != read.spans.size()) throw Broken("reads other spans than it wrote");
}

}  // namespace dear::fuzz
