#include "dear/tools/command/kfac_options.h"

#include <sstream>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/methods/kfac/plan.h"
#include "dear/tools/options/names_in.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"

namespace dear::cli {

void KfacTrainOptions::add_to(CLI::App& command) {
  const OptionAdder add(command);
  add("--kfac", strategy, "NAME",
      "With --optimizer kfac: when factors travel, and who inverts them, with the same result: " +
          names_in(methods::kfac::strategies()) + " (default: spd-kfac)");
  add("--kfac-damping", damping, "X", "Added to factors before they are inverted (default: 0.03)");
  add("--kfac-ema", ema, "PART", "Weight of the old running average of a factor (default: 0.95)");
  add("--kfac-clip", clip, "X", "Kullback-Leibler clip of a step; 0 for none (default: 0.001)");
  add("--kfac-factors", factors, "K", "Steps from one renewal of factors to the next (default: 1)");
  add("--kfac-inverses", inverses, "K",
      "Steps from one renewal of inverses to the next, a multiple of --kfac-factors (default: as "
      "--kfac-factors)");
  add("--kfac-exclude", exclude, "NAME[,NAME...]",
      "Layers that keep their plain gradients, such as blocks.0,blocks.1.mlp_input");
  command.add_flag("--kfac-pi", pi, "Split the damping between the two factors by their mean diagonals");
}

std::string KfacTrainOptions::given() const {
  return strategy   ? "--kfac"
         : damping  ? "--kfac-damping"
         : ema      ? "--kfac-ema"
         : clip     ? "--kfac-clip"
         : factors  ? "--kfac-factors"
         : inverses ? "--kfac-inverses"
         : exclude  ? "--kfac-exclude"
         : pi       ? "--kfac-pi"
                    : "";
}

train_command::KfacJob check(const KfacTrainOptions& options) {
  constexpr std::int64_t kMostSteps = 1'000'000;
  train_command::KfacJob job;
  if (options.strategy)
    job.strategy =
        parse_option("--kfac", [&] { return methods::kfac::find_strategy(*options.strategy).name; });
  job.damping = options.damping.value_or(job.damping);
  if (!(job.damping > 0) || !(job.damping <= 1e30))
    throw ConfigError(fmt::format("--kfac-damping is {}, but must be above 0 and at most 1e30", job.damping));
  job.ema = options.ema.value_or(job.ema);
  if (!(job.ema > 0) || !(job.ema < 1))
    throw ConfigError(fmt::format("--kfac-ema is {}, but must be above 0 and below 1", job.ema));
  if (options.clip) {
    if (!(*options.clip >= 0))
      throw ConfigError(fmt::format("--kfac-clip is {}, but must be at least 0", *options.clip));
    job.kl_clip = *options.clip > 0 ? options.clip : std::nullopt;
  }
  job.factor_every = options.factors.value_or(1);
  check_range("--kfac-factors", job.factor_every, 1, kMostSteps);
  job.inverse_every = options.inverses.value_or(job.factor_every);
  check_range("--kfac-inverses", job.inverse_every, 1, kMostSteps);
  if (job.inverse_every % job.factor_every != 0)
    throw ConfigError(fmt::format("--kfac-inverses is {}, but must be a multiple of --kfac-factors, {}",
                                  job.inverse_every, job.factor_every));
  job.pi_correction = options.pi;
  std::istringstream names(options.exclude.value_or(""));
  for (std::string name; std::getline(names, name, ',');) job.exclude.push_back(name);
  return job;
}

}  // namespace dear::cli
