#include "store/remote/s3_answer.hpp"
#include "store/remote/xml.hpp"

#include <algorithm>
#include <cctype>

#include "fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const std::string_view text = fuzz::Input(data, size).rest();
  std::size_t open = 0;
  const bool is_sound = store::read_xml(text, [&](std::string_view path, std::string_view value) {
    open = static_cast<std::size_t>(std::ranges::count(path, '/'));
    fuzz::expect(!path.empty() && path.size() + value.size() <= text.size(), "elements are parts of the text");
  });
  fuzz::expect(!is_sound || open == 0, "the root ends last");

  const auto refusal = store::parse_s3_refusal(text);
  fuzz::expect(is_sound || !refusal, "a refusal is well-formed");
  fuzz::expect(!refusal || std::ranges::all_of(refusal->code, [](unsigned char c) { return std::isalnum(c) != 0; }),
               "a code is one word");
  fuzz::expect(!refusal || refusal->region.empty() || store::is_region(refusal->region), "a region is one word");

  const auto page = store::parse_s3_listing(text);
  fuzz::expect(is_sound || !page, "a page is well-formed");
  if (!page) return 0;
  std::size_t bytes = page->next.size();
  for (const auto* names : {&page->keys, &page->folders})
    for (const std::string& name : *names) bytes += name.size();
  fuzz::expect(bytes <= text.size(), "a page is not longer than its text");
  return 0;
}
