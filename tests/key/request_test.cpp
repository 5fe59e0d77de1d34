#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <kiln/request.hpp>
#include <nlohmann/json.hpp>

#include "base/sha256.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

using Fields = Request::Fields;

struct Change {
  const char* what;
  std::function<void(Fields&)> make;
};

/// A request that has something in every field.
Fields fields() {
  return {.name = "conv2d",
          .source = "#version 430\n#include \"tile.h\"\nvoid main() {}\n",
          .entries = {"main"},
          .options = {"-O2", "-fast"},
          .defines = {{"TILE", "16"}, {"WIDTH", "3"}},
          .headers = {{"tile.h", "const int tile = TILE;\n"}}};
}

Request changed(const Change& change) {
  Fields changed = fields();
  change.make(changed);
  return Request(std::move(changed));
}

TEST(RequestKey, ChangesWithEverythingThatCanChangeTheProgram) {
  const std::vector<Change> changes = {
      {"nothing", [](Fields&) {}},
      {"another name", [](Fields& f) { f.name = "conv2e"; }},
      {"a name in capitals", [](Fields& f) { f.name = "Conv2d"; }},
      {"no name", [](Fields& f) { f.name = ""; }},
      {"a name and a NUL", [](Fields& f) { f.name += '\0'; }},
      {"another letter in the source", [](Fields& f) { f.source.replace(f.source.find("430"), 3, "440"); }},
      {"a space more in the source", [](Fields& f) { f.source += ' '; }},
      {"another entry", [](Fields& f) { f.entries = {"main2"}; }},
      {"another first option", [](Fields& f) { f.options[0] = "-O3"; }},
      {"another second option", [](Fields& f) { f.options[1] = "-slow"; }},
      {"an option more", [](Fields& f) { f.options.emplace_back("-g"); }},
      {"an empty option more", [](Fields& f) { f.options.emplace_back(); }},
      {"an option less", [](Fields& f) { f.options.pop_back(); }},
      {"no options", [](Fields& f) { f.options.clear(); }},
      {"options the other way round",
       [](Fields& f) {
         f.options = {"-fast", "-O2"};
       }},
      {"an option twice",
       [](Fields& f) {
         f.options = {"-O2", "-fast", "-fast"};
       }},
      {"options run together", [](Fields& f) { f.options = {"-O2-fast"}; }},
      {"options cut elsewhere",
       [](Fields& f) {
         f.options = {"-O2-", "fast"};
       }},
      {"options ab and c",
       [](Fields& f) {
         f.options = {"ab", "c"};
       }},
      {"options a and bc",
       [](Fields& f) {
         f.options = {"a", "bc"};
       }},
      {"another define's name",
       [](Fields& f) {
         f.defines = {{"TILF", "16"}, {"WIDTH", "3"}};
       }},
      {"another define's value", [](Fields& f) { f.defines["TILE"] = "8"; }},
      {"an empty value", [](Fields& f) { f.defines["TILE"] = ""; }},
      {"a define more", [](Fields& f) { f.defines["DEPTH"] = ""; }},
      {"a define less", [](Fields& f) { f.defines.erase("WIDTH"); }},
      {"values exchanged",
       [](Fields& f) {
         f.defines = {{"TILE", "3"}, {"WIDTH", "16"}};
       }},
      {"a value that moved into the name",
       [](Fields& f) {
         f.defines = {{"TILE1", "6"}, {"WIDTH", "3"}};
       }},
      {"an option that became a define", [](Fields& f) { f.options = {"-O2"}, f.defines["fast"] = ""; }},
      {"another header", [](Fields& f) { f.headers["tile.h"] = "const int tile = 2 * TILE;\n"; }},
      {"an empty header", [](Fields& f) { f.headers["tile.h"] = ""; }},
      {"the header's text written out",
       [](Fields& f) { f.source = "#version 430\nconst int tile = TILE;\nvoid main() {}\n"; }},
      {"the file included by another name",
       [](Fields& f) {
         f.source.replace(f.source.find("tile.h"), 6, "tiles.h");
         f.headers = {{"tiles.h", "int other;\n"}};
       }},
  };
  std::map<Digest, const char*> seen;
  for (const Change& change : changes) {
    const Request request = changed(change);
    EXPECT_FALSE(request.error()) << change.what << ": " << request.error()->message();
    const auto [other, is_new] = seen.emplace(request.key().digest, change.what);
    EXPECT_TRUE(is_new) << "the same key with " << change.what << " as with " << other->second;
  }
}

