#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dear/systems/train_command/train_settings.h"

namespace CLI {
class App;
}

namespace dear::cli {

// MoeTrainOptions hold the model of `dear train` and the options of its mixtures of experts, as a user gives
// them.
struct MoeTrainOptions {
  std::optional<std::string> model{};     // gpt
  std::optional<std::int64_t> experts{};  // with moe-gpt, of all workers
  std::optional<std::string> gate{}, overlap{};
  std::optional<double> capacity_factor{};
  std::optional<std::int64_t> parts{}, every{};

  void add_to(CLI::App& command);
  // The name of an option of mixtures that was given; "" for none.
  [[nodiscard]] std::string given() const;
};

inline constexpr const char* kGpt = "gpt";
inline constexpr const char* kMoeGpt = "moe-gpt";

// The mixtures of moe-gpt; nothing for gpt. ConfigError, one sentence that names the option, for the first
// value that cannot be used.
std::optional<train_command::MoeJob> check(const MoeTrainOptions& options, const train_command::GptJob& job,
                                           int workers);

}  // namespace dear::cli
