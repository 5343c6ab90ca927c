#include "studies/fusionllm/published.h"

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/methods/pipeline/zoo_operators.h"
#include "dear/workload/zoo/models.h"

namespace dear::studies::fusionllm {
namespace {

constexpr JsonFormat kFormat = {.name = "dear-published-fusionllm", .kind = "file of figures of FusionLLM"};
constexpr std::int64_t kMostDevices = 1024;

double above_zero(const JsonField& field) {
  const double number = field.number_from_0();
  if (!(number > 0)) field.fail("expected a number above 0");
  return number;
}

double no_less(const JsonField& field, double least) {
  const double number = above_zero(field);
  if (number < least) field.fail("expected a number that is not below the least");
  return number;
}

std::string model_of(const JsonField& field) {
  std::string name = field.text();
  try {
    (void)methods::pipeline::operators_of(zoo::find_model(name));
  } catch (const ConfigError& error) {
    field.fail(error.what());
  }
  return name;
}

}  // namespace

PublishedFusionLlm parse_published_fusionllm(std::string_view text, const std::string& source) {
  const Json document = parse_json_file(text, source, kFormat);
  const JsonField root(document, source);
  root.expect_members({"format", "version", "source", "devices", "least_bits_per_second",
                       "most_bits_per_second", "least_speed_up", "most_speed_up", "models"});
  PublishedFusionLlm published{.source = root.member("source").text(),
                               .devices = static_cast<int>(root.member("devices").integer(1, kMostDevices)),
                               .least_bits_per_second = above_zero(root.member("least_bits_per_second")),
                               .least_speed_up = above_zero(root.member("least_speed_up")),
                               .models = {}};
  published.most_bits_per_second =
      no_less(root.member("most_bits_per_second"), published.least_bits_per_second);
  published.most_speed_up = no_less(root.member("most_speed_up"), published.least_speed_up);
  for (const JsonField& one : root.member("models").elements()) published.models.push_back(model_of(one));
  return published;
}

PublishedFusionLlm read_published_fusionllm(const std::string& path) {
  return parse_published_fusionllm(os::read_file(path), path);
}

}  // namespace dear::studies::fusionllm