TEST(RequestKey, StaysWithWhatDoesNotMatter) {
  const std::vector<Change> changes = {
      {"all made again", [](Fields&) {}},
      {"defines inserted in another order",
       [](Fields& f) {
         f.defines.clear();
         f.defines["WIDTH"] = "3";
         f.defines["TILE"] = "16";
       }},
      {"a header nobody includes", [](Fields& f) { f.headers["unused.h"] = "int unused;\n"; }},
      {"headers before and behind it", [](Fields& f) { f.headers["a.h"] = f.headers["z.h"] = "int unused;\n"; }},
      {"a folder nobody looks into", [](Fields& f) { f.include_folders = {"/nowhere"}; }},
      {"the header under another name for the same text",
       [](Fields& f) {
         f.source.replace(f.source.find("tile.h"), 6, "brick.h");
         f.headers = {{"brick.h", "const int tile = TILE;\n"}};
       }},
  };
  const Digest digest = Request(fields()).key().digest;
  for (const Change& change : changes) EXPECT_EQ(changed(change).key().digest, digest) << change.what;
}

TEST(RequestKey, IsAlwaysTheSame) {
  // Another digest here makes every stored program of every user a stranger: only with a new key version.
  EXPECT_EQ(Request(fields()).key().digest.hex(),
            "9466575070d2da100f2dbebc0534dfe6306530645818963efc4901f20e97ad79");
}

TEST(RequestKey, ChangesWithTheIdTheTypeAndTheValueOfAConstant) {
  using Constants = std::map<std::uint32_t, Constant>;
  const std::vector<Constants> all = {{},
                                      {{0, true}},
                                      {{0, 1}},
                                      {{0, 1U}},
                                      {{0, 1.0F}},
                                      {{0, 1.0}},
                                      {{1, 1U}},
                                      {{0, 2U}},
                                      {{0, 1U}, {1, 1U}},
                                      {{0, std::int64_t{1}}},
                                      {{0, false}},
                                      {{0, -1.0F}},
                                      {{1, 0U}, {2, 0U}},
                                      {{0, std::uint64_t{1}}}};
  std::map<Digest, std::size_t> seen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Request request({.source = "#version 450\n", .language = Language::vulkan_glsl, .constants = all[i]});
    EXPECT_FALSE(request.error());
    EXPECT_EQ(request.constants(), all[i]);
    const auto [other, is_new] = seen.emplace(request.key().digest, i);
    EXPECT_TRUE(is_new) << i << " has the key of " << other->second;
  }
}

TEST(RequestKey, ChangesWithAnEditedFileInAnIncludeFolder) {
  const fakes::TemporaryFolder folder;
  const auto make = [&folder] {
    return Request({.source = "#include \"outer.h\"\nvoid main() {}\n", .include_folders = {folder.path()}});
  };
  fakes::write_file(folder.path() / "outer.h", "#include \"inner.h\"\n");
  fakes::write_file(folder.path() / "inner.h", "int a;\n");
  const Request before = make();
  EXPECT_EQ(make().key().digest, before.key().digest);
  fakes::write_file(folder.path() / "inner.h", "int b;\n");
  EXPECT_NE(make().key().digest, before.key().digest);
  fakes::write_file(folder.path() / "inner.h", "int a;\n");
  EXPECT_EQ(make().key().digest, before.key().digest);
  fakes::write_file(folder.path() / "unrelated.h", "int c;\n");
  EXPECT_EQ(make().key().digest, before.key().digest);
}

