#pragma once

#include <optional>
#include <vector>

#include "dear/schedule/fusion/grouping.h"
#include "dear/schedule/policies/schedule.h"
#include "dear/workload/layers/workload.h"

namespace dear::schedule {

// Checks the rules of a schedule, which ScheduleBuilder lists: ScheduleError for the first rule that is
// broken. Call the methods in the order in which they are declared, because each relies on the rules that the
// earlier ones have checked. For ScheduleBuilder's use.
class ScheduleCheck {
 public:
  ScheduleCheck(const Schedule& schedule, const Workload& workload, const Grouping& grouping);

  void structure() const;  // every lane, layer, bucket and step that is named exists, and stands where it may
  // The commit, and every layer's forward and backward, by layer; and what rank 0 sends beside.
  struct Program {
    std::vector<StepId> forward, backward;
    StepId commit = 0;
    std::optional<StepId> buffers, decision;
  };
  [[nodiscard]] Program program() const;
  // The steps of a bucket whose gradients travel encoded, and what has to come before what among them.
  struct EncodedSteps {
    struct Before {
      StepId from, to;
      const char* because;
    };
    std::vector<StepId> encodes;  // by round
    std::vector<Before> order;
  };
  // How the gradients of a bucket, or of a chunk of it that is scattered, become new parameters: reductions,
  // [all-reduce of the shards across nodes], [all-gather of gradients], update, [all-gather of parameters];
  // and [their all-gather for the backward].
  struct Passage {
    BucketId bucket = 0;
    std::vector<StepId> reductions;  // one, or one for each chunk that is all-reduced
    std::optional<StepId> across;
    std::optional<StepId> gathered;
    StepId update = 0, publisher = 0;  // the same without an all-gather of parameters
    std::optional<StepId> again;
    std::optional<EncodedSteps> encoded{};  // then `gathered` decodes, and there are no reductions
  };
  [[nodiscard]] std::vector<Passage> passages() const;  // by bucket, and chunks of one in their order
  void precedence(const Program& program, const std::vector<Passage>& passages) const;

 private:
  // The steps that work on one bucket, by kind.
  struct BucketSteps {
    std::vector<StepId> reductions, across, gradient_gathers, parameter_gathers, again, updates;
    std::vector<StepId> encodes, parts, decodes;
  };
  void collective(StepId step) const;
  [[nodiscard]] std::vector<BucketSteps> steps_by_bucket() const;
  // Those of `steps` that carry or change the bytes that the reduce-scatter `reduction` carries.
  [[nodiscard]] BucketSteps part_of(const BucketSteps& steps, StepId reduction) const;
  [[nodiscard]] Passage passage(BucketId bucket, const BucketSteps& steps) const;
  [[nodiscard]] Passage encoded_passage(BucketId bucket, const BucketSteps& steps) const;
  [[nodiscard]] std::vector<StepId> rounds_in_order(BucketId bucket, const BucketSteps& steps) const;
  void same_group(const BucketSteps& steps) const;
  [[nodiscard]] Range chunk_of(StepId step) const;
  void coverage(BucketId bucket, std::vector<StepId> reductions) const;

  const Schedule& schedule_;
  const Workload& workload_;
  const Grouping& grouping_;
};

}  // namespace dear::schedule
