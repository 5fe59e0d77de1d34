#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <kiln/identity.hpp>

#include "key/identity.hpp"

namespace kiln {
namespace {

Identity mesa() {
  return {.api = "opengl",
          .vendor = "Mesa",
          .device = "llvmpipe (LLVM 15.0.6, 256 bits)",
          .driver = "4.5 (Core Profile) Mesa 22.3.6",
          .compiler = "GLSL 4.50",
          .formats = {0x875f}};
}

/// Texts that do harm where they become file names unchecked.
std::vector<std::string> hostile_texts() {
  return {"",
          ".",
          "..",
          "/",
          "../../x",
          "a/b",
          "/etc/x",
          "a\\b",
          "-rf",
          ".hidden",
          "a\nb",
          std::string("a\0b", 3),
          "CON",
          "*?<>|:\"",
          "~",
          "\xF0\x9F\x94\xA5",
          "\xff\xfe",
          std::string(300, 'x'),
          std::string(300, '/'),
          "___",
          "   ",
          "a.",
          std::string(5000, '.')};
}

bool is_safe(const std::string& name) {
  const std::string allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name[0] != '.' && name.find_first_not_of(allowed) == std::string::npos;
}

TEST(Identity, EveryFieldChangesTheDigestAndTheFolder) {
  const std::vector<std::function<void(Identity&)>> changes = {
      [](Identity&) {},
      [](Identity& i) { i.api = "vulkan"; },
      [](Identity& i) { i.vendor = "Mesb"; },
      [](Identity& i) { i.device += " "; },
      [](Identity& i) { i.driver = "4.5 (Core Profile) Mesa 22.3.7"; },
      [](Identity& i) { i.compiler = "GLSL 4.60"; },
      [](Identity& i) { i.formats = {0x8760}; },
      [](Identity& i) {
        i.formats = {0x875f, 0x8760};
      },
      [](Identity& i) {
        i.formats = {0x8760, 0x875f};
      },
      [](Identity& i) {
        i.formats = {0x875f, 0x875f};
      },
      [](Identity& i) { i.formats.clear(); },
      [](Identity& i) { std::swap(i.api, i.vendor); },
      [](Identity& i) { std::swap(i.driver, i.compiler); },
      [](Identity& i) { i.api = "openglM", i.vendor = "esa"; },
      [](Identity& i) { i.vendor = "", i.device = "Mesa " + i.device; },
  };
  std::set<Digest> digests;
  std::set<std::string> folders;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Identity identity = mesa();
    changes[i](identity);
    EXPECT_EQ(identity == mesa(), i == 0) << i;
    EXPECT_TRUE(digests.insert(identity.digest()).second) << i;
    EXPECT_TRUE(folders.insert(identity.folder()).second) << i;
  }
}

TEST(Identity, IsAlwaysTheSame) {
  // Another digest here leaves every stored program behind in a folder that nobody opens again.
  EXPECT_EQ(mesa().digest().hex(), "fe01e7af5b17cc1a0a9e14ce0d700e4adbfd44b88d68e502fe98a2ed8c6b1121");
  EXPECT_EQ(mesa().folder(), "Mesa_llvmpipe_LLVM_15.0.6_256_bits-fe01e7af5b17cc1a");
}

TEST(Identity, FolderIsASafeNameWhateverTheDriverSays) {
  std::set<std::string> folders;
  for (const std::string& text : hostile_texts()) {
    for (const bool as_vendor : {true, false}) {
      Identity identity = mesa();
      (as_vendor ? identity.vendor : identity.device) = text;
      const std::string folder = identity.folder();
      EXPECT_TRUE(is_safe(folder)) << folder;
      EXPECT_LE(folder.size(), 100U);
      EXPECT_TRUE(folder.ends_with(identity.digest().hex(16))) << folder;
      EXPECT_TRUE(folders.insert(folder).second) << folder;
    }
  }
  EXPECT_TRUE(is_safe(Identity{}.folder()));
}

TEST(FileNamePart, IsSafeAndNeverLongerThanAsked) {
  for (const std::string& text : hostile_texts()) {
    for (const std::size_t max : {1U, 2U, 7U, 80U}) {
      const std::string part = key::file_name_part(text, max);
      EXPECT_TRUE(is_safe(part)) << text;
      EXPECT_LE(part.size(), part == "program" ? 7 : max) << text;
    }
  }
}

TEST(FileNamePart, StaysAsItIsOnceMade) {
  std::vector<std::string> texts = hostile_texts();
  for (const char* more :
       {"_", "__", "_a", "__a__", "a__b", "-_-", "a b  c", "_.", "a._", "._a", "-.", "program", "a-b_c.d"})
    texts.emplace_back(more);
  for (const std::string& text : texts) {
    for (const std::size_t max : {2U, 3U, 7U, 80U}) {
      const std::string once = key::file_name_part(text, max);
      if (once.size() <= max) {
        EXPECT_EQ(key::file_name_part(once, max), once) << text;
      }
    }
  }
}

TEST(FileNamePart, KeepsWhatPeopleCallAProgram) {
  EXPECT_EQ(key::file_name_part("conv2d_3x3-v1.2", 80), "conv2d_3x3-v1.2");
  EXPECT_EQ(key::file_name_part("conv 2d (3x3)", 80), "conv_2d_3x3");
  EXPECT_EQ(key::file_name_part("../../x", 80), "x");
  EXPECT_EQ(key::file_name_part("", 80), "program");
  EXPECT_EQ(key::file_name_part(std::string(300, 'x'), 80), std::string(80, 'x'));
}

}  // namespace
}  // namespace kiln