TEST(RequestKey, DoesNotDependOnWhereTheFilesAre) {
  const fakes::TemporaryFolder one;
  const fakes::TemporaryFolder two;
  const auto make = [](std::vector<std::filesystem::path> folders,
                       std::map<std::string, std::string> headers = {}) {
    return Request({.source = "#include \"lib/a.h\"\nvoid main() {}\n",
                    .headers = std::move(headers),
                    .include_folders = std::move(folders)})
        .key()
        .digest;
  };
  for (const auto& folder : {one.path() / "x", two.path() / "longer" / "way"}) {
    fakes::write_file(folder / "lib" / "a.h", "#pragma once\n#include \"b.h\"\n#include <lib/c.h>\n");
    fakes::write_file(folder / "lib" / "b.h", "int b;\n");
    fakes::write_file(folder / "lib" / "c.h", "int c;\n");
  }
  const Digest digest = make({one.path() / "x"});
  EXPECT_EQ(make({two.path() / "longer" / "way"}), digest);
  EXPECT_EQ(make({two.path() / "missing", one.path() / "x", two.path() / "longer" / "way"}), digest);
  EXPECT_EQ(make({}, {{"lib/a.h", "#pragma once\n#include \"b.h\"\n#include <lib/c.h>\n"},
                      {"lib/b.h", "int b;\n"},
                      {"lib/c.h", "int c;\n"}}),
            digest);
}

TEST(RequestKey, HasTheNameInFull) {
  const std::string name("a/b\0c", 5);
  EXPECT_EQ(Request({.name = name, .source = "x"}).key().name, name);
}

TEST(RequestKey, OfARequestInErrorIsNoOneElses) {
  const Request bad({.name = "a", .source = "#include \"missing.h\"\n"});
  const Request good({.name = "a", .source = "#include \"missing.h\"\n", .headers = {{"missing.h", ""}}});
  ASSERT_TRUE(bad.error());
  EXPECT_NE(bad.key().digest, good.key().digest);
}

TEST(Request, GivesItsFieldsBack) {
  const Request request(fields());
  EXPECT_EQ(request.name(), "conv2d");
  EXPECT_EQ(request.entries(), std::vector<std::string>{"main"});
  EXPECT_EQ(request.language(), Language::glsl);
  EXPECT_EQ(request.options(), fields().options);
  EXPECT_EQ(request.defines(), fields().defines);
  EXPECT_EQ(request.files(), (std::vector<std::string>{"conv2d", "tile.h"}));
  EXPECT_EQ(request.source(), "#version 430\n\n#line 1 1\nconst int tile = TILE;\n\n#line 2 0\n\nvoid main() {}\n");
  EXPECT_FALSE(request.error());
}

TEST(Request, WithoutIncludesHasItsSourceUnchanged) {
  const std::string source = "#version 430\r\nvoid main() {}\n\t// the end, without a line's end";
  EXPECT_EQ(Request({.source = source}).source(), source);
}

TEST(Request, SharesItsStateWithItsCopies) {
  const Request request(fields());
  const Request copy = request;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(&copy.source(), &request.source());
}

TEST(Request, DescribesItselfInJson) {
  const auto facts = nlohmann::json::parse(Request(fields()).describe());
  EXPECT_EQ(facts.at("name"), "conv2d");
  EXPECT_EQ(facts.at("language"), "glsl");
  EXPECT_EQ(facts.at("entry"), "main");
  EXPECT_EQ(facts.at("options"), (std::vector<std::string>{"-O2", "-fast"}));
  EXPECT_EQ(facts.at("defines").at("WIDTH"), "3");
  EXPECT_EQ(facts.at("source").at("sha256"), base::sha256(Request(fields()).source()).hex());
  const auto files = nlohmann::json::parse(Request(fields()).describe_files());
  EXPECT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0].at("name"), "conv2d");
  EXPECT_EQ(files[1].at("name"), "tile.h");
  EXPECT_EQ(files[1].at("sha256"), base::sha256("const int tile = TILE;\n").hex(16));
}

TEST(Request, DescribesItsConstantsByIdWithTheirTypes) {
  const auto facts = nlohmann::json::parse(
      Request({.source = "#version 450\n", .language = Language::vulkan_glsl, .constants = {{0, 64U}, {7, 0.5F}}})
          .describe());
  EXPECT_EQ(facts.at("constants").at("0"), "uint 64");
  EXPECT_EQ(facts.at("constants").at("7"), "float 0.5");
  EXPECT_FALSE(nlohmann::json::parse(Request(fields()).describe()).contains("constants"));
}

