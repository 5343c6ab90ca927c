// The command under sanitizers, where tests start the launcher with it: `dear launch` alone.

#include <array>

#include "dear/tools/command/commands.h"
#include "dear/tools/command/version.h"

namespace dear::cli {

std::span<const AddCommand> commands() {
  static constexpr std::array<AddCommand, 1> kCommands{add_launch_command};
  return kCommands;
}

std::string version_text() { return "dear launch, for tests"; }

}  // namespace dear::cli
