#include "dear/base/archive/value.h"

#include <algorithm>

#include "dear/base/vocabulary/error.h"

namespace dear::archive {
namespace {

template <typename Key, typename Sought>
const Value* find_in(const Value& value, const Sought& sought) {
  const auto* dict = value.get<Value::Dict>();
  if (dict == nullptr) return nullptr;
  for (const Value::Entry& entry : *dict) {
    const Key* key = entry.key.get<Key>();
    if (key != nullptr && *key == sought) return &entry.value;
  }
  return nullptr;
}

}  // namespace

const Value* Value::find(std::string_view key) const { return find_in<std::string>(*this, key); }
const Value* Value::find(std::int64_t key) const { return find_in<std::int64_t>(*this, key); }

const Value& Value::at(std::string_view key, std::string_view file) const {
  const Value* found = find(key);
  if (found == nullptr) refuse(key, file);
  return *found;
}

void Value::refuse(std::string_view key, std::string_view file) {
  throw ConfigError("'" + std::string(file) + "' is no checkpoint of DeAR: its '" + std::string(key) +
                    "' is not there, or is something else");
}

void Value::set(Value key, Value value) {
  if (get<Dict>() == nullptr) data_ = Dict();
  get<Dict>()->push_back({std::move(key), std::move(value)});
}

std::vector<TensorRecord> records_in(const Value& value) {
  std::vector<TensorRecord> all;
  const auto add = [&all](const Value& item) {
    const std::vector<TensorRecord> inner = records_in(item);
    all.insert(all.end(), inner.begin(), inner.end());
  };
  if (const auto* record = value.get<TensorRecord>()) all.push_back(*record);
  if (const auto* list = value.get<Value::List>()) std::for_each(list->begin(), list->end(), add);
  if (const auto* dict = value.get<Value::Dict>())
    for (const auto& entry : *dict) add(entry.value);
  return all;
}

std::int64_t elements_of(const TensorRecord& record) {
  constexpr double kMost = 0x1p50;
  double count = 1, last = 0;  // the last element that the tensor reaches
  for (std::size_t i = 0; i < record.sizes.size(); ++i) {
    if (record.sizes[i] < 0 || record.strides[i] < 0) return -1;
    count *= static_cast<double>(record.sizes[i]);
    last += static_cast<double>(record.sizes[i] - 1) * static_cast<double>(record.strides[i]);
  }
  if (count > kMost || (count > 0 && last != count - 1)) return -1;
  return static_cast<std::int64_t>(count);
}

}  // namespace dear::archive
