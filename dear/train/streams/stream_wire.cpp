#include "dear/train/streams/stream_wire.h"

#include <variant>

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include "dear/base/vocabulary/error.h"

namespace dear::streams {

void StreamWire::enqueue(const Communicate& work) {
  const at::DisableRecordFunctionGuard unobserved;  // operators of ours, which wait for nothing
  const c10::AutoGradMode no_grad(false);
  const bool of_gradients = work.payload == Payload::gradients;
  if (of_gradients) streams_.follow(Guard::after_gradients);
  const auto guard = streams_.on_communication();
  at::Tensor vector = vector_of_(work);
  const double others = collectives_->size() - 1;
  const double shard = static_cast<double>(vector.nbytes()) / collectives_->size();
  switch (work.collective) {
    case Collective::reduce_scatter: {
      collectives_->reduce_scatter(vector);
      const std::int64_t elements = vector.numel() / collectives_->size();
      vector.narrow(0, collectives_->rank() * elements, elements).div_(collectives_->size());
      sent_bytes_ += others * shard;
      break;
    }
    case Collective::all_reduce:
      collectives_->all_reduce(vector, StreamCollectives::Joined::sum);
      vector.div_(collectives_->size());
      sent_bytes_ += 2 * others * shard;
      break;
    case Collective::all_gather:
      collectives_->all_gather(vector);
      sent_bytes_ += others * shard;
      break;
    default:
      throw ScheduleError("no device can do \"" + name_of(work) + "\": train with policy dear");
  }
  streams_.enqueued(work.bucket, of_gradients ? Part::gradients : Part::parameters);
}

void StreamWire::start(Instance which, const Step& step) {
  const auto& work = std::get<Communicate>(step.work);
  if (work.payload != Payload::gradients && work.payload != Payload::parameters)
    throw ScheduleError("no device can do \"" + name_of(work) + "\": train with policy dear");
  if (carried_out_.erase(which.step) == 0) enqueue(work);
}

void StreamWire::carry_out(const Schedule& schedule, const std::vector<StepId>& steps) {
  for (const StepId step : steps)
    if (carried_out_.insert(step).second) enqueue(std::get<Communicate>(schedule.steps()[step].work));
}

void StreamWire::gather_reduced(const Schedule& schedule) {
  for (const Step& step : schedule.steps()) {
    const auto* work = std::get_if<Communicate>(&step.work);
    if (work == nullptr || work->payload != Payload::gradients ||
        work->collective != Collective::reduce_scatter)
      continue;
    Communicate gather = *work;
    gather.collective = Collective::all_gather;
    enqueue(gather);
  }
}

}  // namespace dear::streams
