#include "dear/base/archive/value.h"

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

}  // namespace dear::archive
