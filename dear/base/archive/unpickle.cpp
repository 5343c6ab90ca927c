// The machine that a pickle is a program for (Python's Lib/pickletools.py describes its instructions), as far
// as torch.save() uses it, without the power to run anything.

#include <bit>
#include <cstring>
#include <map>
#include <optional>

#include "dear/base/archive/pickle.h"
#include "dear/base/vocabulary/error.h"

namespace dear::archive {
namespace {

constexpr int kDeepest = 100;
constexpr std::int64_t kMostMade = 10'000'000, kMostCopied = 1'000'000;  // values
// Bytes of copies: torch.save() remembers all that it writes, and has some 200 bytes for a tensor whose
// copies take 5,000.
constexpr std::int64_t kMostRoom = std::int64_t{16} << 20, kMostRoomForAByte = 64;

std::int64_t values_in(const Value& value) {
  std::int64_t count = 1;
  if (const auto* list = value.get<Value::List>())
    for (const Value& item : *list) count += values_in(item);
  if (const auto* tuple = value.get<Value::Tuple>())
    for (const Value& item : tuple->items) count += values_in(item);
  if (const auto* dict = value.get<Value::Dict>())
    for (const auto& [key, item] : *dict) count += values_in(key) + values_in(item);
  return count;
}

// The bytes of memory that a copy takes.
std::int64_t room_of(const Value& value) {
  std::size_t bytes = sizeof value;
  if (const auto* text = value.get<std::string>()) bytes += text->size();
  if (const auto* opaque = value.get<Opaque>()) bytes += opaque->what.size();
  if (const auto* tensor = value.get<TensorRecord>())
    bytes += tensor->key.size() + tensor->storage.size() +
             sizeof(std::int64_t) * (tensor->sizes.size() + tensor->strides.size());
  auto room = static_cast<std::int64_t>(bytes);
  if (const auto* list = value.get<Value::List>())
    for (const Value& item : *list) room += room_of(item);
  if (const auto* tuple = value.get<Value::Tuple>())
    for (const Value& item : tuple->items) room += room_of(item);
  if (const auto* dict = value.get<Value::Dict>())
    for (const auto& [key, item] : *dict) room += room_of(key) + room_of(item);
  return room;
}

class Unpickler {
 public:
  Unpickler(std::string_view bytes, std::string_view file)
      : rest_(bytes),
        file_(file),
        most_room_(kMostRoom + kMostRoomForAByte * static_cast<std::int64_t>(bytes.size())) {}
  Value run();

 private:
  // It is an entry of the stack. A global is a name of Python, a storage the first argument of a tensor's.
  struct Item {
    enum class Kind : std::uint8_t { value, mark, global } kind = Kind::value;
    Value value;
    int depth = 0;
  };

  [[noreturn]] void refuse(const std::string& why = "its pickle is damaged") const {
    throw ConfigError("cannot read '" + std::string(file_) + "' as a checkpoint: " + why);
  }
  std::string_view take(std::size_t count) {
    if (count > rest_.size()) refuse();
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string line() {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) refuse();
    std::string text(take(end));
    take(1);
    return text;
  }
  void push(Value value, int depth = 0) {
    if (++made_ > kMostMade) refuse("its pickle has more values than a checkpoint can have");
    stack_.push_back({Item::Kind::value, std::move(value), depth});
  }
  Item pop() {
    if (stack_.empty()) refuse();
    Item top = std::move(stack_.back());
    stack_.pop_back();
    return top;
  }
  Item pop_value() {
    Item top = pop();
    if (top.kind == Item::Kind::mark) refuse();
    return top;
  }
  Item& top() {
    if (stack_.empty() || stack_.back().kind == Item::Kind::mark) refuse();
    return stack_.back();
  }
  // Those above the last mark, which goes, too.
  std::vector<Item> pop_to_mark() {
    std::size_t at = stack_.size();
    while (at > 0 && stack_[at - 1].kind != Item::Kind::mark) --at;
    if (at == 0) refuse();
    std::vector<Item> items(std::make_move_iterator(stack_.begin() + static_cast<std::ptrdiff_t>(at)),
                            std::make_move_iterator(stack_.end()));
    stack_.resize(at - 1);
    return items;
  }
  void nest(Item& into, const Item& item) const {
    into.depth = std::max(into.depth, item.depth + 1);
    if (into.depth > kDeepest) refuse("its pickle nests beyond all bounds");
  }
  void push_tuple(std::vector<Item> items);
  void append(std::vector<Item> items);
  void set(std::vector<Item> items);
  void reduce();
  void make_storage();
  void count_copy(const Value& value) {
    if ((room_ += room_of(value)) > most_room_) refuse("its pickle repeats itself beyond all bounds");
  }
  void remember(std::uint32_t key);
  void recall(std::uint32_t key);
  void push_long(std::size_t bytes);
  [[nodiscard]] std::optional<TensorRecord> tensor_of(const Value::List& arguments) const;

