// What ranks that share one copy of the parameters need beside [Note: one copy] in
// schedule/policies/one_copy.h.

#include "dear/schedule/policies/one_copy.h"

#include <exception>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/memory.h"
#include "dear/base/vocabulary/error.h"
#include "dear/comm/group/exchange.h"
#include "dear/train/autograd/operator_observer.h"
#include "dear/train/data_parallel/data_parallel_impl.h"
#include "dear/train/engine/engine.h"

namespace dear {
// On every rank alike: the policy and the group are the same for all.
void DataParallel::Impl::agree_on_copies() {
  agree(group_, "choice of one copy of the parameters", options_.one_copy,
        [&] { return options_.one_copy ? "on" : "off"; });
  if (!options_.one_copy) return;
  require_one_copy_policy(find_policy(options_.policy));
  if (group_.size() == 1) {
    options_.one_copy = false;  // it is one already
    return;
  }
  if (!group_.shares_memory()) static_cast<void>(group_.allocate_shared(0));  // says why not
}

// Ranks may go different ways from here on: none may change what another one reads. After a failure the
// parameters are not whole, and where memory is short they stay as they are.
void DataParallel::Impl::leave_one_copy() noexcept {
  if (!options_.one_copy || !engine_ || state_.now() == autograd::IterationState::State::failed ||
      std::uncaught_exceptions() > unwinding_)
    return;
  try {
    engine_->conductor().synchronize();
    engine_->leave_one_copy();
  } catch (const std::exception&) {
  }
}

}  // namespace dear
