#include "dear/tools/command/saving_options.h"

#include "dear/tools/options/option_adder.h"

namespace dear::cli {

void add_saving_options(CLI::App& command, SavingOptions& options) {
  const OptionAdder add(command);
  add("--save", options.save, "FOLDER",
      "Folder for checkpoints: one every --every steps, one at the end, and one where SIGTERM comes, which "
      "then ends the "
      "training with code 0 after the step that is under way");
  add.with_default("--every", options.every, "K", "Steps from one checkpoint to the next (default 100)");
  add.with_default("--keep", options.keep, "N",
                   "How many checkpoints stay in the folder, the newest ones (default 2)");
  command.add_flag("--resume", options.resume,
                   "Go on from the newest checkpoint in --save, where there is one, until --steps are taken "
                   "in all; with as "
                   "many workers, to the bit");
}

}  // namespace dear::cli
