#include "dear/tools/command/train_moe_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/methods/moe/passes.h"
#include "dear/methods/moe/routing.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"

namespace dear::cli {
namespace {

std::string checked_name(std::string_view option, const std::string& name,
                         const std::vector<std::string>& names) {
  for (const std::string& known : names)
    if (known == name) return name;
  const std::vector<std::string_view> views(names.begin(), names.end());
  throw ConfigError(fmt::format("{}: there is no '{}'{} choose one of {}", option, name,
                                did_you_mean(name, views), fmt::join(names, ", ")));
}

}  // namespace

void MoeTrainOptions::add_to(CLI::App& command) {
  const OptionAdder add(command);
  add("--model", model, "NAME",
      "gpt, or moe-gpt: with mixtures of experts, which lie on the workers (default gpt)");
  add("--experts", experts, "N", "With --model moe-gpt: experts of a mixture, a multiple of the workers");
  add("--mixture-every", every, "N",
      "Blocks of which the last has a mixture in place of its perceptron (default 2)");
  add("--gate", gate, "NAME",
      fmt::format("Which experts a token visits: {} (default switch)",
                  fmt::join(methods::moe::gates(), ", ")));
  add("--capacity-factor", capacity_factor, "X",
      "Places of an expert for the tokens of a worker: X times their share; others are dropped (default "
      "1.25)");
  add("--overlap", overlap, "NAME",
      fmt::format("What all-to-alls are hidden under, with the same result: {} (default none)",
                  fmt::join(methods::moe::live_overlaps(), ", ")));
  add("--parts", parts, "K",
      "Into so many parts the batch is cut, to be hidden under each other (default 1)");
}

std::string MoeTrainOptions::given() const {
  return experts           ? "--experts"
         : every           ? "--mixture-every"
         : gate            ? "--gate"
         : capacity_factor ? "--capacity-factor"
         : overlap         ? "--overlap"
         : parts           ? "--parts"
                           : "";
}

std::optional<train_command::MoeJob> check(const MoeTrainOptions& options, const train_command::GptJob& job,
                                           int workers) {
  if (checked_name("--model", options.model.value_or(kGpt), {kGpt, kMoeGpt}) == kGpt) {
    if (const std::string given = options.given(); !given.empty())
      throw ConfigError(
          fmt::format("{} is of mixtures of experts: name their model, too, with --model moe-gpt", given));
    return std::nullopt;
  }
  if (!options.experts)
    throw ConfigError(
        fmt::format("--model moe-gpt has mixtures of experts: say of how many with --experts, a multiple of "
                    "the {} workers",
                    workers));
  constexpr std::int64_t kMostExperts = 1 << 16;
  const std::int64_t tokens = job.batch * job.context;
  train_command::MoeJob moe{.experts = *options.experts};
  check_range("--experts", moe.experts, 1, kMostExperts);
  parse_option("--experts", [&] { return methods::moe::experts_of_rank(moe.experts, workers); });
  parse_option("--experts", [&] { return methods::moe::capacity_of(1, tokens, moe.experts); });
  moe.gate = checked_name("--gate", options.gate.value_or(moe.gate), methods::moe::gates());
  if (moe.gate == "top2" && moe.experts < 2)
    throw ConfigError("--gate top2 chooses two experts, and there is one: give at least 2 with --experts");
  moe.overlap =
      checked_name("--overlap", options.overlap.value_or(moe.overlap), methods::moe::live_overlaps());
  moe.capacity_factor = options.capacity_factor.value_or(moe.capacity_factor);
  parse_option("--capacity-factor",
               [&] { return methods::moe::capacity_of(moe.capacity_factor, tokens, moe.experts); });
  check_range("--parts", options.parts.value_or(1), 1, job.batch);
  moe.parts = static_cast<int>(options.parts.value_or(1));
  parse_option("--parts",
               [&] { return methods::moe::parts_of_batch(job.batch, job.context, moe.parts).size(); });
  moe.every = options.every.value_or(std::min<std::int64_t>(moe.every, job.layers));
  check_range("--mixture-every", moe.every, 1, job.layers);
  return moe;
}

}  // namespace dear::cli
