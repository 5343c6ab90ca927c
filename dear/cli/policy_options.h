#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dear/fusion/grouping.h"

namespace CLI {
class App;
}

namespace dear::cli {

// Which policies on which buckets: the options that `simulate` and `replay` share.
struct PolicyOptions {
  std::vector<std::string> policies;  // empty: serial, wfbp, dear
  std::optional<std::string> fusion;
  std::string schedule;  // a file, instead of both

  void add_to(CLI::App& command, const std::string& fusion_help, const std::string& usual_fusion);
};

struct PolicyChoice {
  std::vector<std::string> policies;
  std::optional<ByName> buckets;  // of a schedule file
};
// ConfigError for a schedule beside other options, and a file that is none.
PolicyChoice choose_policies(const PolicyOptions& options);

}  // namespace dear::cli
