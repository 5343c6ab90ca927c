#include "dear/schedule/policies/encoding.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/ranges.h>

#include "dear/schedule/policies/builder.h"
#include "dear/schedule/policies/refusal.h"

namespace dear {
namespace {

constexpr StepId kNone = ~StepId{0};

// The steps of a bucket in the dense schedule.
struct DenseSteps {
  StepId reduction = kNone, gather = kNone, update = kNone;
};

// Its steps in the new one.
struct NewSteps {
  std::vector<StepId> encodes, first, second;  // by round; by part, `second` kNone without a second half
  StepId decode = kNone, update = kNone;
};

class Rewriting {
 public:
  Rewriting(const Schedule& schedule, const Workload& workload, const Grouping& grouping,
            const std::vector<Encoding>& encodings)
      : old_(schedule),
        encodings_(encodings),
        builder_(workload, grouping, schedule.policy()),
        dense_(grouping.size()),
        new_(grouping.size()),
        moved_(schedule.steps().size(), kNone) {
    for (StepId step = 0; step < old_.steps().size(); ++step) find(step);
  }

  Schedule finish() && {
    for (const Lane& lane : old_.lanes()) builder_.lane(lane.name, lane.kind);
    codec_ = builder_.lane("codec", LaneKind::codec);
    for (LaneId lane = 0; lane < old_.lanes().size(); ++lane) {
      for (const StepId step : old_.steps_of(lane)) place(step, lane);
      place_second_rounds(lane);
    }
    add_decodes();
    for (const Edge& edge : old_.edges()) move(edge);
    for (BucketId bucket = 0; bucket < new_.size(); ++bucket)
      if (encoded(bucket)) connect(bucket);
    return std::move(builder_).build();
  }

 private:
  [[nodiscard]] bool encoded(BucketId bucket) const { return !encodings_[bucket].dense(); }
  // The encoded bucket that a step of the dense schedule works on.
  [[nodiscard]] std::optional<BucketId> encoded_bucket_of(StepId step) const {
    const Work& work = old_.steps()[step].work;
    std::optional<BucketId> bucket;
    if (const auto* update = std::get_if<Update>(&work)) bucket = update->bucket;
    if (const auto* communicate = std::get_if<Communicate>(&work);
        communicate != nullptr && is_of_bucket(communicate->payload))
      bucket = communicate->bucket;
    return bucket && encoded(*bucket) ? bucket : std::nullopt;
  }

  void find(StepId step) {
    const std::optional<BucketId> bucket = encoded_bucket_of(step);
    if (!bucket) return;
    DenseSteps& dense = dense_[*bucket];
    const auto take = [&](StepId& place, bool possible) {
      if (!possible || place != kNone)
        schedule::refuse(
            old_,
            "{} cannot be done with gradients that travel compressed: compress under policy dear, "
            "dear-replicated, wfbp or serial, or not at all",
            schedule::describe(old_, step));
      place = step;
    };
    if (const auto* update = std::get_if<Update>(&old_.steps()[step].work)) {
      take(dense.update, update->options == OptionsOf::this_commit && update->chunk == kWholeBucket);
      return;
    }
    const auto& work = std::get<Communicate>(old_.steps()[step].work);
    const bool possible = work.group == ProcessGroup::all && work.chunk == kWholeBucket &&
                          work.payload != Payload::parameters_again && work.payload != Payload::encoded;
    const bool gathers = work.collective == Collective::all_gather;
    take(gathers ? dense.gather : dense.reduction, possible && (!gathers || dense.reduction != kNone));
  }

  // Whether the second halves of the bucket's parts have a place of their own.
  [[nodiscard]] bool in_halves(BucketId bucket) const { return dense_[bucket].gather != kNone; }
  [[nodiscard]] StepId communicate(Collective collective, BucketId bucket, std::size_t part,
                                   std::int64_t bytes, LaneId lane) {
    return builder_.add(Communicate{.collective = collective,
                                    .payload = Payload::encoded,
                                    .bucket = bucket,
                                    .chunk = {0, bytes},
                                    .part = static_cast<std::uint8_t>(part)},
                        lane);
  }

