#include "dear/tools/bench_collectives/protocol.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"

namespace dear::bench_collectives {
namespace {

using Json = nlohmann::json;

// In the order of the enumerations.
constexpr std::array<std::string_view, 4> kCommands{"welcome", "measure", "verify", "end"};
constexpr std::array<std::string_view, 7> kReplies{"hello", "ready",   "measured", "right",
                                                   "wrong", "refused", "failed"};

template <typename Kind, std::size_t size>
Kind find_kind(const std::array<std::string_view, size>& names, const std::string& name) {
  for (std::size_t i = 0; i < size; ++i) {
    if (names.at(i) == name) {
      return static_cast<Kind>(i);
    }
  }
  throw ConfigError("unknown kind " + name);
}

// Text of libraries may be in any encoding; a message must not fail for that.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// A number of another kind, or one that T does not hold, is refused: the library would convert it anyhow.
template <typename T>
T whole(const Json& json, const char* name) {
  const Json& value = json.at(name);
  if (value.is_number_unsigned() && std::in_range<T>(value.get<std::uint64_t>()))
    return static_cast<T>(value.get<std::uint64_t>());
  if (value.is_number_integer() && !value.is_number_unsigned() && std::in_range<T>(value.get<std::int64_t>()))
    return static_cast<T>(value.get<std::int64_t>());
  throw ConfigError("no whole number");
}

template <typename Read>
auto parse(std::string_view text, Read read) {
  try {
    return read(Json::parse(text));
  } catch (const Json::exception&) {
  } catch (const ConfigError&) {
  }
  throw TransportError(fmt::format(
      "a message between a benchmark and its ranks cannot be understood ('{}'): use the same `dear` on all",
      text.substr(0, 80)));
}

}  // namespace

std::string to_text(const Command& command) {
  return dump({{"command", kCommands.at(static_cast<std::size_t>(command.kind))},
               {"prepare_bytes", command.prepare_bytes},
               {"output_bytes", command.output_bytes},
               {"operation", name_of(command.operation)},
               {"dtype", name_of(command.dtype)},
               {"bytes", command.bytes},
               {"unmeasured", command.unmeasured},
               {"repetitions", command.repetitions},
               {"batch", command.batch},
               {"computing", command.computing},
               {"touching", command.touching},
               {"late_seconds", command.late_seconds},
               {"seed", command.seed}});
}

std::string to_text(const Reply& reply) {
  Json begins = Json::array();
  Json ends = Json::array();
  for (const Interval& interval : reply.intervals) {
    begins.push_back(interval.begin_seconds);
    ends.push_back(interval.end_seconds);
  }
  return dump({{"reply", kReplies.at(static_cast<std::size_t>(reply.kind))},
               {"rank", reply.rank},
               {"size", reply.size},
               {"text", reply.text},
               {"begins", begins},
               {"ends", ends},
               {"slowdowns", reply.slowdowns},
               {"processor_shares", reply.processor_shares},
               {"sent_bytes", reply.sent_bytes}});
}

Command parse_command(std::string_view text) {
  return parse(text, [](const Json& json) {
    return Command{.kind = find_kind<Command::Kind>(kCommands, json.at("command")),
                   .prepare_bytes = whole<std::int64_t>(json, "prepare_bytes"),
                   .output_bytes = whole<std::int64_t>(json, "output_bytes"),
                   .operation = parse_measured_operation(json.at("operation").get<std::string>()),
                   .dtype = parse_dtype(json.at("dtype").get<std::string>()),
                   .bytes = whole<std::int64_t>(json, "bytes"),
                   .unmeasured = whole<int>(json, "unmeasured"),
                   .repetitions = whole<int>(json, "repetitions"),
                   .batch = whole<int>(json, "batch"),
                   .computing = json.at("computing"),
                   .touching = json.at("touching"),
                   .late_seconds = json.at("late_seconds"),
                   .seed = whole<std::uint64_t>(json, "seed")};
  });
}

Reply parse_reply(std::string_view text) {
  return parse(text, [](const Json& json) {
    Reply reply{.kind = find_kind<Reply::Kind>(kReplies, json.at("reply")),
                .rank = whole<int>(json, "rank"),
                .size = whole<int>(json, "size"),
                .text = json.at("text"),
                .slowdowns = json.at("slowdowns"),
                .processor_shares = json.at("processor_shares"),
                .sent_bytes = whole<std::int64_t>(json, "sent_bytes")};
    const auto begins = json.at("begins").get<std::vector<double>>();
    const auto ends = json.at("ends").get<std::vector<double>>();
    if (begins.size() != ends.size()) {
      throw ConfigError("a begin without an end");
    }
    for (std::size_t i = 0; i < begins.size(); ++i) {
      reply.intervals.push_back({.begin_seconds = begins[i], .end_seconds = ends[i]});
    }
    return reply;
  });
}

}  // namespace dear::bench_collectives
