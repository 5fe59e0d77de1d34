#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace kiln {
namespace {

/// How far to the right a room stands. A room may know itself and those further to the left; rooms that stand
/// level never know each other.
const std::map<std::string, int, std::less<>> rooms = {
    {"base", 0},  {"key", 1},    {"memory", 2}, {"store", 2}, {"backend", 2},
    {"cache", 3}, {"kernel", 4}, {"exec", 4},   {"tune", 5},  {"kernels", 6},
};

/// The rooms that public headers with an implementation behind them belong to; the others are values and
/// interfaces that every room from `key` on may use.
const std::map<std::string, std::string, std::less<>> public_rooms = {
    {"digest.hpp", "base"},    {"durability.hpp", "base"}, {"log.hpp", "base"},       {"result.hpp", "base"},
    {"device.hpp", "backend"}, {"opengl.hpp", "backend"},  {"opencl.hpp", "backend"}, {"vulkan.hpp", "backend"},
    {"cuda.hpp", "backend"},   {"hip.hpp", "backend"},     {"cache.hpp", "cache"},    {"kernel.hpp", "kernel"},
    {"slot.hpp", "backend"},   {"executor.hpp", "exec"},   {"tensor.hpp", "kernels"}, {"kernels.hpp", "kernels"},
};

std::string room_of(std::string_view path) { return std::string(path.substr(0, path.find('/'))); }

/// What is wrong with `file` (relative to src/) including `included`, which is written with its quotes or angle
/// brackets; nothing where all is well.
std::optional<std::string> objection(const std::string& file, const std::string& included) {
  const std::string name = included.substr(1, included.size() - 2);
  std::string target;
  if (included[0] == '"') {
    target = room_of(name);
  } else {
    if (!name.starts_with("kiln/")) return std::nullopt;
    const auto known = public_rooms.find(name.substr(5));
    target = known != public_rooms.end() ? known->second : "key";
  }
  const auto from = rooms.find(room_of(file));
  const auto to = rooms.find(target);
  if (from == rooms.end()) return file + " is in no room that this test knows";
  if (to == rooms.end()) return file + " includes " + included + ", which is in no room that this test knows";
  if (from->first == to->first || to->second < from->second) return std::nullopt;
  return file + " includes " + included + ": " + from->first + " must not know " + to->first;
}

/// What the lines of a file include, with the quotes or brackets around it.
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

TEST(Arrows, NoRoomIncludesToTheRight) {
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

TEST(Arrows, PublicHeadersIncludeOnlyPublicHeaders) {
  std::size_t seen = 0;
  for_each_include(std::filesystem::path(KILN_SOURCE_DIR) / "include", [&](const auto& file, const auto& included) {
    ++seen;
    EXPECT_EQ(included[0], '<') << file << " includes " << included;
  });
  EXPECT_GT(seen, 20U) << "the headers were not found";
}

TEST(Arrows, OneThatPointsBackIsNamedWithItsFileAndItsInclude) {
  const auto why = objection("base/file.cpp", "\"store/prune.hpp\"");
  ASSERT_TRUE(why);
  EXPECT_EQ(*why, "base/file.cpp includes \"store/prune.hpp\": base must not know store");
}

TEST(Arrows, EveryForbiddenPairIsObjectedTo) {
  EXPECT_TRUE(objection("base/log.cpp", "\"key/file_name.hpp\""));
  EXPECT_TRUE(objection("key/request.cpp", "\"store/directory.hpp\""));
  EXPECT_TRUE(objection("store/disk_store.cpp", "\"backend/opengl/device.hpp\""));
  EXPECT_TRUE(objection("backend/opengl/device.cpp", "\"store/disk_store.hpp\""));
  EXPECT_TRUE(objection("memory/resident.cpp", "\"store/disk_store.hpp\""));
  EXPECT_TRUE(objection("store/prune.cpp", "\"memory/resident.hpp\""));
  EXPECT_TRUE(objection("backend/open_device.cpp", "\"cache/path.hpp\""));
  EXPECT_TRUE(objection("memory/program_table.cpp", "<kiln/cache.hpp>"));
  EXPECT_TRUE(objection("store/disk_store.cpp", "<kiln/opengl.hpp>"));
  EXPECT_TRUE(objection("base/log.cpp", "<kiln/request.hpp>"));
  EXPECT_TRUE(objection("cache/get.cpp", "\"tune/choice.hpp\""));
  EXPECT_TRUE(objection("exec/executor.cpp", "<kiln/tensor.hpp>"));
}

TEST(Arrows, AnIncludeWithoutARoomIsObjectedTo) {
  EXPECT_TRUE(objection("store/prune.cpp", "\"directory.hpp\""));
  EXPECT_TRUE(objection("store/prune.cpp", "\"../cache/path.hpp\""));
  EXPECT_TRUE(objection("utils/string.cpp", "\"base/file.hpp\""));
}

TEST(Arrows, OnesThatPointToTheLeftAreFine) {
  EXPECT_FALSE(objection("cache/path.hpp", "\"store/disk_store.hpp\""));
  EXPECT_FALSE(objection("cache/path.hpp", "\"cache/flights.hpp\""));
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
