#pragma once

#include <cstdint>
#include <string>

#include "dear/base/recorder/record.h"

// The groups of a process when the process ends, or a training on them does.
namespace dear::comm {

// Ends every group of this process with this reason, here and on the peers, which repeat it. No-op for groups
// that have failed already. From any thread.
void abort_groups(const std::string& reason) noexcept;

// Ends every group of this process in good order, as exit() does: peers that wait for this rank learn that it
// left. What is asked of the groups afterwards is a TransportError. No-op in a child that was forked.
void leave_groups() noexcept;

// "rank 2 failed: REASON". A reason that says already which rank failed, died or left, or in which collective
// ranks differ, stays as it is: who repeats it has not caused it.
std::string failure_of(int rank, const std::string& reason);

// The label of a barrier by which a rank ends a training whose gradients may be on their way. Peers that do
// something else read of it in their MismatchError.
inline constexpr std::int64_t kEndsWithinAStep = recorder::kEndsWithinAStep;

}  // namespace dear::comm
