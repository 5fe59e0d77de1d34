#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "backend/cuda/image.hpp"
#include "backend/cuda/rtc.hpp"
#include "backend/offline.hpp"
#include "backend/symbols.hpp"
#include "contract/contract.hpp"
#include "fakes/files.hpp"

// Random changes of single bytes in headers and sources: what the cache returns is what a compiler without a cache
// makes.
namespace kiln::contract {
namespace {

namespace fs = std::filesystem;

/// `KILN_MUTATIONS`, or the given number.
int mutations(int otherwise) {
  const char* wanted = std::getenv("KILN_MUTATIONS");
  return wanted != nullptr ? std::atoi(wanted) : otherwise;
}

/// A source that adds V0 to the numbers of its buffer, and a tree of headers in two folders that compute V0.
class Tree {
 public:
  Tree(fs::path root, Language language, unsigned seed) : root_(std::move(root)), random_(seed) {
    fs::create_directories(root_ / "first/deep/deeper");
    fs::create_directories(root_ / "second/deep/deeper");
    for (std::size_t i = 0; i < files_in_tree; ++i) {
      static constexpr const char* folders[] = {"first", "first/deep", "first/deep/deeper", "second",
                                                "second/deep"};
      names_.push_back(fmt::format("{}/h{}.h", folders[random_() % 5], i));
    }
    language_ = language;
    const bool glsl = is_glsl();
    for (std::size_t i = 0; i < files_in_tree; ++i) fakes::write_file(root_ / names_[i], header(i));
    fs::create_symlink(root_ / names_[1], root_ / "second/link.h");
    std::string source = glsl ? "#version 450\n" : "";
    source += fmt::format("#include <{}>\n#include <link.h>\n", below_folder(names_[0]));
    // A computed name, which GLSL does not have.
    if (!glsl) source += fmt::format("#define LAST <{}>\n#include LAST\n", below_folder(names_.back()));
    if (!glsl) source += "#if __has_include(<added.h>)\n#define ADDED 1000\n#else\n#define ADDED 0\n#endif\n";
    if (glsl)
      source +=
          "#define ADDED 0\nlayout(local_size_x = 64) in;\nlayout(std430, binding = 0) buffer Data { int data[]; "
          "};\n"
          "void main() { data[gl_GlobalInvocationID.x] += V0 + ADDED; }\n";
    else if (language == Language::opencl)
      source += "__kernel void add(__global int* data) { data[get_global_id(0)] += V0 + ADDED; }\n";
    else
      source += "extern \"C\" __global__ void add(int* data) { data[threadIdx.x] += V0 + ADDED; }\n";
    // After the last use, so that no compiler replaces parts of names by it.
    if (!glsl) source += "#define deep elsewhere\n#define h 1\n";
    fakes::write_file(root_ / "source", source);
    names_.emplace_back("source");
  }

  Request request() const {
    return Request({.name = "add",
                    .source = fakes::read_file(root_ / "source"),
                    .language = language_,
                    .include_folders = {root_ / "first", root_ / "second"}});
  }
  std::vector<fs::path> folders() const { return {root_ / "first", root_ / "second"}; }
  std::string source() const { return fakes::read_file(root_ / "source"); }

  /// Changes a byte of a file, undoes a change, or adds or removes a file that hides another. Says what it did.
  /// After a change that does not compile, it mostly undoes changes, so that most programs do.
  std::string mutate(bool compiles) {
    const auto choice = random_() % 10;
    if ((choice < 2 || (!compiles && choice < 9)) && !undone_.empty()) {
      const auto [name, text] = undone_.back();
      undone_.pop_back();
      fakes::write_file(root_ / name, text);
      return "undid the change of " + name;
    }
    if (choice == 3) {
      const fs::path added = root_ / "first/added.h";
      if (fs::remove(added)) return "removed added.h";
      fakes::write_file(added, "");
      return "added added.h";
    }
    if (choice == 4) {
      const std::string name = below_folder(names_[random_() % files_in_tree]);
      const fs::path hidden = root_ / "second" / name;
      const fs::path hiding = root_ / "first" / name;
      if (fs::exists(hidden) && !fs::exists(hiding)) {
        std::string text = fakes::read_file(hidden);
        if (const std::size_t at = text.find(" ("); at != std::string::npos) text.insert(at + 2, "5 + ");
        fakes::write_file(hiding, text);
        return "hid " + name;
      }
      if (fs::exists(hidden) && fs::remove(hiding)) return "showed " + name;
    }
    const std::string& name = names_[random_() % names_.size()];
    std::string text = fakes::read_file(root_ / name);
    if (text.empty()) return "nothing";
    undone_.emplace_back(name, text);
    std::size_t at = random_() % text.size();
    const auto is_digit = [&] { return text[at] >= '0' && text[at] <= '9'; };
    // Half of the changes are of digits in a value, which mostly compile.
    const std::size_t value = std::min(text.find(" ("), text.size() - 1);
    for (int tries = 0; choice % 2 == 0 && !is_digit() && tries < 1000; ++tries)
      at = value + random_() % (text.size() - value);
    const bool digit = is_digit();
    text[at] = digit ? static_cast<char>('0' + random_() % 10) : static_cast<char>(' ' + random_() % 95);
    fakes::write_file(root_ / name, text);
    return fmt::format("changed byte {} of {}", at, name);
  }

 private:
  static constexpr std::size_t files_in_tree = 24;

  bool is_glsl() const { return language_ == Language::glsl || language_ == Language::vulkan_glsl; }
  /// The path of a file below "first" or "second".
  static std::string below_folder(const std::string& name) { return name.substr(name.find('/') + 1); }