  void place(StepId step, LaneId lane) {
    const std::optional<BucketId> bucket = encoded_bucket_of(step);
    if (!bucket) {
      moved_[step] = builder_.add(old_.steps()[step].work, lane);
      return;
    }
    if (step == dense_[*bucket].update) {
      new_[*bucket].update = moved_[step] = builder_.add(Update{UpdateScope::whole, *bucket}, lane);
      decoded_.push_back(*bucket);
    } else if (step == dense_[*bucket].reduction) {
      place_first(*bucket, lane);
    } else {
      place_second_rounds(lane);
      place_gathers(*bucket, lane);
    }
  }

  // Places the parts that travel first, where the dense bucket was reduced. The second rounds of the bucket
  // before follow it, so that the network has something to do while their encode runs.
  void place_first(BucketId bucket, LaneId lane) {
    const Encoding& encoding = encodings_[bucket];
    NewSteps& steps = new_[bucket];
    steps.encodes.push_back(builder_.add(Encode{bucket}, codec_));
    steps.first.assign(encoding.parts.size(), kNone);
    steps.second.assign(encoding.parts.size(), kNone);
    for (std::size_t part = 0; part < encoding.parts.size(); ++part)
      if (encoding.parts[part].round == 0) place_first_half(bucket, part, lane);
    place_second_rounds(lane);
    if (encoding.rounds() > 1) pending_ = bucket;
  }

  void place_first_half(BucketId bucket, std::size_t part, LaneId lane) {
    const auto& [way, round, bytes] = encodings_[bucket].parts[part];
    StepId& first = new_[bucket].first[part];
    switch (way) {
      case EncodedPart::Way::halves:
        first = communicate(in_halves(bucket) ? Collective::reduce_scatter : Collective::all_reduce, bucket,
                            part, bytes, lane);
        break;
      case EncodedPart::Way::reduced:
        first = communicate(Collective::all_reduce, bucket, part, bytes, lane);
        break;
      case EncodedPart::Way::gathered:
        if (!in_halves(bucket) || !encodings_[bucket].gathers_late)
          first = communicate(Collective::all_gather, bucket, part, bytes, lane);
        break;
    }
  }

  void place_second_rounds(LaneId lane) {
    if (!pending_ || old_.lanes()[lane].kind != LaneKind::network) return;
    const BucketId bucket = *std::exchange(pending_, std::nullopt);
    const Encoding& encoding = encodings_[bucket];
    for (std::uint8_t round = 1; round < encoding.rounds(); ++round) {
      new_[bucket].encodes.push_back(builder_.add(Encode{bucket, round}, codec_));
      for (std::size_t part = 0; part < encoding.parts.size(); ++part)
        if (encoding.parts[part].round == round) place_first_half(bucket, part, lane);
    }
    if (!in_halves(bucket)) place_gathers(bucket, lane);
  }

  // Places the parts that travel second, where the dense bucket was gathered.
  void place_gathers(BucketId bucket, LaneId lane) {
    const Encoding& encoding = encodings_[bucket];
    NewSteps& steps = new_[bucket];
    for (std::size_t part = 0; part < encoding.parts.size(); ++part) {
      const auto& [way, round, bytes] = encoding.parts[part];
      if (way == EncodedPart::Way::gathered && steps.first[part] == kNone)
        steps.first[part] = communicate(Collective::all_gather, bucket, part, bytes, lane);
      else if (way == EncodedPart::Way::halves && in_halves(bucket))
        steps.second[part] = communicate(Collective::all_gather, bucket, part, bytes, lane);
    }
  }

  void add_decodes() {
    for (const BucketId bucket : decoded_) new_[bucket].decode = builder_.add(Decode{bucket}, codec_);
  }

