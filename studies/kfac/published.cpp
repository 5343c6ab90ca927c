#include "studies/kfac/published.h"

#include <cmath>

#include <fmt/format.h>

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"

namespace dear::studies::kfac {
namespace {

constexpr JsonFormat kFormat = {.name = "dear-published-kfac", .kind = "file of figures of SPD-KFAC"};

double above_zero(const JsonField& field) {
  const double number = field.number_from_0();
  if (!(number > 0)) field.fail("expected a number above 0");
  return number;
}

int count_of(const JsonField& field) {
  const double number = above_zero(field);
  if (number > 1'000'000 || number != static_cast<int>(number))
    field.fail("expected a whole number up to 1000000");
  return static_cast<int>(number);
}

dear::methods::kfac::LinearCost linear_cost(const JsonField& field) {
  field.expect_members({"start_seconds", "seconds_per_element"});
  return {above_zero(field.member("start_seconds")), above_zero(field.member("seconds_per_element"))};
}

PublishedKfac::Model model_of(const JsonField& one) {
  one.expect_members({"model", "batch", "d", "mpd", "spd", "factors_sent", "inverses", "steps"});
  const JsonField sent = one.member("factors_sent"), inverses = one.member("inverses"),
                  steps = one.member("steps");
  sent.expect_members({"bulk", "alone", "threshold", "rule"});
  inverses.expect_members({"local", "round_robin", "balanced"});
  steps.expect_members({"none", "pipelining", "balance", "both"});
  return {.model = one.member("model").text(),
          .batch = count_of(one.member("batch")),
          .d = above_zero(one.member("d")),
          .mpd = above_zero(one.member("mpd")),
          .spd = above_zero(one.member("spd")),
          .factors_sent = {.bulk = above_zero(sent.member("bulk")),
                           .alone = above_zero(sent.member("alone")),
                           .threshold = above_zero(sent.member("threshold")),
                           .rule = above_zero(sent.member("rule"))},
          .inverses = {.local = above_zero(inverses.member("local")),
                       .round_robin = above_zero(inverses.member("round_robin")),
                       .balanced = above_zero(inverses.member("balanced"))},
          .steps = {.none = above_zero(steps.member("none")),
                    .pipelining = above_zero(steps.member("pipelining")),
                    .balance = above_zero(steps.member("balance")),
                    .both = above_zero(steps.member("both"))}};
}

PublishedKfac::Parts parts_of(const JsonField& one) {
  one.expect_members(
      {"model", "strategy", "passes", "gradients", "factors", "factors_sent", "inverses", "inverses_sent"});
  return {.model = one.member("model").text(),
          .strategy = one.member("strategy").text(),
          .passes = above_zero(one.member("passes")),
          .gradients = one.member("gradients").number_from_0(),
          .factors = above_zero(one.member("factors")),
          .factors_sent = one.member("factors_sent").number_from_0(),
          .inverses = above_zero(one.member("inverses")),
          .inverses_sent = one.member("inverses_sent").number_from_0()};
}

}  // namespace

PublishedKfac parse_published_kfac(std::string_view text, const std::string& source) {
  const Json document = parse_json_file(text, source, kFormat);
  const JsonField root(document, source);
  root.expect_members(
      {"format", "version", "source", "ranks", "device", "carrier", "costs", "models", "parts"});
  const JsonField carrier = root.member("carrier");
  carrier.expect_members({"name", "cycle_seconds", "threshold_elements"});
  const JsonField costs = root.member("costs");
  costs.expect_members({"all_reduce", "broadcast", "inverse"});
  const JsonField inverse = costs.member("inverse");
  inverse.expect_members({"start_seconds", "growth"});
  PublishedKfac published{
      .source = root.member("source").text(),
      .device = root.member("device").text(),
      .ranks = count_of(root.member("ranks")),
      .cycle_seconds = above_zero(carrier.member("cycle_seconds")),
      .threshold_elements = std::llround(above_zero(carrier.member("threshold_elements"))),
      .all_reduce = linear_cost(costs.member("all_reduce")),
      .broadcast = linear_cost(costs.member("broadcast")),
      .inverse_start_seconds = above_zero(inverse.member("start_seconds")),
      .inverse_growth = above_zero(inverse.member("growth")),
      .models = {},
      .parts = {}};
  for (const JsonField& one : root.member("models").elements()) published.models.push_back(model_of(one));
  for (const JsonField& one : root.member("parts").elements()) published.parts.push_back(parts_of(one));
  if (published.models.size() < 4)
    root.member("models").fail("expected at least four models: costs are fitted to half of them");
  return published;
}

const PublishedKfac::Parts& parts_of(const PublishedKfac& published, std::string_view model,
                                     std::string_view strategy) {
  for (const PublishedKfac::Parts& parts : published.parts)
    if (parts.model == model && parts.strategy == strategy) return parts;
  throw ConfigError(
      fmt::format("the published figures have no parts of {} on '{}': add them", strategy, model));
}

PublishedKfac read_published_kfac(const std::string& path) {
  return parse_published_kfac(os::read_file(path), path);
}

}  // namespace dear::studies::kfac
