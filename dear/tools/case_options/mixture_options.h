#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "dear/tools/cases/mixture_cases.h"
#include "dear/tools/cases/mixture_plan.h"

namespace CLI {
class App;
}

namespace dear::cli {

// The options of `simulate` and `plan` for models with mixtures of experts.
struct MixtureOptions {
  std::vector<std::string> overlaps;  // empty: all
  std::optional<std::string> gate;
  std::optional<double> capacity_factor;

  void add_overlap_to(CLI::App& command);
  void add_to(CLI::App& command);  // all but --overlap
  [[nodiscard]] cases::MixtureNames names() const;
};

// Whether all models are mixtures. ConfigError for mixtures beside other models, and for an option of
// mixtures that is given where none is one.
bool are_mixtures(const std::vector<std::string>& models, const MixtureOptions& options);

// ConfigError for an option of policies that `command`, `simulate` or `plan`, was given.
void refuse_beside_mixtures(const CLI::App& command);

void print_scenarios(const std::vector<cases::MixtureScenario>& scenarios);
// A line for each case; speed-ups are over all-to-alls under experts alone.
std::string table_of(const std::vector<cases::MixtureCase>& cases);
// A line for each overlap.
std::string table_of(const cases::MixtureAnswer& answer);

}  // namespace dear::cli
