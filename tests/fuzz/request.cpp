#include <kiln/request.hpp>

#include "backend/source_text.hpp"
#include "base/sha256.hpp"
#include "fuzz/input.hpp"
#include "key/identity.hpp"
#include "key/source_scanner.hpp"
#include "store/directory.hpp"
#include "store/json_file.hpp"

namespace kiln::fuzz {
namespace {

/// Adds what a text is by its first character: an option, a define, or a header, whose text follows.
void add(Input& input, Request::Fields& fields) {
  const std::string text = input.text();
  const std::string value = text.substr(std::min<std::size_t>(1, text.size()));
  if (text.starts_with('h')) {
    const std::string contents = input.text();
    // Two that include each other's text often are enough; more of them take longer than they tell.
    if (fields.headers.size() < 2) fields.headers.insert_or_assign(value, contents);
  } else if (text.starts_with('d')) {
    const std::size_t equals = std::min(value.find('='), value.size());
    fields.defines.insert_or_assign(value.substr(0, equals), value.substr(std::min(equals + 1, value.size())));
  } else {
    fields.options.push_back(text);
  }
}

void check(const Request& request) {
  const std::string file = store::entry_file_name(request.key());
  expect(is_plain_file_name(file), "an entry has a plain name");
  const auto key = store::key_of_file(file);
  expect(key && key->digest == request.key().digest, "the name of an entry holds its key");
  expect(key->name == key::file_name_part(key->name, 80), "a name that a file can hold stays as it is");
  expect(store::entry_of_meta(store::meta_file_name(file)) == file, "a .meta leads back to its entry");

  const auto facts = store::parse_json(request.describe());
  expect(facts && facts->at("source").at("sha256") == base::sha256(request.source()).hex(),
         "facts tell the source");
  if (request.error()) {
    expect(!request.error()->message().empty(), "an error says what is wrong");
    expect(request.source().empty(), "a request in error has no source to compile");
    return;
  }
  expect(request.source().size() <= Request::max_source_bytes, "a source is not larger than it may be");
  expect(request.source().find('\0') == std::string::npos, "a source is one text");
  for (const auto& [name, define] : request.defines()) {
    expect(key::is_name(name), "what is defined has a name");
    expect(define.find('\n') == std::string::npos, "a define is one line");
  }
}

void expect_other_keys(const Request::Fields& fields, const Digest& key) {
  const auto differs = [&](const char* promise, auto change) {
    Request::Fields changed = fields;
    change(changed);
    expect(Request(std::move(changed)).key().digest != key, promise);
  };
  expect(Request(fields).key().digest == key, "equal requests have one key");
  differs("the name counts", [](auto& other) { other.name += '_'; });
  differs("the entry points count", [](auto& other) { other.entries.push_back("kiln_other"); });
  differs("the source counts", [](auto& other) { other.source += "\n_"; });
  differs("options count", [](auto& other) { other.options.insert(other.options.begin(), "_"); });
  differs("defines count", [](auto& other) { other.defines.emplace("kiln_other", "_"); });
  differs("the language counts",
          [](auto& other) { other.language = static_cast<Language>((static_cast<int>(other.language) + 1) % 5); });
}

}  // namespace
}  // namespace kiln::fuzz

// A language, a name, an entry point, a source, a compiler's log, and what add() takes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  using namespace kiln::fuzz;
  Input input(data, size);
  Request::Fields fields;
  fields.language = static_cast<Language>(input.number<std::uint8_t>() % 5);
  fields.name = input.text();
  if (const std::string entry = input.text(); !entry.empty()) fields.entries = {entry};
  fields.source = input.text();
  const std::string log = input.text();
  while (!input.empty()) add(input, fields);

  const Request request(fields);
  check(request);
  if (request.error()) return 0;
  expect_other_keys(fields, request.key().digest);
  expect(!backend::with_defines(request).empty(), "a compiler gets a text");
  expect(backend::compile_message(request, log).starts_with(fields.name), "an error names its program");
  return 0;
}
