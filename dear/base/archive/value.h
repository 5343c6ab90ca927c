#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace dear::archive {

// A tensor whose elements are a record of the same file, "data/" and `key`.
struct TensorRecord {
  std::string key;
  std::string storage;  // as PyTorch calls it: "FloatStorage"
  std::int64_t storage_elements = 0;
  std::int64_t offset = 0;  // in elements, like the strides
  std::vector<std::int64_t> sizes, strides;
  friend bool operator==(const TensorRecord&, const TensorRecord&) = default;
};

// -1 for one that can be no tensor without gaps.
[[nodiscard]] std::int64_t elements_of(const TensorRecord& record);

// An object of Python that only Python knows.
struct Opaque {
  std::string what;
  friend bool operator==(const Opaque&, const Opaque&) = default;
};

// A value as Python has it, of the kinds that a checkpoint is made of.
class Value {
 public:
  struct Entry;
  using List = std::vector<Value>;
  struct Tuple {
    List items;
    friend bool operator==(const Tuple&, const Tuple&) = default;
  };
  using Dict = std::vector<Entry>;  // in the order in which it was filled
  using Data = std::variant<std::monostate, bool, std::int64_t, double, std::string, TensorRecord, List,
                            Tuple, Dict, Opaque>;

  Value() = default;  // None
  template <typename T>
    requires(!std::is_same_v<std::decay_t<T>, Value> && std::is_constructible_v<Data, T &&> &&
             !std::is_integral_v<std::decay_t<T>> && !std::is_convertible_v<T, const char*>)
  Value(T&& data) : data_(std::forward<T>(data)) {}
  Value(bool data);
  Value(std::int64_t data);
  Value(int data);
  Value(const char* data);

  [[nodiscard]] const Data& data() const { return data_; }
  template <typename T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&data_);
  }
  template <typename T>
  [[nodiscard]] T* get() {
    return std::get_if<T>(&data_);
  }
  // The value of this key; null where there is none, or this is no dict.
  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] const Value* find(std::int64_t key) const;
  // As above, but required: ConfigError that says what `file` lacks where it is not there, or is not of this
  // type. An int serves where a double is asked for.
  [[nodiscard]] const Value& at(std::string_view key, std::string_view file) const;
  template <typename T>
  [[nodiscard]] const T& at(std::string_view key, std::string_view file) const {
    const T* found = at(key, file).get<T>();
    if (found == nullptr) refuse(key, file);
    return *found;
  }
  void set(Value key, Value value);  // of a dict

  friend bool operator==(const Value&, const Value&) = default;

 private:
  [[noreturn]] static void refuse(std::string_view key, std::string_view file);
  Data data_;
};

struct Value::Entry {
  Value key, value;
  friend bool operator==(const Entry&, const Entry&) = default;
};

// The tensors in a value, in its order: of dicts and lists within each other.
[[nodiscard]] std::vector<TensorRecord> records_in(const Value& value);

// Here, where a variant of them all can be destroyed: an Entry is complete.
inline Value::Value(bool data) : data_(data) {}
inline Value::Value(std::int64_t data) : data_(data) {}
inline Value::Value(int data) : data_(static_cast<std::int64_t>(data)) {}
inline Value::Value(const char* data) : data_(std::string(data)) {}

}  // namespace dear::archive
