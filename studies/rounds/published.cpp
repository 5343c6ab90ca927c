#include "studies/rounds/published.h"

#include "studies/rounds/replicas.h"

#include "dear/base/json/json_field.h"
#include "dear/base/os/atomic_file.h"

namespace dear::studies::rounds {
namespace {

constexpr JsonFormat kFormatOfRounds = {.name = "dear-published-rounds",
                                        .kind = "file of figures of training by rounds"};
constexpr std::int64_t kMostSteps = 1'000'000;

double more_than_one(const JsonField& field) {
  const double number = field.number_from_0();
  if (!(number > 1)) field.fail("expected a number above 1");
  return number;
}

int steps_in(const JsonField& field) { return static_cast<int>(field.integer(1, kMostSteps)); }

int bits_in(const JsonField& field) {
  const auto bits = static_cast<int>(field.integer(1, 32));
  if (!carried_in(bits)) field.fail("expected 4, 8, 16 or 32 bits");
  return bits;
}

}  // namespace

PublishedRounds parse_published_rounds(std::string_view text, const std::string& source) {
  const Json document = parse_json_file(text, source, kFormatOfRounds);
  const JsonField root(document, source);
  root.expect_members({"format", "version", "source", "diloco", "streaming", "opendiloco", "intellect"});
  const JsonField diloco = root.member("diloco"), streaming = root.member("streaming"),
                  opendiloco = root.member("opendiloco"), intellect = root.member("intellect");
  diloco.expect_members({"source", "steps_a_round"});
  streaming.expect_members({"source", "times_less_peak_bandwidth", "bits"});
  opendiloco.expect_members({"source", "bits"});
  intellect.expect_members({"source", "steps_a_round", "bits", "times_fewer_bytes"});
  return {.source = root.member("source").text(),
          .diloco_steps = steps_in(diloco.member("steps_a_round")),
          .streaming_peak = more_than_one(streaming.member("times_less_peak_bandwidth")),
          .streaming_bits = bits_in(streaming.member("bits")),
          .intellect_steps = steps_in(intellect.member("steps_a_round")),
          .intellect_bits = bits_in(intellect.member("bits")),
          .intellect_bytes = more_than_one(intellect.member("times_fewer_bytes")),
          .opendiloco_bits = bits_in(opendiloco.member("bits"))};
}

PublishedRounds read_published_rounds(const std::string& path) {
  return parse_published_rounds(os::read_file(path), path);
}

}  // namespace dear::studies::rounds
