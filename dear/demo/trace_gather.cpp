#include "dear/demo/trace_gather.h"

#include <map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "dear/collective/exchange.h"

namespace dear::demo {
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
  const json document = json::parse(text);
  const json& names = document.at("names");
  std::vector<Span> spans;
  for (const json& row : document.at("spans")) {
    spans.push_back({.rank = row.at(0).get<int>(),
                     .lane = names.at(row.at(1).get<std::size_t>()).get<std::string>(),
                     .name = names.at(row.at(2).get<std::size_t>()).get<std::string>(),
                     .activity = static_cast<Activity>(row.at(3).get<int>()),
                     .iteration = row.at(4).get<std::int64_t>(),
                     .step = row.at(5).get<std::int64_t>(),
                     .begin_seconds = row.at(6).get<double>(),
                     .end_seconds = row.at(7).get<double>()});
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

}  // namespace dear::demo
