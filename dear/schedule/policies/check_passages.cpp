#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "dear/schedule/policies/check.h"
#include "dear/schedule/policies/refusal.h"

namespace dear::schedule {

Range ScheduleCheck::chunk_of(StepId step) const {
  const Work& work = schedule_.steps()[step].work;
  if (const auto* update = std::get_if<Update>(&work)) return update->chunk;
  return std::get<Communicate>(work).chunk;
}

// Checks that the reductions carry every byte of the bucket once.
void ScheduleCheck::coverage(BucketId bucket, std::vector<StepId> reductions) const {
  std::stable_sort(reductions.begin(), reductions.end(),
                   [&](StepId a, StepId b) { return chunk_of(a).begin < chunk_of(b).begin; });
  const std::int64_t bytes = grouping_.buckets()[bucket].bytes;
  std::int64_t covered = 0;
  const auto require_covered = [&](std::int64_t up_to) {
    if (covered < up_to)
      refuse(schedule_, "bytes {} to {} of bucket {} are never reduced: add an all-reduce of them", covered,
             up_to, bucket);
  };
  for (std::size_t i = 0; i < reductions.size(); ++i) {
    const auto [begin, end] = chunk_of(reductions[i]);
    if (begin < covered)
      refuse(schedule_, "bucket {} is reduced twice, by {} and {}: keep one", bucket,
             describe(schedule_, reductions[i - 1]), describe(schedule_, reductions[i]));
    require_covered(begin);
    covered = std::min(end, bytes);
  }
  require_covered(bytes);
}

std::vector<ScheduleCheck::BucketSteps> ScheduleCheck::steps_by_bucket() const {
  std::vector<BucketSteps> by_bucket(grouping_.size());
  for (StepId step = 0; step < schedule_.steps().size(); ++step) {
    const Work& work = schedule_.steps()[step].work;
    if (const auto* update = std::get_if<Update>(&work)) by_bucket[update->bucket].updates.push_back(step);
    if (const auto* encode = std::get_if<Encode>(&work)) by_bucket[encode->bucket].encodes.push_back(step);
    if (const auto* decode = std::get_if<Decode>(&work)) by_bucket[decode->bucket].decodes.push_back(step);
    const auto* communicate = std::get_if<Communicate>(&work);
    if (communicate == nullptr || !is_of_bucket(communicate->payload)) continue;
    BucketSteps& steps = by_bucket[communicate->bucket];
    if (communicate->payload == Payload::encoded)
      steps.parts.push_back(step);
    else if (communicate->group == ProcessGroup::across_nodes)
      steps.across.push_back(step);
    else if (communicate->collective != Collective::all_gather)
      steps.reductions.push_back(step);
    else if (communicate->payload == Payload::gradients)
      steps.gradient_gathers.push_back(step);
    else if (communicate->payload == Payload::parameters)
      steps.parameter_gathers.push_back(step);
    else
      steps.again.push_back(step);
  }
  return by_bucket;
}

ScheduleCheck::BucketSteps ScheduleCheck::part_of(const BucketSteps& steps, StepId reduction) const {
  const auto same_chunk = [&](const std::vector<StepId>& all) {
    std::vector<StepId> same;
    std::copy_if(all.begin(), all.end(), std::back_inserter(same),
                 [&](StepId step) { return chunk_of(step) == chunk_of(reduction); });
    return same;
  };
  return {.reductions = {reduction},
          .across = steps.across,
          .gradient_gathers = steps.gradient_gathers,
          .parameter_gathers = same_chunk(steps.parameter_gathers),
          .again = steps.again,
          .updates = same_chunk(steps.updates),
          .encodes = {},
          .parts = {},
          .decodes = {}};
}

// Checks process groups. Shards are where the reduce-scatter left them, so all other collectives of the
// bucket are of the same ranks. Shards inside nodes are complete only after they were added up across nodes.
void ScheduleCheck::same_group(const BucketSteps& steps) const {
  const auto group_of = [&](StepId step) {
    return std::get<Communicate>(schedule_.steps()[step].work).group;
  };
  const StepId reduction = steps.reductions.front();
  for (const std::vector<StepId>* const gathers : {&steps.parameter_gathers, &steps.again})
    for (const StepId gather : *gathers)
      if (group_of(gather) != group_of(reduction))
        refuse(schedule_, "{} gathers from other ranks than {} has scattered to: let both be of the same",
               describe(schedule_, gather), describe(schedule_, reduction));
  const bool inside = group_of(reduction) == ProcessGroup::node;
  if (inside && steps.across.empty())
    refuse(schedule_, "{} adds up inside nodes alone: add an all-reduce across them",
           describe(schedule_, reduction));
  if (!inside && !steps.across.empty())
    refuse(schedule_, "{} adds up again what {} has: leave it out", describe(schedule_, steps.across.front()),
           describe(schedule_, reduction));
}

ScheduleCheck::Passage ScheduleCheck::passage(BucketId bucket, const BucketSteps& steps) const {
  const auto& [reductions, across, gradient_gathers, parameter_gathers, again, updates, encodes, parts,
               decodes] = steps;
  const auto refuse_twice = [&](const std::vector<StepId>& several, const char* what) {
    if (several.size() > 1)
      refuse(schedule_, "bucket {} is {} twice, by {} and {}: keep one", bucket, what,
             describe(schedule_, several[0]), describe(schedule_, several[1]));
  };
  if (updates.empty())
    refuse(schedule_, "bucket {} is never updated: add an update after its reduction", bucket);
  refuse_twice(updates, "updated");
  refuse_twice(across, "added up across nodes");
  std::vector<StepId> gathers = gradient_gathers;
  gathers.insert(gathers.end(), parameter_gathers.begin(), parameter_gathers.end());
  refuse_twice(gathers, "gathered");
  refuse_twice(again, "gathered again");

  const StepId reduction = reductions.front(), update = updates.front();
  const bool shard = std::get<Update>(schedule_.steps()[update].work).scope == UpdateScope::shard;
  const bool scattered =
      std::get<Communicate>(schedule_.steps()[reduction].work).collective == Collective::reduce_scatter;
  if (!scattered && !gathers.empty())
    refuse(schedule_, "{} repeats what {} has done: an all-reduce leaves nothing to gather",
           describe(schedule_, gathers.front()), describe(schedule_, reduction));
  if (!scattered && shard)
    refuse(schedule_, "{} leaves other shards stale: after {} update the whole", describe(schedule_, update),
           describe(schedule_, reduction));
  if (scattered && !shard && gradient_gathers.empty())
    refuse(schedule_,
           "{} has only a shard of the gradients from {}: gather gradients before, or update the shard",
           describe(schedule_, update), describe(schedule_, reduction));
  if (scattered && shard && parameter_gathers.empty())
    refuse(schedule_, "{} leaves other shards stale: gather parameters after it",
           describe(schedule_, update));
  if (!again.empty() && parameter_gathers.empty())
    refuse(schedule_, "{} has no first time: gather parameters for the forward too",
           describe(schedule_, again.front()));
  const auto the_one = [](const std::vector<StepId>& found) {
    return found.empty() ? std::nullopt : std::optional(found.front());
  };
  return {.bucket = bucket,
          .reductions = reductions,
          .across = the_one(across),
          .gathered = the_one(gradient_gathers),
          .update = update,
          .publisher = the_one(parameter_gathers).value_or(update),
          .again = the_one(again)};
}

std::vector<ScheduleCheck::Passage> ScheduleCheck::passages() const {
  const std::vector<BucketSteps> by_bucket = steps_by_bucket();
  std::vector<Passage> passages;
  for (BucketId bucket = 0; bucket < grouping_.size(); ++bucket) {
    const BucketSteps& steps = by_bucket[bucket];
    if (!steps.encodes.empty() || !steps.parts.empty() || !steps.decodes.empty()) {
      passages.push_back(encoded_passage(bucket, steps));
      continue;
    }
    if (steps.reductions.empty())
      refuse(schedule_, "the gradients of bucket {} are never reduced: add an all-reduce or a reduce-scatter",
             bucket);
    coverage(bucket, steps.reductions);
    same_group(steps);
    const auto scatters = std::count_if(steps.reductions.begin(), steps.reductions.end(), [&](StepId step) {
      return std::get<Communicate>(schedule_.steps()[step].work).collective == Collective::reduce_scatter;
    });
    const StepId first = steps.reductions.front();
    if (scatters > 0 && static_cast<std::size_t>(scatters) < steps.reductions.size())
      refuse(schedule_, "bucket {} is scattered in part: reduce all of its chunks in one way", bucket);

    const std::array in_chunks = {std::pair(&steps.updates, "changes"),
                                  std::pair(&steps.parameter_gathers, "gathers")};
    for (const auto& [those, what] : in_chunks)
      for (const StepId step : *those)
        if (scatters == 0 ? chunk_of(step) != kWholeBucket
                          : std::none_of(steps.reductions.begin(), steps.reductions.end(),
                                         [&](StepId other) { return chunk_of(other) == chunk_of(step); }))
          refuse(schedule_,
                 "{} {} other bytes than {} or any other of the bucket's reductions: cut all alike",
                 describe(schedule_, step), what, describe(schedule_, first));
    if (scatters == 0) {
      passages.push_back(passage(bucket, steps));
      continue;
    }
    for (const StepId reduction : steps.reductions)
      passages.push_back(passage(bucket, part_of(steps, reduction)));
  }
  return passages;
}

}  // namespace dear::schedule
