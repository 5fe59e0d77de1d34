#include "fuzz/input.hpp"
#include "store/settings.hpp"
#include "store/store_url.hpp"

namespace kiln::fuzz {
namespace {

constexpr std::string_view file = "kiln.conf";

/// Whether the text is "kiln.conf:LINE" and what may follow a line.
bool names_a_line(std::string_view text) {
  if (!text.starts_with(file)) return false;
  text.remove_prefix(file.size());
  if (!text.starts_with(':')) return false;
  const std::size_t digits = text.find_first_not_of("0123456789", 1);
  return digits != 1 && (digits == std::string_view::npos || text[digits] == ':');
}

template <class T>
void expect_source(const std::optional<store::Setting<T>>& setting) {
  expect(!setting || names_a_line(setting->source), "a setting names its line");
}

}  // namespace
}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  using namespace kiln::fuzz;
  const std::string_view text = Input(data, size).rest();
  const auto config = store::parse_config(text, std::string(file));
  expect_source(config.stores);
  expect_source(config.share_facts);
  expect_source(config.upload_limit);
  expect_source(config.signing_key);
  expect(!config.signing_key || config.signing_key->value.is_absolute() ||
             config.signing_key->value == store::no_signing_key,
         "the path of a key is absolute");
  expect(!config.upload_limit || config.upload_limit->value.count() <= 3'600'000,
         "the limit of uploads is bounded");
  expect(!config.upload_limit || config.upload_limit->value.count() >= 0, "the limit of uploads is not negative");
  expect(config.problems.size() <= store::max_config_problems + 1, "problems are bounded");
  for (const auto& problem : config.problems) {
    expect(problem.starts_with(file), "a problem names its file");
    // Problems do not quote the file, so all their characters are Kiln's.
    for (const char c : problem) expect(c >= ' ' && c < 0x7f, "a problem is plain text");
  }
  if (!config.stores) return 0;
  expect(config.stores->value.size() <= store::max_configured_stores, "stores are bounded");
  for (const auto& configured : config.stores->value) {
    expect(names_a_line(configured.source), "a store names its line");
    expect(store::parse_store_url(configured.value).ok(), "the URL of a store is valid");
  }
  return 0;
}
