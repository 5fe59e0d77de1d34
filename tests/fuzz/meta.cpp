#include "fuzz/input.hpp"
#include "key/identity.hpp"
#include "store/directory.hpp"
#include "store/json_file.hpp"

namespace kiln::fuzz {
namespace {

void read_name(const std::string& name) {
  if (const auto entry = store::entry_of_meta(name))
    expect(store::meta_file_name(*entry) == name, "an entry and its .meta have one name");
  const auto key = store::key_of_file(name);
  if (!key) return;
  expect(store::is_device_file(name), "an entry is a file of Kiln's");
  expect(store::entry_of_meta(store::meta_file_name(name)) == name, "a .meta leads back to its entry");
  const std::string own = store::entry_file_name(*key);
  expect(is_plain_file_name(own), "an entry has a plain name");
  expect(store::key_of_file(own)->digest == key->digest, "the name of an entry holds its key");
  expect(store::entry_file_name(*store::key_of_file(own)) == own, "a name that Kiln gave stays as it is");
}

void read_facts(const std::string& facts) {
  const store::EntryLabel label;
  const auto meta = store::parse_json(store::meta_of(label, {.facts = facts}, facts.size()));
  expect(meta.has_value(), "whatever the facts are, .meta is an object");
  expect(meta->at("key") == label.key.hex(), "the entry's own key is told, and not that of its facts");
  const auto given = store::parse_json(facts);
  if (given)
    for (const auto& fact : given->items()) expect(meta->contains(fact.key()), "all facts are told");
}

}  // namespace
}  // namespace kiln::fuzz

// The name of a file, and the facts of an entry.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln::fuzz;
  Input input(data, size);
  read_name(input.text());
  read_facts(std::string(input.rest()));
  return 0;
}
