#include "dear/methods/rounds/round.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dear/base/vocabulary/ids.h"
#include "dear/methods/rounds/draws.h"

namespace dear::methods::rounds {
namespace {

std::int64_t draw_steps(const Settings& settings, std::int64_t number) {
  if (settings.algorithm->steps != LocalSteps::geometric) return settings.every;
  codec::Draw draw = draws_of(settings.seed, Purpose::steps, number);
  std::int64_t steps = 1;
  while (!coin(draw, settings.probability)) ++steps;
  return steps;
}

bool answers(const Settings& settings, int client, std::int64_t number) {
  if (settings.absence == 0) return true;
  codec::Draw draw = draws_of(settings.seed, Purpose::absence, number, client);
  return !coin(draw, settings.absence);
}

}  // namespace

Round draw_round(const Settings& settings, int clients, std::int64_t number) {
  Round round{.number = number, .senders = {}, .steps = draw_steps(settings, number)};
  std::vector<int> order(index_of(clients));
  std::iota(order.begin(), order.end(), 0);
  codec::Draw draw = draws_of(settings.seed, Purpose::cohort, number);
  const auto cohort = index_of(settings.cohort);
  for (std::size_t next = 0; next < order.size() && round.senders.size() < cohort; ++next) {
    std::swap(order[next], order[next + draw.below(order.size() - next)]);
    if (answers(settings, order[next], number))
      round.senders.push_back({order[next], static_cast<int>(round.senders.size())});
  }
  if (settings.algorithm->control == Control::shifts && round.senders.size() < cohort) round.senders.clear();
  std::sort(round.senders.begin(), round.senders.end(),
            [](const Sender& one, const Sender& other) { return one.client < other.client; });
  return round;
}

}  // namespace dear::methods::rounds
