#include <algorithm>
#include <map>

#include "dear/schedule/policies/check.h"
#include "dear/schedule/policies/refusal.h"

namespace dear::schedule {

// The encodes of a bucket by round; each round once, from 0 on.
std::vector<StepId> ScheduleCheck::rounds_in_order(BucketId bucket, const BucketSteps& steps) const {
  std::vector<StepId> rounds = steps.encodes;
  const auto round_of = [&](StepId step) { return std::get<Encode>(schedule_.steps()[step].work).round; };
  std::stable_sort(rounds.begin(), rounds.end(),
                   [&](StepId a, StepId b) { return round_of(a) < round_of(b); });
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    if (round_of(rounds[round]) == round) continue;
    if (round > 0 && round_of(rounds[round]) == round_of(rounds[round - 1]))
      refuse(schedule_, "{} and {} do the same work: keep one", describe(schedule_, rounds[round - 1]),
             describe(schedule_, rounds[round]));
    refuse(schedule_, "bucket {} is never encoded in round {}: number rounds from 0 on", bucket, round);
  }
  return rounds;
}

// Checks that an encoded bucket is encoded, that each part of it is reduced or gathered exactly once, and
// that it is decoded and updated once, and says what has to come before what.
ScheduleCheck::Passage ScheduleCheck::encoded_passage(BucketId bucket, const BucketSteps& steps) const {
  const auto the_one = [&](const std::vector<StepId>& found, const char* what, const char* remedy) {
    if (found.empty()) refuse(schedule_, "encoded bucket {} is never {}: {}", bucket, what, remedy);
    if (found.size() > 1)
      refuse(schedule_, "bucket {} is {} twice, by {} and {}: keep one", bucket, what,
             describe(schedule_, found[0]), describe(schedule_, found[1]));
    return found.front();
  };
  for (const std::vector<StepId>* const dense :
       {&steps.reductions, &steps.across, &steps.gradient_gathers, &steps.parameter_gathers, &steps.again})
    if (!dense->empty())
      refuse(schedule_, "{} carries a bucket that travels encoded: leave it out",
             describe(schedule_, dense->front()));
  if (steps.encodes.empty())
    refuse(schedule_, "bucket {} is never encoded: add an encode before its parts travel", bucket);
  const std::vector<StepId> encodes = rounds_in_order(bucket, steps);
  const StepId decode = the_one(steps.decodes, "decoded", "add a decode after its parts have come");
  const StepId update = the_one(steps.updates, "updated", "add an update after its decode");
  const auto& update_work = std::get<Update>(schedule_.steps()[update].work);
  if (update_work.scope != UpdateScope::whole || update_work.chunk != kWholeBucket ||
      update_work.options != OptionsOf::this_commit)
    refuse(schedule_, "{} changes a part of an encoded bucket, or ahead of the commit: update it whole",
           describe(schedule_, update));

  const auto work_of = [&](StepId step) { return std::get<Communicate>(schedule_.steps()[step].work); };
  std::map<std::uint8_t, std::vector<StepId>> by_part;
  for (const StepId step : steps.parts) by_part[work_of(step).part].push_back(step);
  if (by_part.empty())
    refuse(schedule_, "bucket {} is encoded, but no part of it travels: add its collectives", bucket);

  EncodedSteps encoded{.encodes = encodes, .order = {}};
  for (std::size_t round = 1; round < encodes.size(); ++round)
    encoded.order.push_back({encodes[round - 1], encodes[round], "its rounds build on each other"});
  for (auto& [part, collectives] : by_part) {
    std::stable_sort(collectives.begin(), collectives.end(), [&](StepId a, StepId b) {
      return work_of(a).collective == Collective::reduce_scatter &&
             work_of(b).collective != Collective::reduce_scatter;
    });
    const bool halves = work_of(collectives.front()).collective == Collective::reduce_scatter;
    if (halves && (collectives.size() < 2 || work_of(collectives[1]).collective != Collective::all_gather))
      refuse(schedule_, "{} leaves each rank a shard: add an all-gather of the part",
             describe(schedule_, collectives.front()));
    if (collectives.size() > (halves ? 2U : 1U))
      refuse(schedule_, "part {} of bucket {} is reduced twice, by {} and {}: keep one", part, bucket,
             describe(schedule_, collectives[collectives.size() - 2]),
             describe(schedule_, collectives.back()));
    if (halves) encoded.order.push_back({collectives[0], collectives[1], "it gathers what this reduces"});
    encoded.order.push_back({encodes.front(), collectives.front(), "it carries what this encodes"});
    encoded.order.push_back({collectives.back(), decode, "it decodes what this brings"});
  }
  return {.bucket = bucket,
          .reductions = {},
          .across = std::nullopt,
          .gathered = decode,
          .update = update,
          .publisher = update,
          .again = std::nullopt,
          .encoded = std::move(encoded)};
}

}  // namespace dear::schedule
