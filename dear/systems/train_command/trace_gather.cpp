#include "dear/systems/train_command/trace_gather.h"

#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/json/json_field.h"
#include "dear/comm/group/exchange.h"

namespace dear::train_command {
namespace {

using nlohmann::json;

// Numbers the names of spans: a run has some thousand spans with a few dozen names.
class NameTable {
 public:
  std::size_t index_of(const std::string& name) {
    const auto [entry, added] = index_.emplace(name, names_.size());
    if (added) {
      names_.push_back(name);
    }
    return entry->second;
  }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  std::map<std::string, std::size_t> index_;
  std::vector<std::string> names_;
};

}  // namespace

std::string encode_spans(const std::vector<Span>& spans) {
  NameTable names;
  json rows = json::array();
  for (const Span& span : spans) {
    rows.push_back({span.rank, names.index_of(span.lane), names.index_of(span.name),
                    static_cast<int>(span.activity), span.iteration, span.step, span.begin_seconds,
                    span.end_seconds});
  }
  return json{{"names", names.names()}, {"spans", std::move(rows)}}.dump();
}

std::vector<Span> decode_spans(const std::string& text) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Json document = Json::parse(text);
  const JsonField root(document, "spans of another rank");
  const std::vector<JsonField> names = root.member("names").elements();
  const auto name_at = [&](const JsonField& index) {
    return names[static_cast<std::size_t>(index.integer(0, std::ssize(names) - 1))].text();
  };
  std::vector<Span> spans;
  for (const JsonField& row : root.member("spans").elements()) {
    const std::vector<JsonField> fields = row.elements();
    if (fields.size() != 8) row.fail(fmt::format("{} values, but a span has 8", fields.size()));
    spans.push_back(
        {.rank = static_cast<int>(fields[0].integer(0, std::numeric_limits<int>::max())),
         .lane = name_at(fields[1]),
         .name = name_at(fields[2]),
         .activity = static_cast<Activity>(fields[3].integer(0, static_cast<int>(Activity::other))),
         .iteration = fields[4].integer(-1, kMost),
         .step = fields[5].integer(-1, kMost),
         .begin_seconds = fields[6].number(),
         .end_seconds = fields[7].number()});
  }
  return spans;
}

Trace gather_trace(const Group& group, const Trace& mine) {
  Trace all{.title = mine.title, .network = mine.network, .spans = {}};
  for (const std::string& text : all_gather_text(group, encode_spans(mine.spans))) {
    std::vector<Span> spans = decode_spans(text);
    all.spans.insert(all.spans.end(), std::make_move_iterator(spans.begin()),
                     std::make_move_iterator(spans.end()));
  }
  return all;
}

}  // namespace dear::train_command