  /// V(i) is a constant and the values of files further down.
  std::string header(std::size_t i) {
    std::string text = fmt::format("// The {}th header has a comment that may change.\n", i);
    const auto guard = random_() % 3;
    if (guard == 1) text += "#pragma once\n";
    if (guard == 2) text += fmt::format("#ifndef GUARD_{0}\n#define GUARD_{0}\n", i);
    std::string sum = fmt::format("{}", random_() % 1000);
    for (std::size_t child = 2 * i + 1; child <= 2 * i + 3 && child < files_in_tree; ++child) {
      const fs::path here = fs::path(names_[i]).parent_path();
      const auto way = random_() % (is_glsl() ? 2 : 3);
      if (way == 2)
        text += fmt::format(
            "#define STRING(x) #x\n#define TEXT(x) STRING(x)\n#ifdef NEVER_{0}\n#define h{0} another\n#endif\n"
            "#include TEXT({1})\n",
            child, below_folder(names_[child]));
      else if (way == 0)
        text += fmt::format("#include \"{}\"\n", fs::path(names_[child]).lexically_relative(here).string());
      else
        text += fmt::format("  #  include <{}> /* why */\n", below_folder(names_[child]));
      sum += fmt::format(" + V{}", child);
    }
    text += fmt::format("#define V{} ({})\n", i, sum);
    if (guard == 2) text += "#endif\n";
    return text;
  }

  fs::path root_;
  std::mt19937 random_;
  Language language_ = Language::glsl;
  std::vector<std::string> names_;
  std::vector<std::pair<std::string, std::string>> undone_;
};

class Mutations : public Contract {};

TEST_P(Mutations, OfHeadersAndSourcesNeverGiveAStaleProgram) {
  const int count = mutations(200);
  Tree tree(folder_.path() / "tree", device_->info().language, 1);
  /// The number that the program adds; "error" if it does not compile.
  const auto outcome = [&](Module& module) {
    const auto buffer = upload(*device_, std::vector<std::int32_t>(64, 0)).value();
    device_->launch(module, {.group_size = {64, 1, 1}, .arguments = {buffer.get()}}).value();
    return std::to_string(download<std::int32_t>(*device_, *buffer).value()[63]);
  };
  std::map<std::string, int> outcomes;
  std::string history;
  bool compiles = true;
  for (int i = 0; i < count; ++i) {
    // Each cache finds on disk what earlier ones compiled.
    Cache cache(device_, options());
    history = tree.mutate(compiles);
    const Request request = tree.request();
    const auto cached = cache.get(request);
    const auto fresh = request.error() ? Result<Compiled>(*request.error()) : device_->compile(tree.request());
    ASSERT_EQ(cached.ok(), fresh.ok()) << i << ": " << history;
    const std::string expected = fresh ? outcome(*fresh->module) : "error";
    ASSERT_EQ(cached ? outcome(cached->module()) : "error", expected) << i << ": " << history;
    ++outcomes[expected];
    compiles = fresh.ok();
  }
  RecordProperty("outcomes", static_cast<int>(outcomes.size()));
  EXPECT_GE(outcomes.size(), count >= 200 ? 10U : 1U) << "the changes must matter";
}

INSTANTIATE_TEST_SUITE_P(Apis, Mutations, every_api(), name_of);

/// The image that NVRTC makes of a source by itself; empty if it does not compile.
std::vector<std::byte> bare_nvrtc(const std::string& source, const std::vector<fs::path>& folders) {
  const auto library = base::DynamicLibrary::open_for_good("libnvrtc.so.13");
  cuda::RtcFunctions call;
  backend::SymbolLookup lookup(*library);
  call.fill(cuda::SymbolSet::cuda, lookup);
  cuda::RtcFunctions::Program program = nullptr;
  call.create(&program, source.c_str(), "/nowhere/add", 0, nullptr, nullptr);
  std::vector<std::string> options = {"--gpu-architecture=sm_90", "--no-cache"};
  for (const auto& folder : folders) options.push_back("-I" + folder.string());
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  std::vector<std::byte> image;
  if (call.compile(program, static_cast<int>(words.size()), words.data()) == 0) {
    std::size_t size = 0;
    call.code_size(program, &size);
    image.resize(size);
    call.code(program, reinterpret_cast<char*>(image.data()));
  }
  call.destroy(&program);
  return image;
}

TEST(NvrtcMutations, GiveTheBytesThatNvrtcGivesByItself) {
  if (!base::DynamicLibrary::open_for_good("libnvrtc.so.13")) GTEST_SKIP() << "there is no NVRTC 13";
  const fakes::TemporaryFolder folder;
  Tree tree(folder.path() / "tree", Language::cuda, 2);
  const auto offline = backend::open_offline("sm_90").value();
  std::map<std::vector<std::byte>, int> outcomes;
  bool compiles = true;
  for (int i = 0; i < mutations(200); ++i) {
    Cache cache(offline, {.directory = folder.path() / "cache"});
    const std::string history = tree.mutate(compiles);
    const auto cached = cache.get(tree.request());
    const auto expected = bare_nvrtc(tree.source(), tree.folders());
    ASSERT_EQ(cached.ok(), !expected.empty()) << i << ": " << history << (cached ? "" : cached.error().describe());
    if (cached) {
      const auto parts =
          cuda::parts_of(cached->as<backend::OfflineModule>().binary, cuda::ImageKind::cubin).value();
      ASSERT_TRUE(std::ranges::equal(parts.image, expected)) << i << ": " << history;
    }
    ++outcomes[expected];
    compiles = !expected.empty();
  }
  EXPECT_GE(outcomes.size(), 10U);
}

}  // namespace
}  // namespace kiln::contract