TEST(Request, DescribesItselfInJsonWhateverBytesItHolds) {
  Fields strange = fields();
  strange.name = std::string("\xff\xfe\0\"\\\n", 6);
  strange.options = {std::string("\x80\0", 2)};
  strange.defines["A"] = "\xc3";
  EXPECT_TRUE(nlohmann::json::accept(Request(strange).describe()));
}

TEST(RequestOptions, ThatNameFoldersAndDefinesAreFoldersAndDefines) {
  const fakes::TemporaryFolder folder;
  fakes::write_file(folder.path() / "tile.h", "int tile;\n");
  const std::string path = folder.path();
  const Fields plain{.name = "conv",
                     .source = "#include \"tile.h\"\n",
                     .entries = {"conv"},
                     .language = Language::cuda,
                     .options = {"-g"},
                     .defines = {{"A", "1"}, {"B", "x=y"}},
                     .include_folders = {path}};
  const Key key = Request(plain).key();
  using Options = std::vector<std::string>;
  for (const Options& options :
       {Options{"-I" + path, "-DA", "-DB=x=y"}, Options{"-I", path, "-D", "A", "-D", "B=x=y"},
        Options{"--include-path=" + path, "--define-macro=A", "--define-macro=B=x=y"},
        Options{"--include-path", path, "--define-macro", "A", "--define-macro", "B=x=y"},
        Options{"--include-directory=" + path, "-DA=1", "-DB=x=y"}, Options{"-isystem", path, "-DA", "-DB=x=y"},
        Options{"-iquote" + path, "-DA", "-DB=x=y"}, Options{"-idirafter", path, "-DA", "-DB=x=y"},
        Options{"--include-directory-after=" + path, "-DA", "-DB=x=y"},
        Options{"--include-directory-after", path, "-DA", "-DB=x=y"}}) {
    Fields written = plain;
    written.defines.clear();
    written.include_folders.clear();
    written.options.insert(written.options.end(), options.begin(), options.end());
    const Request request(written);
    EXPECT_FALSE(request.error()) << request.error()->message();
    EXPECT_EQ(request.key().digest, key.digest) << options[0];
    EXPECT_EQ(request.options(), Options{"-g"});
  }
}

TEST(Request, AnOptionStringOfOpenClHidesNothingFromTheKey) {
  const fakes::TemporaryFolder folder;
  const std::string path = folder.path().string();
  const auto made = [&](std::vector<std::string> options) {
    return Request({.name = "k",
                    .source = "#include \"h.h\"\n__kernel void k() {}\n",
                    .entries = {"k"},
                    .language = Language::opencl,
                    .options = std::move(options)});
  };
  fakes::write_file(folder.path() / "h.h", "int one;");
  const Request words = made({"-DX=16", "-I" + path, "-cl-mad-enable"});
  ASSERT_FALSE(words.error()) << words.error()->message();
  for (const std::string& text :
       {" -DX=16 -I " + path + " -cl-mad-enable", "-D X=16\t-I\"" + path + "\" -cl-mad-enable ",
        "-cl-mad-enable -I '" + path + "' '-DX=16'"}) {
    const Request string = made({text});
    ASSERT_FALSE(string.error()) << text << ": " << string.error()->message();
    EXPECT_EQ(string.key().digest, words.key().digest) << text;
    EXPECT_EQ(string.options(), std::vector<std::string>{"-cl-mad-enable"}) << text;
  }
  fakes::write_file(folder.path() / "h.h", "int two;");
  EXPECT_NE(made({" -DX=16 -I " + path + " -cl-mad-enable"}).key().digest, words.key().digest);
  EXPECT_EQ(made({"-DTEXT=\"a b\" -w"}).defines().at("TEXT"), "a b");
  for (const char* text : {"-DFILE=\\\"h.h\\\" -w", "-w -D FILE=\\\"h.h\\\"", "-w '-DFILE=\"h.h\"'"})
    EXPECT_EQ(made({text}).defines().at("FILE"), "\"h.h\"") << text;
  EXPECT_TRUE(made({"-w -include other.h"}).error()) << "an option that reads a file, in a string";
  EXPECT_TRUE(made({"-w \"-include\" other.h"}).error()) << "an option in quotes";
}

}  // namespace
}  // namespace kiln
