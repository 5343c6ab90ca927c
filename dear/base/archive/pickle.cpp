#include "dear/base/archive/pickle.h"

#include <bit>
#include <limits>

namespace dear::archive {
namespace {

class Pickler {
 public:
  std::string take(const Value& value) {
    text_ = "\x80\x02";
    add(value);
    text_ += '.';
    return std::move(text_);
  }

 private:
  template <typename T>
  void number(T value, std::size_t bytes = sizeof(T)) {
    for (std::size_t i = 0; i < bytes; ++i) text_ += static_cast<char>((value >> (8 * i)) & 0xFF);
  }
  void add(const Value& value) {
    std::visit([this](const auto& data) { put(data); }, value.data());
  }
  void put(std::monostate /*none*/) { text_ += 'N'; }
  void put(const Opaque& /*object*/) { text_ += 'N'; }
  void put(bool data) { text_ += data ? '\x88' : '\x89'; }
  void put(std::int64_t data) {
    if (data >= std::numeric_limits<std::int32_t>::min() &&
        data <= std::numeric_limits<std::int32_t>::max()) {
      text_ += 'J';
      number(data, 4);
    } else {
      text_ += "\x8a\x08";
      number(data);
    }
  }
  void put(double data) {
    text_ += 'G';
    const auto bits = std::bit_cast<std::uint64_t>(data);
    for (int shift = 56; shift >= 0; shift -= 8) text_ += static_cast<char>((bits >> shift) & 0xFF);
  }
  void put(const std::string& data) {
    text_ += 'X';
    number(data.size(), 4);
    text_ += data;
  }
  void put(const Value::List& data) {
    text_ += "](";
    for (const Value& item : data) add(item);
    text_ += 'e';
  }
  void put(const Value::Tuple& data) {
    text_ += '(';
    for (const Value& item : data.items) add(item);
    text_ += 't';
  }
  void put(const Value::Dict& data) {
    text_ += "}(";
    for (const auto& [key, value] : data) {
      add(key);
      add(value);
    }
    text_ += 'u';
  }
  void numbers(const std::vector<std::int64_t>& all) {
    text_ += '(';
    for (const std::int64_t one : all) put(one);
    text_ += 't';
  }
  void put(const TensorRecord& data) {
    text_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
    put(std::string("storage"));
    text_ += "ctorch\n" + data.storage + "\n";
    put(data.key);
    put(std::string("cpu"));
    put(data.storage_elements);
    text_ += "tQ";
    put(data.offset);
    numbers(data.sizes);
    numbers(data.strides);
    put(false);
    text_ += "ccollections\nOrderedDict\n)RtR";
  }

  std::string text_;
};

}  // namespace

std::string pickle(const Value& value) { return Pickler().take(value); }

}  // namespace dear::archive