  // Edges between steps of an encoded bucket are made anew; others lead to what stands in their place.
  void move(const Edge& edge) {
    const auto& [from, to, back] = edge;
    const std::optional<BucketId> left = encoded_bucket_of(from), entered = encoded_bucket_of(to);
    if (left && entered && *left == *entered && back > 0)
      schedule::refuse(old_,
                       "{} follows {} in the next iteration, which gradients that travel compressed cannot",
                       schedule::describe(old_, to), schedule::describe(old_, from));
    if (left && entered) return;
    StepId new_from = moved_[from], new_to = moved_[to];
    if (left && from != dense_[*left].update) {
      if (from == dense_[*left].reduction) return;  // nothing but the bucket's own steps follows it
      new_from = new_[*left].update;                // its publisher
    }
    if (entered && to == dense_[*entered].reduction) new_to = new_[*entered].encodes.front();
    if (entered && to == dense_[*entered].gather) return;  // the commit: connect() adds it
    builder_.edge(new_from, new_to, back);
  }

  void connect(BucketId bucket) {
    const Encoding& encoding = encodings_[bucket];
    const NewSteps& steps = new_[bucket];
    const StepId commit = moved_[old_.commit()];
    for (std::size_t round = 1; round < steps.encodes.size(); ++round)
      builder_.edge(steps.encodes[round - 1], steps.encodes[round]);
    for (std::size_t part = 0; part < encoding.parts.size(); ++part) {
      const auto& [way, round, bytes] = encoding.parts[part];
      const StepId first = steps.first[part], second = steps.second[part];
      builder_.edge(steps.encodes[round], first);
      if (way == EncodedPart::Way::reduced) builder_.edge(first, steps.encodes[round + 1U]);
      if (second != kNone) builder_.edge(first, second).edge(commit, second);
      builder_.edge(second != kNone ? second : first, steps.decode);
    }
    builder_.edge(commit, steps.decode).edge(steps.decode, steps.update);
  }

  const Schedule& old_;
  const std::vector<Encoding>& encodings_;
  ScheduleBuilder builder_;
  LaneId codec_ = 0;
  std::vector<DenseSteps> dense_;
  std::vector<NewSteps> new_;
  std::vector<StepId> moved_;        // by step of the dense schedule
  std::vector<BucketId> decoded_;    // in the order of their updates
  std::optional<BucketId> pending_;  // whose second rounds are to be placed
};

}  // namespace

std::uint8_t Encoding::rounds() const {
  std::uint8_t rounds = dense() ? 0 : 1;
  for (const EncodedPart& part : parts) {
    const bool builds = part.way == EncodedPart::Way::reduced;
    rounds = std::max(rounds, static_cast<std::uint8_t>(part.round + (builds ? 2 : 1)));
  }
  return rounds;
}

void require_policy_that_compresses(const Policy& policy) {
  const Workload workload{.name = "any", .tensors = {{"weight", 4}}, .layers = {{"layer", {0}}}};
  const Grouping grouping = group(workload, AllInOne{});
  const auto compresses = [&](const Policy& one) {
    try {
      (void)with_encodings(make_schedule(one, workload, grouping), workload, grouping,
                           {{.parts = {{.bytes = 4}}}});
      return true;
    } catch (const ScheduleError&) {
      return false;
    }
  };
  if (compresses(policy)) return;
  std::vector<std::string_view> able;
  for (const Policy& other : policies())
    if (compresses(other)) able.push_back(other.name);
  throw ConfigError(
      fmt::format("gradients cannot travel compressed under policy {}: choose {}, or no compression",
                  policy.name, fmt::join(able, " or ")));
}

Schedule with_encodings(const Schedule& schedule, const Workload& workload, const Grouping& grouping,
                        const std::vector<Encoding>& encodings) {
  if (encodings.size() != grouping.size())
    schedule::refuse(schedule, "{} encodings for {} buckets: give one for each", encodings.size(),
                     grouping.size());
  if (std::all_of(encodings.begin(), encodings.end(), [](const Encoding& one) { return one.dense(); })) {
    return schedule;
  }
  return Rewriting(schedule, workload, grouping, encodings).finish();
}

}  // namespace dear
