#include "dear/base/json/json_field.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear {
namespace {

std::string describe(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_number()) return value.dump();
  const std::string_view type = value.type_name();
  const bool vowel = type.starts_with('a') || type.starts_with('o');
  return fmt::format("{} {}", vowel ? "an" : "a", type);
}

constexpr std::size_t kLongestReason = 500, kLongestPath = 200;  // in bytes: a name may fill the file

// Returns it as it stands in a file.
std::string quoted(const Json& text) {
  constexpr std::size_t kMost = 60;
  const std::string shown = text.dump(-1, ' ', true, Json::error_handler_t::replace);
  return shown.size() > kMost ? shortened(shown, kMost) + "\"" : shown;
}

bool holds(const std::vector<std::string_view>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Why a text cannot be read; "" where it can.
std::string fault_of_text(std::string_view text, const std::string& what) {
  if (text.size() > kLongestText)
    return fmt::format("{} has more than {} bytes: shorten it", what, kLongestText);
  if (!is_printable(text)) return fmt::format("{} has a control character in it: leave it out", what);
  return "";
}

// Looks at names and texts while they are parsed, and keeps no more than why they cannot be: a parser with a
// callback takes time that is quadratic in the length of a list of objects.
class Names final : public nlohmann::json_sax<Json> {
 public:
  bool start_object(std::size_t /*elements*/) override {
    names_.emplace_back();
    return true;
  }
  bool end_object() override {
    names_.pop_back();
    return true;
  }
  bool key(std::string& name) override {
    if (names_.back().insert(name).second) return string(name);
    fault = fmt::format("{} stands twice in one object: leave one out", quoted(Json(name)));
    return false;
  }
  bool string(std::string& text) override {
    if (text.size() > kLongestText || !is_printable(text))
      fault = fault_of_text(text, fmt::format("the text {}", quoted(Json(text))));
    return fault.empty();
  }
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(std::int64_t /*value*/) override { return true; }
  bool number_unsigned(std::uint64_t /*value*/) override { return true; }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return true; }
  bool binary(Json::binary_t& /*value*/) override { return true; }
  bool start_array(std::size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t /*place*/, const std::string& /*token*/,
                   const Json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: ..."
    const std::string_view message = error.what();
    const std::size_t tag_end = message.find("] ");
    const std::string_view said = tag_end == std::string_view::npos ? message : message.substr(tag_end + 2);
    fault = fmt::format("{}: correct the JSON", printable(shortened(said, kLongestReason)));
    return false;
  }

  std::string fault{};

 private:
  std::vector<std::set<std::string>> names_;  // of the objects around what is read
};

// Why a file cannot be parsed; "" where it can.
std::string fault_of_file(std::string_view text) try {
  if (text.starts_with("\x1f\x8b")) return "it is compressed by gzip: unpack it by gunzip";
  require_shallow(text);
  Names names;
  static_cast<void>(Json::sax_parse(text, &names));
  return names.fault;
} catch (const ConfigError& error) {
  return error.what();
}

}  // namespace

void require_readable(std::string_view text, const std::string& what) {
  const std::string fault = fault_of_text(text, what);
  if (!fault.empty()) throw ConfigError(fault);
}

void JsonField::fail(const std::string& why) const {
  const std::string reason = shortened(why, kLongestReason);
  throw ConfigError(path_.empty()
                        ? fmt::format("{}: {}", source_, reason)
                        : fmt::format("{}: {}: {}", source_, shortened(path_, kLongestPath), reason));
}

void JsonField::refuse(std::string_view expected) const {
  fail(fmt::format("expected {}, found {}", expected, describe(*value_)));
}

JsonField JsonField::at(const Json& value, std::string_view name) const {
  return {value, source_, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name)};
}

void JsonField::expect_members(const std::vector<std::string_view>& required,
                               const std::vector<std::string_view>& optional) const {
  if (!value_->is_object()) refuse("an object");
  for (const std::string_view name : required) {
    if (!value_->contains(name)) at(*value_, name).fail("missing: add it");
  }
  for (const auto& item : value_->items()) {
    if (!holds(required, item.key()) && !holds(optional, item.key())) {
      at(item.value(), item.key())
          .fail(fmt::format("unknown: expected only {}{}{}", fmt::join(required, ", "),
                            optional.empty() ? "" : ", ", fmt::join(optional, ", ")));
    }
  }
}

JsonField JsonField::member(std::string_view name) const {
  if (!value_->is_object()) refuse("an object");
  const auto found = value_->find(name);
  if (found == value_->end()) at(*value_, name).fail("missing: add it");
  return at(*found, name);
}

std::vector<JsonField> JsonField::elements() const {
  if (!value_->is_array()) refuse("an array");
  std::vector<JsonField> fields;
  fields.reserve(value_->size());
  for (const Json& element : *value_) {
    fields.emplace_back(element, source_, fmt::format("{}[{}]", path_, fields.size()));
  }
  return fields;
}

std::string JsonField::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get<std::string>();
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

double JsonField::number() const {
  if (!value_->is_number()) refuse("a number");
  return value_->get<double>();
}

double JsonField::number_from_0() const {
  if (!value_->is_number() || !(value_->get<double>() >= 0)) refuse("a number, 0 or more");
  if (value_->get<double>() > kMostNumber) refuse(fmt::format("a number of at most {:g}", kMostNumber));
  return value_->get<double>();
}

std::int64_t JsonField::integer() const {
  const bool beyond = value_->is_number_unsigned() &&
                      value_->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (!value_->is_number_integer() || beyond) refuse("an integer");
  return value_->get<std::int64_t>();
}

std::int64_t JsonField::integer(std::int64_t least, std::int64_t most) const {
  const bool fits = value_->is_number_integer() && value_->get<double>() < 0x1p62 &&
                    value_->get<std::int64_t>() >= least && value_->get<std::int64_t>() <= most;
  if (!fits) refuse(fmt::format("a whole number from {} to {}", least, most));
  return value_->get<std::int64_t>();
}

std::uint32_t JsonField::index() const {
  const bool fits = value_->is_number_unsigned() &&
                    value_->get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max();
  if (!fits) refuse("an index from 0");
  return value_->get<std::uint32_t>();
}

void require_shallow(std::string_view text) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
    } else if (c == '"') {
      in_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostDepth)
        throw ConfigError(
            fmt::format("at character {}: values lie within more than {} others: no file of DeAR is so deep",
                        i + 1, kMostDepth));
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

Json parse_json(std::string_view text, const std::string& source) {
  const std::string fault = fault_of_file(text);
  if (!fault.empty()) throw ConfigError(fmt::format("{}: {}", source, fault));
  return Json::parse(text);
}

Json parse_json_file(std::string_view text, const std::string& source, const JsonFormat& format) {
  const Json document = parse_json(text, source);
  const JsonField root(document, source);
  if (!document.is_object() || !document.contains("format") || document.at("format") != format.name) {
    root.fail(
        fmt::format("not a {}: it must be a JSON object with \"format\": \"{}\"", format.kind, format.name));
  }
  if (!document.contains("version")) {
    root.fail(fmt::format("version: missing: add \"version\": {}", format.version));
  }
  if (const std::int64_t version = root.member("version").integer();
      version < format.oldest || version > format.version) {
    const std::string readable = format.oldest == format.version
                                     ? fmt::format("version {}", format.version)
                                     : fmt::format("versions {} to {}", format.oldest, format.version);
    root.member("version").fail(fmt::format(
        "found {}, but this build reads {}: write the file anew with this build, or use the build that wrote "
        "it",
        version, readable));
  }
  return document;
}

}  // namespace dear
