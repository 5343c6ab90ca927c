#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "dear/base/diagnosis/diagnosis.h"
#include "dear/base/vocabulary/units.h"

namespace dear::diagnose {

std::string to_text(const JobRecords& job, const Diagnosis& diagnosis) {
  const auto time = [](const std::optional<double>& seconds) {
    return seconds ? format_seconds(*seconds) : std::string("-");
  };
  std::string text = fmt::format("{}\n\n{:>4} {:>8} {:>10} {:>10} {:>10}\n", diagnosis.what, "rank", "steps",
                                 "a step", "computing", "waited");
  for (std::size_t rank = 0; rank < diagnosis.ranks.size(); ++rank) {
    const Diagnosis::OfRank& one = diagnosis.ranks[rank];
    text += fmt::format("{:>4} {:>8} {:>10} {:>10} {:>10}\n", rank, one.steps, time(one.step_seconds),
                        time(one.compute_seconds), time(one.waited_seconds));
  }
  text += "\n";
  for (std::size_t rank = 0; rank < diagnosis.ranks.size(); ++rank)
    text += fmt::format("rank {} was {}\n", rank, diagnosis.ranks[rank].doing);
  if (diagnosis.difference) {
    text += fmt::format("\nfirst collective that differs, number {}:\n", diagnosis.difference->number);
    for (std::size_t rank = 0; rank < diagnosis.difference->by_rank.size(); ++rank)
      if (!diagnosis.difference->by_rank[rank].empty())
        text += fmt::format("  rank {}: {}\n", rank, diagnosis.difference->by_rank[rank]);
  }
  if (diagnosis.slowest)
    text += fmt::format("\nslowest: rank {}, which computes {:.0f} % longer than the median rank\n",
                        *diagnosis.slowest, 100 * diagnosis.slowest_share);
  if (!diagnosis.first_not_finite.empty())
    text += fmt::format("\nfirst NaN or infinity: {}\n", diagnosis.first_not_finite);
  for (const int rank : diagnosis.culprits) {
    const auto place = static_cast<std::size_t>(rank);
    if (place < job.seen.size() && !job.seen[place].stacks.empty())
      text += fmt::format("\nstacks of rank {}:\n{}", rank, job.seen[place].stacks);
  }
  for (const std::string& note : diagnosis.notes) text += fmt::format("\nnot read: {}\n", note);
  return text;
}

std::string to_json(const JobRecords& job, const Diagnosis& diagnosis) {
  using Json = nlohmann::ordered_json;
  const auto number = [](const std::optional<double>& seconds) {
    return seconds ? Json(*seconds) : Json(nullptr);
  };
  Json json{{"format", "dear-diagnosis"},
            {"version", 1},
            {"cause", name_of(diagnosis.cause)},
            {"culprits", diagnosis.culprits},
            {"what", diagnosis.what}};
  json["first_difference"] = nullptr;
  if (diagnosis.difference)
    json["first_difference"] = {{"number", diagnosis.difference->number},
                                {"by_rank", diagnosis.difference->by_rank}};
  json["slowest"] = nullptr;
  if (diagnosis.slowest) json["slowest"] = {{"rank", *diagnosis.slowest}, {"share", diagnosis.slowest_share}};
  json["first_not_finite"] = diagnosis.first_not_finite;
  json["ranks"] = Json::array();
  for (std::size_t rank = 0; rank < diagnosis.ranks.size(); ++rank) {
    const Diagnosis::OfRank& one = diagnosis.ranks[rank];
    json["ranks"].push_back({{"rank", rank},
                             {"steps", one.steps},
                             {"step_seconds", number(one.step_seconds)},
                             {"compute_seconds", number(one.compute_seconds)},
                             {"waited_seconds", number(one.waited_seconds)},
                             {"was", one.doing},
                             {"stacks", job.seen[rank].stacks}});
  }
  json["not_read"] = diagnosis.notes;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dear::diagnose
