#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

// Reading files of our formats: JSON whose every mistake is a sentence that names the file, the place in it
// and what belongs there.
namespace dear {

using Json = nlohmann::ordered_json;

// A value in a document and the way to it, for messages: "layers[3].forward_seconds". The document outlives
// it. All that is thrown is ConfigError.
class JsonField {
 public:
  JsonField(const Json& value, std::string source, std::string path = "")
      : value_(&value), source_(std::move(source)), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& why) const;

  // An object with these members and no others; those of `optional` may be missing.
  void expect_members(const std::vector<std::string_view>& required,
                      const std::vector<std::string_view>& optional = {}) const;
  [[nodiscard]] bool has(std::string_view name) const { return value_->contains(name); }
  [[nodiscard]] JsonField member(std::string_view name) const;  // fails where it is missing
  [[nodiscard]] std::vector<JsonField> elements() const;

  [[nodiscard]] bool is_null() const { return value_->is_null(); }
  [[nodiscard]] std::string text() const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] double number() const;
  // At most kMostNumber, so that nothing that is computed of it overflows.
  [[nodiscard]] double number_from_0() const;
  [[nodiscard]] std::int64_t integer() const;
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] std::uint32_t index() const;

 private:
  [[noreturn]] void refuse(std::string_view expected) const;  // "a number"
  [[nodiscard]] JsonField at(const Json& value, std::string_view name) const;

  const Json* value_;
  std::string source_;
  std::string path_;
};

// Far above any second, byte or rate in a file of ours.
inline constexpr double kMostNumber = 1e15;

// ConfigError for JSON whose values lie within more than kMostDepth others: no parser limits it, and such
// values are destroyed and printed recursively.
inline constexpr int kMostDepth = 64;
void require_shallow(std::string_view text);

// Parses JSON of anybody's: ConfigError that names the `source` for text that is none or not shallow,
// for a name that stands twice in one object, for a number beyond the range of double, for a name or text of
// more than kLongestText bytes, and for one with a control character, which a terminal that it is shown on
// would obey.
inline constexpr std::size_t kLongestText = 4096;
Json parse_json(std::string_view text, const std::string& source);
// ConfigError that begins with `what` for a text that parse_json() would refuse for its length or a control
// character, so that nothing is written that cannot be read.
void require_readable(std::string_view text, const std::string& what);

// Holds what a file of ours says of itself in "format" and "version".
struct JsonFormat {
  std::string_view name;          // "dear-workload"
  std::int64_t version = 1;       // that this build writes
  std::int64_t oldest = version;  // that it still reads, and all between
  std::string_view kind;          // "workload file"
};

// The document of a file of this format; a `source` stands for it in messages.
Json parse_json_file(std::string_view text, const std::string& source, const JsonFormat& format);

}  // namespace dear
