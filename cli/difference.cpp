#include "difference.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "inventory.hpp"

namespace kiln::cli {
namespace {

using Texts = std::map<std::string, std::string>;

std::vector<Difference> define_differences(const Texts& stored, const Texts& asked) {
  std::vector<Difference> differences;
  for (const auto& [name, value] : stored) {
    const auto other = asked.find(name);
    if (other == asked.end()) {
      differences.push_back({"define " + name, value, std::nullopt});
    } else if (other->second != value) {
      differences.push_back({"define " + name, value, other->second});
    }
  }
  for (const auto& [name, value] : asked)
    if (!stored.contains(name)) differences.push_back({"define " + name, std::nullopt, value});
  return differences;
}

Texts defines_of(const Json& facts) {
  Texts defines;
  const auto found = facts.find("defines");
  if (found == facts.end() || !found->is_object()) return defines;
  for (const auto& [name, value] : found->items())
    defines[name] = value.is_string() ? value.get<std::string>() : value.dump();
  return defines;
}

std::vector<std::string> options_of(const Json& facts) {
  std::vector<std::string> options;
  const auto found = facts.find("options");
  if (found == facts.end() || !found->is_array()) return options;
  for (const auto& option : *found)
    options.push_back(option.is_string() ? option.get<std::string>() : option.dump());
  return options;
}

/// The entry points, with commas between them. Kiln 0.1 wrote one.
std::string entries_of(const Json& facts) {
  const auto found = facts.find("entries");
  if (found == facts.end() || !found->is_array()) return text_of(facts, "entry");
  std::vector<std::string> names;
  for (const auto& entry : *found) names.push_back(entry.is_string() ? entry.get<std::string>() : entry.dump());
  return names.empty() ? "all" : fmt::format("{}", fmt::join(names, ", "));
}

std::string short_digest(const std::string& hex) { return "sha256 " + hex.substr(0, 12); }

struct Header {
  std::string name;
  std::string digest;
};

/// The parts of a source: its own text, and the files it includes.
struct Files {
  std::string own;
  std::vector<Header> headers;
};

std::string whole_source(const Json& facts) {
  const auto source = facts.find("source");
  return source != facts.end() && source->is_object() ? short_digest(text_of(*source, "sha256")) : "";
}

Files files_of(const Json& facts) {
  Files files;
  const auto found = facts.find("files");
  // Entries of sources that include nothing have no list.
  if (found == facts.end() || !found->is_array()) return {.own = whole_source(facts), .headers = {}};
  bool first = true;
  for (const auto& file : *found) {
    if (!file.is_object()) continue;
    const std::string digest = short_digest(text_of(file, "sha256"));
    if (first) {
      files.own = digest;
    } else {
      files.headers.push_back({text_of(file, "name"), digest});
    }
    first = false;
  }
  return files;
}

/// The folder of a header is not part of the key. Headers with the same text are equal; the others are paired by
/// their file names.
std::vector<Difference> header_differences(std::vector<Header> stored, std::vector<Header> asked) {
  const auto file_name = [](const Header& header) { return std::filesystem::path(header.name).filename(); };
  std::vector<Difference> differences;
  const auto pair_up = [&](const auto& same, const auto& use) {
    std::erase_if(stored, [&](const Header& before) {
      const auto now =
          std::find_if(asked.begin(), asked.end(), [&](const Header& header) { return same(before, header); });
      if (now == asked.end()) return false;
      use(before, *now);
      asked.erase(now);
      return true;
    });
  };
  const auto differ = [&](const Header& before, const Header& now) {
    differences.push_back({"header " + now.name, before.digest, now.digest});
  };
  pair_up([](const Header& a, const Header& b) { return a.digest == b.digest; }, [](const auto&, const auto&) {});
  pair_up([](const Header& a, const Header& b) { return a.name == b.name; }, differ);
  pair_up([&](const Header& a, const Header& b) { return file_name(a) == file_name(b); }, differ);
  for (const auto& header : stored) differences.push_back({"header " + header.name, header.digest, std::nullopt});
  for (const auto& header : asked) differences.push_back({"header " + header.name, std::nullopt, header.digest});
  return differences;
}

std::vector<Difference> option_differences(const std::vector<std::string>& stored,
                                           const std::vector<std::string>& asked) {
  if (stored == asked) return {};
  auto only_stored = stored;
  auto only_asked = asked;
  for (const auto& option : stored) {
    const auto same = std::find(only_asked.begin(), only_asked.end(), option);
    if (same == only_asked.end()) continue;
    only_asked.erase(same);
    only_stored.erase(std::find(only_stored.begin(), only_stored.end(), option));
  }
  std::vector<Difference> differences;
  differences.reserve(only_stored.size() + only_asked.size());
  for (const auto& option : only_stored) differences.push_back({"option", option, std::nullopt});
  for (const auto& option : only_asked) differences.push_back({"option", std::nullopt, option});
  if (differences.empty())
    differences.push_back(
        {"order of options", fmt::format("{}", fmt::join(stored, " ")), fmt::format("{}", fmt::join(asked, " "))});
  return differences;
}

}  // namespace

std::vector<Difference> request_differences(const Json& stored, const Json& asked) {
  std::vector<Difference> differences;
  const auto compare = [&](const std::string& field, const std::string& a, const std::string& b) {
    if (a != b) differences.push_back({field, a, b});
  };
  const auto append = [&](const std::vector<Difference>& more) {
    differences.insert(differences.end(), more.begin(), more.end());
  };
  compare("name", text_of(stored, "name"), text_of(asked, "name"));
  compare("language", text_of(stored, "language"), text_of(asked, "language"));
  compare("entry point", entries_of(stored), entries_of(asked));
  append(option_differences(options_of(stored), options_of(asked)));
  append(define_differences(defines_of(stored), defines_of(asked)));
  const Files stored_files = files_of(stored);
  const Files asked_files = files_of(asked);
  auto texts = header_differences(stored_files.headers, asked_files.headers);
  if (stored_files.own != asked_files.own)
    texts.insert(texts.begin(), {"source", stored_files.own, asked_files.own});
  // The same files in another order, as with headers that are included in another place.
  if (texts.empty() && whole_source(stored) != whole_source(asked))
    texts.push_back({"source with its headers", whole_source(stored), whole_source(asked)});
  append(texts);
  return differences;
}

std::vector<Difference> identity_differences(const Identity& stored, const Identity& asked) {
  std::vector<Difference> differences;
  const auto compare = [&](const std::string& field, const std::string& a, const std::string& b) {
    if (a != b) differences.push_back({field, a, b});
  };
  compare("api", stored.api, asked.api);
  compare("vendor", stored.vendor, asked.vendor);
  compare("device", stored.device, asked.device);
  compare("driver", stored.driver, asked.driver);
  compare("compiler", stored.compiler, asked.compiler);
  const auto list = [](const auto& formats) { return fmt::format("{:#x}", fmt::join(formats, " ")); };
  compare("binary formats", list(stored.formats), list(asked.formats));
  return differences;
}

}  // namespace kiln::cli
