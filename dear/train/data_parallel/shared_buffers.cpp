#include "dear/train/data_parallel/shared_buffers.h"

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/agreement/participation.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/data_parallel/join.h"
#include "dear/train/data_parallel/trainer.h"

namespace dear::train {

using agreement::Announcement;
using agreement::Call;

void SharedBuffers::broadcast_buffers() {
  own_.throw_if_failed();
  if (own_.options_.buffers != BufferSync::at_forward)
    throw ConfigError(fmt::format(
        "rank {}: broadcast_buffers() is for a DataParallel whose option buffers is BufferSync::at_forward",
        own_.group_.rank()));
  if (own_.arrivals_.deferred() || !buffers_travel()) return;
  own_.uneven_inputs.announce({.call = Call::broadcast_buffers});
  own_.or_fail([this] {
    take_buffers();
    if (own_.buffer_exchange_) own_.buffer_exchange_->at_forward(own_.participation_.first());
  });
}

bool SharedBuffers::buffers_travel() {
  look_up_buffers(own_.scanned_);
  return own_.buffer_exchange_ || (!own_.scanned_.buffers.empty() && own_.group_.size() > 1 &&
                                   own_.options_.buffers != BufferSync::at_construction);
}

// Where shapes are as before, this rank goes on by itself.
void SharedBuffers::take_buffers() {
  if (own_.buffer_exchange_ && own_.buffer_exchange_->take(own_.scanned_.buffers)) return;
  if (own_.engine_) own_.waits.wait_for_all();  // it is on the group of the gradients
  agree(own_.group_, "buffers of the model", text_of_buffers(own_.scanned_));
  exchange_buffers();
}

void SharedBuffers::exchange_buffers() {
  own_.buffer_exchange_.reset();
  if (own_.options_.buffers != BufferSync::at_construction && !own_.scanned_.buffers.empty() &&
      own_.group_.size() > 1)
    own_.buffer_exchange_.emplace(own_.group_, own_.scanned_.buffers, own_.options_.buffers);
}

}  // namespace dear::train