  std::string_view rest_, file_;
  std::vector<Item> stack_;
  std::map<std::uint32_t, Item> memory_;
  std::int64_t made_ = 0, copied_ = 0, room_ = 0, most_room_;
};

void Unpickler::push_tuple(std::vector<Item> items) {
  Item tuple;
  Value::Tuple made;
  for (Item& item : items) {
    nest(tuple, item);
    made.items.push_back(std::move(item.value));
  }
  push(Value(std::move(made)), tuple.depth);
}

void Unpickler::append(std::vector<Item> items) {
  Item& list = top();
  auto* values = list.value.get<Value::List>();
  if (values == nullptr && !list.value.get<Opaque>()) refuse();
  for (Item& item : items) {
    nest(list, item);
    if (values != nullptr) values->push_back(std::move(item.value));
  }
}

void Unpickler::set(std::vector<Item> items) {
  Item& dict = top();
  auto* entries = dict.value.get<Value::Dict>();
  if ((entries == nullptr && !dict.value.get<Opaque>()) || items.size() % 2 != 0) refuse();
  for (std::size_t i = 0; i < items.size(); i += 2) {
    nest(dict, items[i]);
    nest(dict, items[i + 1]);
    if (entries != nullptr) entries->push_back({std::move(items[i].value), std::move(items[i + 1].value)});
  }
}

// A list or dict is remembered while it is still empty: whoever recalls it shares what it becomes, which
// values here cannot.
void Unpickler::remember(std::uint32_t key) {
  count_copy(top().value);
  Item item = top();
  if (item.value.get<Value::List>() || item.value.get<Value::Dict>())
    item.value = Opaque{"a list or dict that is there twice"};
  memory_.insert_or_assign(key, std::move(item));
}

void Unpickler::recall(std::uint32_t key) {
  const auto found = memory_.find(key);
  if (found == memory_.end()) refuse();
  if ((copied_ += values_in(found->second.value)) > kMostCopied)
    refuse("its pickle repeats itself beyond all bounds");
  count_copy(found->second.value);
  stack_.push_back(found->second);
}

std::vector<std::int64_t> numbers_of(const Value& value, bool& good) {
  std::vector<std::int64_t> numbers;
  const auto* tuple = value.get<Value::Tuple>();
  good = good && tuple != nullptr;
  if (!good) return numbers;
  for (const Value& item : tuple->items) {
    const auto* number = item.get<std::int64_t>();
    good = good && number != nullptr && *number >= 0;
    if (good) numbers.push_back(*number);
  }
  return numbers;
}

std::optional<TensorRecord> Unpickler::tensor_of(const Value::List& arguments) const {
  if (arguments.size() < 4) return std::nullopt;
  const auto* storage = arguments[0].get<TensorRecord>();
  const auto* offset = arguments[1].get<std::int64_t>();
  if (storage == nullptr || offset == nullptr || *offset < 0) return std::nullopt;
  TensorRecord tensor = *storage;
  bool good = true;
  tensor.offset = *offset;
  tensor.sizes = numbers_of(arguments[2], good);
  tensor.strides = numbers_of(arguments[3], good);
  if (!good || tensor.sizes.size() != tensor.strides.size()) return std::nullopt;
  return tensor;
}

void Unpickler::reduce() {
  Item arguments = pop_value();
  const Item function = pop_value();
  const auto* name = function.value.get<Opaque>();
  auto* tuple = arguments.value.get<Value::Tuple>();
  if (function.kind != Item::Kind::global || name == nullptr || tuple == nullptr) refuse();
  if (name->what == "collections.OrderedDict" && tuple->items.empty()) return push(Value::Dict());
  if (name->what == "torch._utils._rebuild_tensor_v2") {
    if (auto tensor = tensor_of(tuple->items)) return push(std::move(*tensor));
    refuse("its pickle describes a tensor that cannot be");
  }
  if (name->what == "torch._utils._rebuild_parameter" && !tuple->items.empty() &&
      tuple->items.front().get<TensorRecord>() != nullptr)
    return push(std::move(tuple->items.front()));
  push(Opaque{name->what});
}

// ('storage', class, key, device, elements)
void Unpickler::make_storage() {
  const Item item = pop_value();
  const auto* tuple = item.value.get<Value::Tuple>();
  if (tuple == nullptr || tuple->items.size() != 5) refuse();
  const auto* type = tuple->items[1].get<Opaque>();
  const auto* key = tuple->items[2].get<std::string>();
  const auto* elements = tuple->items[4].get<std::int64_t>();
  if (type == nullptr || key == nullptr || elements == nullptr || *elements < 0) refuse();
  push(TensorRecord{.key = *key,
                    .storage = type->what.substr(type->what.rfind('.') + 1),
                    .storage_elements = *elements,
                    .offset = 0,
                    .sizes = {},
                    .strides = {}});
}

// Little-endian, in two's complement.
void Unpickler::push_long(std::size_t bytes) {
  const std::string_view text = take(bytes);
  if (bytes > sizeof(std::int64_t)) return push(Opaque{"an integer of more than 64 bits"});
  std::uint64_t value = !text.empty() && (static_cast<unsigned char>(text.back()) & 0x80U) != 0 ? ~0ULL : 0;
  for (std::size_t i = bytes; i-- > 0;) value = (value << 8U) | static_cast<unsigned char>(text[i]);
  push(static_cast<std::int64_t>(value));
}

Value Unpickler::run() {
  while (true) {
    switch (take(1).front()) {
      case '\x80':
        if (number<std::uint8_t>() > 5) refuse("its pickle is of a later version");
        break;
      case '.': {
        Item result = pop_value();
        if (!stack_.empty() || result.kind != Item::Kind::value) refuse();
        return std::move(result.value);
      }
      case '(':
        stack_.push_back({Item::Kind::mark, {}, 0});
        break;
      case 'N':
        push({});
        break;
      case '\x88':
        push(true);
        break;
      case '\x89':
        push(false);
        break;
      case 'J':
        push(std::int64_t{number<std::int32_t>()});
        break;
      case 'K':
        push(std::int64_t{number<std::uint8_t>()});
        break;
      case 'M':
        push(std::int64_t{number<std::uint16_t>()});
        break;
      case '\x8a':
        push_long(number<std::uint8_t>());
        break;
      case 'G': {
        std::uint64_t bits = 0;
        for (const char byte : take(8)) bits = (bits << 8U) | static_cast<unsigned char>(byte);
        push(std::bit_cast<double>(bits));
        break;
      }
      case 'X':
        push(std::string(take(number<std::uint32_t>())));
        break;
      case '}':
        push(Value::Dict());
        break;
      case ']':
        push(Value::List());
        break;
      case ')':
        push_tuple({});
        break;
      case 't':
        push_tuple(pop_to_mark());
        break;
      case '\x85':
      case '\x86':
      case '\x87': {
        const std::size_t size = rest_.data()[-1] - '\x84';
        std::vector<Item> items(size);
        for (std::size_t i = size; i-- > 0;) items[i] = pop_value();
        push_tuple(std::move(items));
        break;
      }
      case 'a': {
        std::vector<Item> items;
        items.push_back(pop_value());
        append(std::move(items));
        break;
      }
      case 'e':
        append(pop_to_mark());
        break;
      case 's': {
        std::vector<Item> items(2);
        items[1] = pop_value();
        items[0] = pop_value();
        set(std::move(items));
        break;
      }
      case 'u':
        set(pop_to_mark());
        break;
      case 'q':
        remember(number<std::uint8_t>());
        break;
      case 'r':
        remember(number<std::uint32_t>());
        break;
      case 'h':
        recall(number<std::uint8_t>());
        break;
      case 'j':
        recall(number<std::uint32_t>());
        break;
      case 'c': {
        std::string module = line();
        push(Opaque{module + "." + line()});
        stack_.back().kind = Item::Kind::global;
        break;
      }
      case 'Q':
        make_storage();
        break;
      case 'R':
        reduce();
        break;
      case '\x81': {  // a new object of a class: its arguments, its class
        pop_value();
        const Item of = pop_value();
        push(of.value.get<Opaque>() ? of.value : Value(Opaque{"an object"}));
        break;
      }
      case 'b':  // attributes of an object
        pop_value();
        top();
        break;
      default:
        refuse("its pickle has an instruction that torch.save() does not use");
    }
  }
}

}  // namespace

Value unpickle(std::string_view bytes, std::string_view file) { return Unpickler(bytes, file).run(); }

}  // namespace dear::archive
