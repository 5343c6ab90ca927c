#include "dear/comm/agreement/call.h"

#include <array>
#include <cstddef>

#include <fmt/format.h>

namespace dear::agreement {

std::string text_of(Call call) {
  constexpr std::array kNames{"nothing more",
                              "a backward pass",
                              "step()",
                              "discard_step()",
                              "clip_gradients_by_norm()",
                              "clip_gradients_by_value()",
                              "unscale_gradients()",
                              "step() with a scale",
                              "reduce_gradients()",
                              "synchronize()",
                              "broadcast_buffers()",
                              "regroup()",
                              "optimizer_state()",
                              "load_optimizer_state()",
                              "for a checkpoint",
                              "rebuild()",
                              "for another set of trained parameters",
                              "for the mean of a loss",
                              "for K-FAC",
                              "K-FAC's step()"};
  return kNames.at(static_cast<std::size_t>(call));
}

std::string text_of(const CallMade& made) {
  const auto with = [&] {
    switch (made.call) {
      case Call::clip_by_norm:
        return fmt::format("clip_gradients_by_norm({}) of type {}", made.argument, made.more);
      case Call::clip_by_value:
        return fmt::format("clip_gradients_by_value({})", made.argument);
      case Call::unscale:
        return fmt::format("unscale_gradients({})", made.argument);
      case Call::scale:
        return fmt::format("step() with loss scale {}", made.argument);
      case Call::step_of_kfac:
        return fmt::format("K-FAC's step() with learning rate {} and loss scale {}", made.more,
                           made.argument);
      default:
        return text_of(made.call);
    }
  };
  return fmt::format("{} after {} steps", with(), made.steps);
}

}  // namespace dear::agreement
