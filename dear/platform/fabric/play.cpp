#include "dear/platform/fabric/play.h"

#include <algorithm>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/platform/fabric/traffic.h"

namespace dear::fabric {

Played play(const std::shared_ptr<const Rounds>& rounds, const Topology& topology, double bytes,
            const PlayOptions& options) {
  const auto members = static_cast<std::size_t>(rounds->ranks());
  if (!options.enter_seconds.empty() && options.enter_seconds.size() != members)
    throw ConfigError(fmt::format("{} times to enter do not fit a collective of {} members",
                                  options.enter_seconds.size(), members));
  Traffic traffic(topology);
  const CollectiveId id = traffic.open(rounds, bytes, options.ranks);
  for (std::size_t member = 0; member < members; ++member)
    traffic.enter(id, static_cast<int>(member),
                  options.enter_seconds.empty() ? 0 : options.enter_seconds[member]);

  Played played{.end_seconds = std::vector<double>(members)};
  std::size_t through = 0;
  for (auto ended = traffic.advance(); !ended.empty(); ended = traffic.advance()) {
    through += ended.size();
    for (const Completion& end : ended) {
      played.end_seconds[static_cast<std::size_t>(end.member)] = end.seconds;
      played.seconds = std::max(played.seconds, end.seconds);
    }
  }
  if (through != members)
    throw ScheduleError(
        fmt::format("{} of {} members wait for messages that nobody sends: verify the program",
                    members - through, members));
  played.messages = traffic.messages();
  return played;
}

Played play(const algorithm::Program& program, const Topology& topology, double bytes,
            const PlayOptions& options) {
  return play(rounds_of(program), topology, bytes, options);
}

}  // namespace dear::fabric
