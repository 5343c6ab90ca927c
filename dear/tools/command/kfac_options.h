#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dear/systems/train_command/train_settings.h"

namespace CLI {
class App;
}

namespace dear::cli {

// KfacTrainOptions hold the options of K-FAC, as a user gives them, of `dear train --optimizer kfac`.
struct KfacTrainOptions {
  std::optional<std::string> strategy{};  // spd-kfac
  std::optional<double> damping{}, ema{}, clip{};
  std::optional<std::int64_t> factors{}, inverses{};  // steps from one renewal to the next
  std::optional<std::string> exclude{};               // "blocks.0,blocks.1.mlp_input"
  bool pi = false;

  void add_to(CLI::App& command);
  // The name of an option that was given; "" for none.
  [[nodiscard]] std::string given() const;
};

inline constexpr const char* kKfac = "kfac";  // of --optimizer: K-FAC, then SGD with momentum 0.9
inline constexpr double kKfacLearningRate = 0.1;

// ConfigError, one sentence that names the option, for the first value that cannot be used.
train_command::KfacJob check(const KfacTrainOptions& options);

}  // namespace dear::cli
