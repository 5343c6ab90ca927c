#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dear/tools/cases/kfac_cases.h"

namespace CLI {
class App;
}

namespace dear::cli {

// The options of `simulate` and `replay` for policies of K-FAC.
struct KfacPolicyOptions {
  std::optional<std::string> factor_fusion, inverse_placement;
  std::optional<std::uint32_t> factor_every, inverse_every;

  void add_to(CLI::App& command);
  // ConfigError for an option that is given where no policy is one of K-FAC.
  void require_kfac(const std::vector<std::string>& policies) const;
  // Inverses come as often as factors where nothing else is said.
  [[nodiscard]] cases::KfacNames names(std::vector<std::string> policies) const;
};

// The names among `policies` that are of K-FAC, and the others, each in order.
struct Policies {
  std::vector<std::string> kfac, others;
};
Policies divide(const std::vector<std::string>& policies);

// A line for each model that has layers which keep their plain gradient; "" for none.
std::string left_out_of(const std::vector<cases::KfacCase>& cases);
// A line for each case, with what an iteration is made of; speed-ups are over the first of every `lines`.
std::string table_of(const std::vector<cases::KfacCase>& cases, std::size_t lines);

}  // namespace dear::cli
