#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>

namespace kiln {
namespace {

/// The layer of each source folder. A file may include files of its own folder and of lower layers.
const std::map<std::string, int, std::less<>> folders = {
    {"base", 0},  {"key", 1},     {"memory", 2}, {"store", 2},        {"backend", 2},
    {"cache", 3}, {"bake", 4},    {"dialect", 4}, {"exec", 4},   {"kernels/tune", 5}, {"kernels", 6},
};

using Headers = std::map<std::string, std::string, std::less<>>;

/// The folder that each public header of Kiln::kiln belongs to. Values and interfaces that every layer above `base`
/// may use belong to `key`.
const Headers kiln_headers = {
    {"backend.hpp", "key"},
    {"bake.hpp", "bake"},
    {"bundle.hpp", "key"},
    {"cache.hpp", "cache"},
    {"compile_workers.hpp", "backend"},
    {"cuda.hpp", "backend"},
    {"device.hpp", "backend"},
    {"digest.hpp", "base"},
    {"durability.hpp", "base"},
    {"executor.hpp", "exec"},
    {"future.hpp", "base"},
    {"hip.hpp", "backend"},
    {"identity.hpp", "key"},
    {"kernel.hpp", "dialect"},
    {"launch.hpp", "backend"},
    {"log.hpp", "base"},
    {"opencl.hpp", "backend"},
    {"opengl.hpp", "backend"},
    {"program.hpp", "memory"},
    {"prune.hpp", "store"},
    {"request.hpp", "key"},
    {"result.hpp", "base"},
    {"slot.hpp", "backend"},
    {"stats.hpp", "key"},
    {"store.hpp", "key"},
    {"stream.hpp", "backend"},
    {"stream_executor.hpp", "exec"},
    {"vulkan.hpp", "backend"},
};

/// The same for Kiln::kernels.
const Headers kernels_headers = {
    {"kernels.hpp", "kernels"},
    {"tensor.hpp", "kernels"},
    {"tuner.hpp", "kernels/tune"},
};

std::string folder_of(std::string_view path) {
  constexpr std::string_view tune = "kernels/tune/";
  return std::string(path.substr(0, path.starts_with(tune) ? tune.size() - 1 : path.find('/')));
}

/// The folder of a public header, by its name in angle brackets.
std::optional<std::string> folder_of_header(std::string_view name) {
  const std::string_view prefix = name.starts_with("kiln/kernels/") ? "kiln/kernels/" : "kiln/";
  const Headers& headers = prefix == "kiln/" ? kiln_headers : kernels_headers;
  const auto known = headers.find(name.substr(prefix.size()));
  return known == headers.end() ? std::nullopt : std::optional(known->second);
}

/// Why `file` (relative to src/) must not include `included`, which has its quotes or angle brackets. Empty if it
/// may.
std::optional<std::string> objection(const std::string& file, const std::string& included) {
  const std::string name = included.substr(1, included.size() - 2);
  std::string target;
  if (included[0] == '"') {
    target = folder_of(name);
  } else {
    if (!name.starts_with("kiln/")) return std::nullopt;
    const auto known = folder_of_header(name);
    if (!known) return file + " includes " + included + ", which is no public header that this test knows";
    target = *known;
  }
  const auto from = folders.find(folder_of(file));
  const auto to = folders.find(target);
  if (from == folders.end()) return file + " is in no folder that this test knows";
  if (to == folders.end()) return file + " includes " + included + ", which is in no folder that this test knows";
  if (from->first == to->first || to->second < from->second) return std::nullopt;
  return file + " includes " + included + ": " + from->first + " must not include " + to->first;
}

/// The includes of a file, with their quotes or brackets.
std::vector<std::string> includes_of(std::istream& text) {
  std::vector<std::string> found;
  for (std::string line; std::getline(text, line);) {
    const std::size_t hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || line[hash] != '#') continue;
    const std::size_t word = line.find_first_not_of(" \t", hash + 1);
    if (word == std::string::npos || line.compare(word, 7, "include") != 0) continue;
    const std::size_t begin = line.find_first_of("\"<", word);
    const std::size_t end = begin == std::string::npos ? begin : line.find_first_of("\">", begin + 1);
    if (end != std::string::npos) found.push_back(line.substr(begin, end - begin + 1));
  }
  return found;
}

/// The names in `folder` that are not in `known`, and the names in `known` that are not in the folder.
template <class Known>
std::vector<std::string> unknown_or_missing(const std::filesystem::path& folder, const Known& known) {
  std::vector<std::string> wrong;
  for (const auto& item : std::filesystem::directory_iterator(folder))
    if (const std::string name = item.path().filename().string(); !known.contains(name)) wrong.push_back(name);
  for (const auto& [name, value] : known)
    if (!std::filesystem::exists(folder / name)) wrong.push_back(name);
  return wrong;
}

/// Calls `visit(path relative to folder, include)` for every include in the sources below `folder`.
template <class Visit>
void for_each_include(const std::filesystem::path& folder, Visit visit) {
  for (const auto& item : std::filesystem::recursive_directory_iterator(folder)) {
    const auto extension = item.path().extension();
    if (extension != ".cpp" && extension != ".hpp" && extension != ".h") continue;
    std::ifstream stream(item.path());
    const std::string file = item.path().lexically_relative(folder).generic_string();
    for (const std::string& included : includes_of(stream)) visit(file, included);
  }
}

TEST(Arrows, NoFolderIncludesAHigherLayer) {
  std::size_t seen = 0;
  for_each_include(std::filesystem::path(KILN_SOURCE_DIR) / "src", [&](const auto& file, const auto& included) {
    ++seen;
    if (const auto why = objection(file, included)) ADD_FAILURE() << *why;
  });
  EXPECT_GT(seen, 100U) << "the sources were not found";
  seen = 0;
  for_each_include(std::filesystem::path(KILN_SOURCE_DIR) / "kernels", [&](const auto& file, const auto& included) {
    ++seen;
    if (const auto why = objection("kernels/" + file, included)) ADD_FAILURE() << *why;
  });
  EXPECT_GT(seen, 20U) << "the kernels were not found";
}

TEST(Arrows, HeadersOfTheCacheDoNotIncludeThoseOfTheKernels) {
  for_each_include(std::filesystem::path(KILN_SOURCE_DIR) / "include", [&](const auto& file, const auto& included) {
    EXPECT_FALSE(included.starts_with("<kiln/kernels/")) << file << " includes " << included;
  });
}

TEST(Arrows, PublicHeadersAndExamplesIncludeOnlyPublicHeaders) {
  for (const char* folder : {"include", "kernels/include", "examples"}) {
    std::size_t seen = 0;
    for_each_include(std::filesystem::path(KILN_SOURCE_DIR) / folder, [&](const auto& file, const auto& included) {
      ++seen;
      // An example may have files of its own beside it.
      const auto beside = (std::filesystem::path(KILN_SOURCE_DIR) / folder / file).parent_path() /
                          included.substr(1, included.size() - 2);
      if (std::string_view(folder) == "examples" && included[0] == '"' && std::filesystem::exists(beside)) return;
      EXPECT_EQ(included[0], '<') << file << " includes " << included;
      // The highest layer may include every header, so only an unknown header is an error.
      if (const auto why = objection("kernels/" + file, included)) ADD_FAILURE() << *why;
    });
    EXPECT_GT(seen, 10U) << "the sources in " << folder << " were not found";
  }
}

TEST(Arrows, EveryPublicHeaderAndEveryFolderIsKnown) {
  const std::filesystem::path top(KILN_SOURCE_DIR);
  EXPECT_EQ(unknown_or_missing(top / "include" / "kiln", kiln_headers), std::vector<std::string>());
  EXPECT_EQ(unknown_or_missing(top / "kernels/include/kiln/kernels", kernels_headers), std::vector<std::string>());
  auto in_src = folders;
  in_src.erase("kernels");
  in_src.erase("kernels/tune");
  in_src.emplace("CMakeLists.txt", 0);
  EXPECT_EQ(unknown_or_missing(top / "src", in_src), std::vector<std::string>());
  for (const auto& item : std::filesystem::directory_iterator(top / "kernels")) {
    if (!item.is_directory()) continue;
    EXPECT_TRUE(item.path().filename() == "tune" || item.path().filename() == "include") << item.path();
  }
}

TEST(Arrows, AnUnknownHeaderOrFolderIsFound) {
  const auto folder = std::filesystem::path(testing::TempDir()) / ("arrows-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "attic");
  std::ofstream(folder / "cache.hpp") << "\n";
  std::ofstream(folder / "secret.hpp") << "\n";
  auto wrong =
      unknown_or_missing(folder, std::map<std::string, std::string>{{"cache.hpp", "cache"}, {"gone", "x"}});
  std::sort(wrong.begin(), wrong.end());
  EXPECT_EQ(wrong, (std::vector<std::string>{"attic", "gone", "secret.hpp"}));
  std::filesystem::remove_all(folder);
  EXPECT_TRUE(objection("cache/levels.cpp", "<kiln/secret.hpp>"));
  EXPECT_TRUE(objection("attic/levels.cpp", "<kiln/cache.hpp>"));
}

TEST(Arrows, OneThatPointsBackIsNamedWithItsFileAndItsInclude) {
  const auto why = objection("base/file.cpp", "\"store/prune.hpp\"");
  ASSERT_TRUE(why);
  EXPECT_EQ(*why, "base/file.cpp includes \"store/prune.hpp\": base must not include store");
}

TEST(Arrows, EveryForbiddenPairIsObjectedTo) {
  EXPECT_TRUE(objection("base/log.cpp", "\"key/identity.hpp\""));
  EXPECT_TRUE(objection("key/request.cpp", "\"store/directory.hpp\""));
  EXPECT_TRUE(objection("store/disk_store.cpp", "\"backend/opengl/device.hpp\""));
  EXPECT_TRUE(objection("backend/opengl/device.cpp", "\"store/disk_store.hpp\""));
  EXPECT_TRUE(objection("memory/resident.cpp", "\"store/disk_store.hpp\""));
  EXPECT_TRUE(objection("store/prune.cpp", "\"memory/resident.hpp\""));
  EXPECT_TRUE(objection("backend/open_device.cpp", "\"cache/levels.hpp\""));
  EXPECT_TRUE(objection("memory/program_table.cpp", "<kiln/cache.hpp>"));
  EXPECT_TRUE(objection("store/disk_store.cpp", "<kiln/opengl.hpp>"));
  EXPECT_TRUE(objection("base/log.cpp", "<kiln/request.hpp>"));
  EXPECT_TRUE(objection("cache/levels.cpp", "\"kernels/tune/choice.hpp\""));
  EXPECT_TRUE(objection("exec/executor.cpp", "<kiln/kernels/tensor.hpp>"));
  EXPECT_TRUE(objection("cache/levels.cpp", "<kiln/kernels/tuner.hpp>"));
  EXPECT_TRUE(objection("backend/open_device.cpp", "<kiln/executor.hpp>"));
  EXPECT_TRUE(objection("store/disk_store.cpp", "<kiln/program.hpp>"));
}

TEST(Arrows, AnIncludeWithoutAFolderIsObjectedTo) {
  EXPECT_TRUE(objection("store/prune.cpp", "\"directory.hpp\""));
  EXPECT_TRUE(objection("store/prune.cpp", "\"../cache/levels.hpp\""));
  EXPECT_TRUE(objection("utils/string.cpp", "\"base/file.hpp\""));
}

TEST(Arrows, OnesThatPointToTheLeftAreFine) {
  EXPECT_FALSE(objection("cache/levels.hpp", "\"store/disk_store.hpp\""));
  EXPECT_FALSE(objection("cache/levels.hpp", "\"cache/flights.hpp\""));
  EXPECT_FALSE(objection("backend/opengl/compiler.cpp", "\"key/source_scanner.hpp\""));
  EXPECT_FALSE(objection("store/entry_file.cpp", "<zstd.h>"));
  EXPECT_FALSE(objection("base/file.cpp", "<kiln/result.hpp>"));
}

TEST(Arrows, IncludesAreFoundHoweverTheyAreWritten) {
  std::istringstream text(
      "#include \"a/b.hpp\"\n  #  include <c>\n// #include \"no\"\nint include;\n#include MACRO\n");
  EXPECT_EQ(includes_of(text), (std::vector<std::string>{"\"a/b.hpp\"", "<c>"}));
}

}  // namespace
}  // namespace kiln
