#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "dear/collective/group.h"
#include "dear/exec/drive.h"

namespace dear {

// The real communication side: a schedule's collectives on the flat buffers of its buckets, issued on a
// group. Gradients are averaged over ranks.
class BucketWire : public Side {
 public:
  // The same views on every rank, by bucket, as lay_out() makes them.
  struct Flat {
    View parameters;
    View gradients;
    std::int64_t bucket_bytes = 0;  // without padding: what pieces are counted in
  };
  using Completed = std::function<void(StepId step, double begin_seconds, double end_seconds)>;
  using Failed = std::function<void(std::exception_ptr)>;

  // The callbacks come from the group's thread; they, and this object, must outlive every collective started.
  BucketWire(Group group, std::vector<Flat> buckets, Completed completed, Failed failed);

  void start(Instance which, const Step& step) override;

 private:
  Group group_;
  std::vector<Flat> buckets_;
  Completed completed_;
  Failed failed_;
};

}  // namespace dear
