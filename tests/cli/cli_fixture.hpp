#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include <sys/stat.h>
#include <unistd.h>

#include <kiln/identity.hpp>
#include <kiln/log.hpp>
#include <kiln/request.hpp>

#include "command.hpp"
#include "fakes/child.hpp"
#include "store/directory.hpp"
#include "store/disk_store.hpp"
#include "terminal.hpp"

namespace kiln::cli {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Words = std::vector<std::string>;

inline const Identity fire_gpu{"opengl", "Smith", "Fire 9000", "driver 1.0", "compiler 7", {42}};
inline const Identity water_gpu{"opengl", "Jones", "Water 1", "driver 2.0", "compiler 3", {43}};
/// Devices with names and drivers as long as those of Mesa, PoCL and NVIDIA.
inline const Identity lavapipe{"vulkan",
                               "Mesa",
                               "llvmpipe (LLVM 15.0.6, 256 bits)",
                               "llvmpipe 0x1 Mesa 22.3.6 (LLVM 15.0.6), cache 76616c2d257300000000000000000000",
                               "shaderc 2023.2.1 spirv 1.6 rev 1",
                               {44}};
inline const Identity pocl{
    "opencl",
    "GenuineIntel",
    "cpu-sapphirerapids-Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz",
    "3.1+debian",
    "OpenCL 3.0 PoCL 3.1+debian Linux, None+Asserts, RELOC, SPIR, LLVM 15.0.6, SLEEF, DISTRO, "
    "POCL_DEBUG, OpenCL C 1.2 PoCL",
    {2}};
inline const Identity nvidia{"cuda",      "NVIDIA",        "NVIDIA RTX 6000 Ada Generation Laptop GPU sm_89",
                             "575.57.08", "NVRTC 12.9.86", {3}};
inline const Log quiet(LogLevel::off, {});
/// A program that compiles where TILE is defined.
inline const std::string doubling =
    "#version 430\n"
    "layout(local_size_x = TILE) in;\n"
    "layout(std430, binding = 0) buffer Data { float data[]; };\n"
    "void main() { data[gl_GlobalInvocationID.x] *= 2.0; }\n";

inline Request request(const std::string& name, const std::string& tile = "8") {
  return Request({.name = name, .source = doubling, .defines = {{"TILE", tile}}});
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The columns of the longest line of a text.
inline std::size_t widest(const std::string& text) {
  std::size_t width = 0;
  for (const auto& line : lines_of(text)) width = std::max(width, display_width(line));
  return width;
}

/// The first line with `part` in it; empty if there is none.
inline std::string line_with(const std::string& text, const std::string& part) {
  for (const auto& line : lines_of(text))
    if (contains(line, part)) return line;
  return "";
}

/// The words of a text with one space between them, as they were before the text was wrapped.
inline std::string unwrapped(const std::string& text) {
  std::istringstream in(text);
  std::string words;
  for (std::string word; in >> word;) words += (words.empty() ? "" : " ") + word;
  return words;
}

/// A cache directory that is gone with the test, and the real command to look after it.
class Cli : public testing::Test {
 protected:
  fs::path cache() const { return home_.path() / "cache"; }

  Outcome kiln(Words words, const Environment& environment = {}) const {
    return command_.run(with_directory(std::move(words)), environment);
  }
  int kiln_without_streams(Words words) const {
    return command_.run_without_streams(with_directory(std::move(words)));
  }
  Outcome kiln_on_terminal(Words words, const std::string& input = "", const Environment& environment = {},
                           unsigned columns = 200) const {
    return command_.run_on_terminal(with_directory(std::move(words)), input, environment, columns);
  }

  /// Stores a made-up binary, and returns its file.
  fs::path store(const Identity& identity, const Request& request, std::size_t bytes = 100) const {
    auto disk = store::DiskStore::open(cache(), identity, quiet).value();
    Binary binary{identity.formats.at(0), std::vector<std::byte>(bytes)};
    // Bytes that do not compress, so that a larger binary is a larger file.
    std::uint32_t state = 1;
    for (auto& byte : binary.bytes) byte = static_cast<std::byte>((state = state * 1664525U + 1013904223U) >> 24U);
    const store::Entry entry{.parts = {{std::string(store::binary_part), std::move(binary)}},
                             .compile_time = 50ms,
                             .created = std::chrono::system_clock::now(),
                             .facts = request.describe()};
    const store::EntryLabel label{request.key().digest, identity.digest(), identity.target_digest()};
    const auto sealed = store::seal_entry(label, entry);
    disk->put({label.identity, request.key()}, sealed, store::meta_of(label, entry, sealed.size())).value();
    disk->note_performance(label.key, {.gflops = 12.5});
    disk->save_notes().value();
    return disk->path() / store::entry_file_name(request.key());
  }

  static void damage(const fs::path& file) {
    std::string bytes = contents(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write(file, bytes);
  }

  /// Makes a folder one that Kiln cannot or will not read: root reads everything, but trusts no other user's
  /// folder.
  static void make_unreadable(const fs::path& folder) {
    const int done =
        fakes::is_root() ? chown(folder.c_str(), fakes::other_user, fakes::other_user) : chmod(folder.c_str(), 0);
    ASSERT_EQ(done, 0);
  }

  static void set_age(const fs::path& file, std::chrono::hours age) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - age);
  }

  /// Writes the source of request() to a file.
  std::string source_file(const std::string& name, const std::string& text = doubling) const {
    const auto path = home_.path() / name;
    write(path, text);
    return path.string();
  }

  const TemporaryFolder home_;
  const Command command_{home_.path()};

 private:
  Words with_directory(Words words) const {
    words.insert(words.begin() + 1, {"--dir", cache().string()});
    return words;
  }
};

}  // namespace kiln::cli
