#include "key/include_resolver.hpp"

#include <algorithm>
#include <charconv>

#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "fuzz/input.hpp"
#include "fuzz/numbered_lines.hpp"
#include "key/source_scanner.hpp"

namespace kiln::fuzz {
namespace {

using key::ResolvedSource;
using Headers = std::map<std::string, std::string>;

constexpr std::size_t max_bytes = 8192;

/// A folder to look in, and one beside it.
class Folders {
 public:
  Folders() {
    fakes::write_file(inside() / "plain.h", "plain\n");
    fakes::write_file(inside() / "once.h", "#pragma once\n#include \"sub/deep.h\"\nonce\n");
    fakes::write_file(inside() / "sub" / "deep.h", "#include \"../plain.h\"\n#include \"beside.h\"\n");
    fakes::write_file(inside() / "sub" / "beside.h", "beside\n");
    fakes::write_file(folder_.path() / "outside" / "secret.h", "secret\n");
  }
  std::filesystem::path inside() const { return folder_.path() / "inside"; }

 private:
  fakes::TemporaryFolder folder_;
};

/// Whether an #include says itself that it leaves the folders it is looked for in.
bool leaves_folders(const std::string& text) {
  return text.find("..") != std::string::npos || text.find("\"/") != std::string::npos ||
         text.find("</") != std::string::npos;
}

void expect_no_include(std::string_view text) {
  key::SourceScanner scanner(text);
  while (const auto directive = scanner.next()) {
    std::string_view rest = directive->rest;
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    if (directive->name != "include" || rest.empty() || (rest[0] != '"' && rest[0] != '<')) continue;
    const std::size_t end = rest.find(rest[0] == '"' ? '"' : '>', 1);
    const bool named = end != std::string_view::npos && end > 1;
    expect(!named, "no #include is left that names a file");
  }
}

void check(const ResolvedSource& resolved, const std::string& source, const Headers& headers,
           const std::vector<std::filesystem::path>& folders, bool leaves) {
  expect(resolved.text.size() <= max_bytes, "the text is not larger than it may be");
  expect(resolved.files.size() == resolved.digests.size() && !resolved.files.empty(), "files have digests");
  std::vector<std::string> texts = {source};
  for (std::size_t i = 1; i < resolved.files.size(); ++i) {
    const std::string& name = resolved.files[i];
    if (const auto header = headers.find(name); header != headers.end()) {
      texts.push_back(header->second);
      continue;
    }
    expect(!folders.empty(), "without folders nothing is read from disk");
    const bool is_inside = std::filesystem::path(name).lexically_normal().string().starts_with(folders[0].string());
    expect(is_inside || leaves, "no file is read outside of the folders unasked");
    expect(name.find('\0') == std::string::npos, "a file is read under its whole name");
    texts.push_back(fakes::read_file(name));
  }
  const bool has_own_numbers =
      std::ranges::any_of(texts, [](const std::string& text) { return text.find("line") != std::string::npos; });
  if (has_own_numbers) return;
  for_each_numbered_line(resolved.text, [&](std::string_view line, std::size_t number, std::string_view origin) {
    std::size_t file = 0;
    std::from_chars(origin.data(), origin.data() + origin.size(), file);
    if (line.starts_with('#') || line.empty()) return;
    expect(file < texts.size() && line_of(texts[file], number).find(line) != std::string_view::npos,
           "a line keeps its number and its file");
  });
}

}  // namespace
}  // namespace kiln::fuzz

// A byte of switches, a source, and names and texts of headers.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  using namespace kiln::fuzz;
  static const Folders places;
  Input input(data, size);
  const auto switches = input.number<std::uint8_t>();
  std::vector<std::filesystem::path> folders;
  if ((switches & 4) != 0) folders.push_back(places.inside());
  const std::string source = input.text();
  Headers headers;
  bool leaves = leaves_folders(source);
  while (!input.empty()) {
    const std::string name = input.text();
    leaves = leaves || leaves_folders(headers.insert_or_assign(name, input.text()).first->second);
  }
  const auto resolved = key::resolve_includes("source", source, {headers, folders}, max_bytes);
  if (!resolved) {
    expect(!resolved.error().message().empty(), "an error says what is wrong");
    return 0;
  }
  expect_no_include(resolved->text);
  check(*resolved, source, headers, folders, leaves);
  return 0;
}
