#include "dear/train/engine/update_lanes.h"

#include <exception>
#include <variant>

#include <ATen/record_function.h>

#include "dear/base/vocabulary/deadline.h"

namespace dear::train {

void UpdateLanes::begin(const Schedule& schedule, bool on_device) {
  const auto lane_of = [&](LaneKind kind) -> std::unique_ptr<conductor::SerialLane> {
    if (schedule.steps_on(kind).empty()) return nullptr;
    return std::make_unique<conductor::SerialLane>([] {
      at::enableRecordFunction(false);  // for good: our own operators must not wait for themselves
    });
  };
  if (!on_device) update_lane_ = lane_of(LaneKind::update);
  codec_lane_ = lane_of(LaneKind::codec);
}

conductor::Started UpdateLanes::start(Instance which, const Step& step) {
  const auto* update = std::get_if<Update>(&step.work);
  if (update != nullptr && !update_lane_) {
    updates_.update(*update, which.iteration);
    return conductor::Started::done;
  }
  if (const auto* encode = std::get_if<Encode>(&step.work)) compression_.follow(*encode);
  (update != nullptr ? update_lane_ : codec_lane_)->post([this, which, work = step.work] {
    run(which, work);
  });
  return conductor::Started::under_way;
}

void UpdateLanes::run(Instance which, const Work& work) {
  conductor::StepEnd end{.span = {which, now_seconds(), 0}};
  try {
    const auto* update = std::get_if<Update>(&work);
    update != nullptr ? updates_.update(*update, which.iteration) : compression_.run(work, updates_.drops());
  } catch (...) {
    end.error = std::current_exception();
  }
  end.span.end_seconds = now_seconds();
  ended_(end);
}

}  // namespace dear::train
