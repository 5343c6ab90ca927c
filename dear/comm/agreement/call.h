#pragma once

#include <cstdint>
#include <string>

namespace dear::agreement {

// A call that all ranks make alike, or a point of the program that all come to. Every exchange between ranks
// that is not a step of the schedule is for one of these. A rank that has run out of data does nothing.
enum class Call : std::uint32_t {
  nothing,
  backward_pass,
  step,
  discard_step,
  clip_by_norm,
  clip_by_value,
  unscale,
  scale,
  reduce_gradients,
  // From here on no part of a step that has begun.
  synchronize,
  broadcast_buffers,
  regroup,
  optimizer_state,
  load_optimizer_state,
  checkpoint,
  rebuild,
  trained_parameters,  // the program has frozen or unfrozen some, or the optimiser has others
  mean_of_loss,
  make_kfac,
  step_of_kfac,
};

[[nodiscard]] constexpr bool outside_of_steps(Call call) { return call >= Call::synchronize; }

// A call as ranks compare it.
struct CallMade {
  Call call = Call::nothing;
  std::uint32_t unused = 0;
  std::int64_t steps = 0;  // before it
  double argument = 0;     // the largest norm or value, or the scale of a loss
  double more = 0;         // the type of norm, or K-FAC's learning rates in one number
  friend bool operator==(const CallMade&, const CallMade&) = default;
};

// For messages: "step()", and "clip_gradients_by_norm(1) of type 2 after 3 steps".
[[nodiscard]] std::string text_of(Call call);
[[nodiscard]] std::string text_of(const CallMade& made);

}  // namespace dear::agreement
