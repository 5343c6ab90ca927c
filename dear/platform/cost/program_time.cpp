#include "dear/platform/cost/program_time.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"

namespace dear::cost {

double program_seconds(const algorithm::Program& program, const Link& link, std::int64_t bytes) {
  if (bytes < 0) {
    throw ConfigError(fmt::format("{}: {} bytes cannot be", program.name, bytes));
  }
  const double block_seconds = link.beta_seconds_per_byte * static_cast<double>(bytes) / program.blocks;
  std::vector<double> ready(static_cast<std::size_t>(program.ranks));  // when each begins its round
  for (const std::vector<algorithm::Part>& round : program.rounds) {
    std::vector<double> out = ready;  // when each link is free again
    std::vector<double> in = ready;
    for (std::size_t from = 0; from < round.size(); ++from) {
      for (const algorithm::BlockMessage& message : round[from].sends) {
        const auto to = static_cast<std::size_t>(message.peer);
        double seconds = link.alpha_seconds;
        for (const Range& blocks : message.blocks) {
          seconds += blocks.size() * block_seconds;
        }
        out[from] = in[to] = std::max(out[from], in[to]) + seconds;
      }
    }
    std::transform(out.begin(), out.end(), in.begin(), ready.begin(),
                   [](double sent, double received) { return std::max(sent, received); });
  }
  return *std::max_element(ready.begin(), ready.end());
}

}  // namespace dear::cost
