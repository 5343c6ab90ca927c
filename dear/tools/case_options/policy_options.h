#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dear/schedule/fusion/grouping.h"

namespace CLI {
class App;
}

namespace dear::cli {

// The options of `simulate` and `replay` that say which policies run on which buckets.
struct PolicyOptions {
  std::vector<std::string> policies;  // empty: serial, wfbp, dear
  std::optional<std::string> fusion;
  std::string schedule;  // a file, instead of both

  void add_to(CLI::App& command, const std::string& fusion_help, const std::string& usual_fusion);
};

// ConfigError for the first of `options` that `command` was given: none of them changes anything of `what`.
void refuse_beside(std::string_view what, const CLI::App& command,
                   std::initializer_list<const char*> options);

// A PolicyChoice is made of PolicyOptions.
struct PolicyChoice {
  std::vector<std::string> policies;
  std::optional<ByName> buckets;  // of a schedule file
};
// ConfigError for --schedule beside the other options, and for a file that holds no schedule.
PolicyChoice choose_policies(const PolicyOptions& options);

}  // namespace dear::cli
