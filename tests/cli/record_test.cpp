#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include <sys/resource.h>

#include "cli_fixture.hpp"
#include "key/record_writer.hpp"

namespace kiln::cli {
namespace {

/// The command `record`, with a record of three requests.
class Records : public Cli {
 protected:
  Records() {
    write(folder_ / "lib/a.h", "#include \"b.h\"\n#if __has_include(\"c.h\")\n#endif\n");
    write(folder_ / "lib/b.h", "int b;\n");
    write(folder_ / "lib/c.h", "int c;\n");
    add(path_, plain(), std::chrono::milliseconds(1500));
    add(path_, with_files());
    add(path_, Request({.name = "shader", .source = "void main() {}\n"}));
  }

  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    cli::write(path, text);
  }
  static void add(const std::string& path, const Request& request, std::chrono::nanoseconds time = {}) {
    key::RecordWriter writer(path);
    ASSERT_TRUE(writer.add(request, "opencl", time).value());
  }
  static Request plain() {
    return Request({.name = "scale",
                    .source = "kernel void scale() {}\n",
                    .entries = {"scale"},
                    .language = Language::opencl,
                    .options = {"-cl-mad-enable"},
                    .defines = {{"N", "4"}}});
  }
  Request with_files() const {
    return Request({.name = "files",
                    .source = "#include <a.h>\n#include <given.h>\n",
                    .language = Language::opencl,
                    .headers = {{"given.h", "int given;\n"}},
                    .include_folders = {folder_ / "lib"}});
  }

  const fs::path folder_ = home_.path() / "sources";
  const std::string path_ = (home_.path() / "app.kilnreq").string();
};

TEST_F(Records, AreListed) {
  const auto listed = kiln({"record", "ls", path_});
  EXPECT_EQ(listed.status, 0) << listed.error;
  EXPECT_LE(widest(listed.out), 80U) << listed.out;
  const std::string line = line_with(listed.out, "scale");
  for (const std::string& text :
       {std::string("opencl"), std::string("1.5 s"), std::string("23 B"), plain().key().digest.hex(12)})
    EXPECT_TRUE(contains(line, text)) << line;
  const auto json = kiln({"record", "ls", path_, "--json"}).json();
  ASSERT_EQ(json.size(), 3U);
  EXPECT_EQ(json[0], (nlohmann::json{{"name", "scale"},
                                     {"key", plain().key().digest.hex()},
                                     {"language", "opencl"},
                                     {"api", "opencl"},
                                     {"compile_ms", 1500.0},
                                     {"source_bytes", 23},
                                     {"headers", 0}}));
  EXPECT_EQ(json[1]["headers"], 3);
  EXPECT_EQ(json[2]["language"], "glsl");
}

TEST_F(Records, ShowARequestByNameAndByKey) {
  const auto shown = kiln({"record", "show", path_, "scale"});
  EXPECT_EQ(shown.status, 0) << shown.error;
  for (const char* text : {"-cl-mad-enable", "N=4", "23 bytes", "1.5 s", "entry point"})
    EXPECT_TRUE(contains(shown.out, text)) << shown.out;
  EXPECT_EQ(kiln({"record", "show", path_, plain().key().digest.hex(6)}).out, shown.out);

  const auto json = kiln({"record", "show", path_, "files", "--json"}).json();
  ASSERT_EQ(json.size(), 1U);
  const auto& files = json[0]["files"];
  ASSERT_EQ(files.size(), 4U);
  EXPECT_EQ(files[0]["name"], "given.h");
  EXPECT_EQ(files[1]["name"], "a.h");
  EXPECT_EQ(files[1]["kind"], "stored");
  EXPECT_EQ(files[3]["name"], "c.h");
  EXPECT_TRUE(files[3]["sha256"].is_null());
  const auto text = kiln({"record", "show", path_, "files"});
  EXPECT_TRUE(contains(text.out, "only its existence")) << text.out;
}

TEST_F(Records, PrintTheSource) {
  EXPECT_EQ(kiln({"record", "show", path_, "scale", "--source"}).out, plain().source());
  EXPECT_EQ(kiln({"record", "show", path_, "scale", "--source", "--json"}).status, 2);
  add(path_, Request({.name = "shader", .source = "void main() { }\n"}));
  const auto several = kiln({"record", "show", path_, "shader", "--source"});
  EXPECT_EQ(several.status, 1);
  EXPECT_TRUE(contains(several.error, "give the key of one")) << several.error;
}

TEST_F(Records, AreMerged) {
  const std::string other = (home_.path() / "other.kilnreq").string();
  const std::string all = (home_.path() / "all.kilnreq").string();
  add(other, plain());
  add(other, Request({.name = "more", .source = "int more;\n", .language = Language::opencl}));
  const auto merged = kiln({"record", "merge", all, path_, other});
  EXPECT_EQ(merged.status, 0) << merged.error;
  EXPECT_EQ(merged.out, "added 4 of 5 requests to " + all + "\n");
  EXPECT_EQ(kiln({"record", "merge", all, other, "--json"}).json(),
            (nlohmann::json{{"file", all}, {"requests", 2}, {"added", 0}, {"failed", 0}}));
  EXPECT_EQ(kiln({"record", "ls", all, "--json"}).json().size(), 4U);
  EXPECT_EQ(kiln({"record", "show", all, "more", "--source"}).out, "int more;\n");
}

TEST_F(Records, ThatAreWrongAreNamed) {
  const std::string absent = (home_.path() / "absent").string();
  const std::string text = (home_.path() / "text").string();
  write(text, "some text of another program");
  for (const Words& words : {Words{"ls", absent}, Words{"show", absent, "x"}, Words{"merge", path_, absent}}) {
    Words all = {"record"};
    all.insert(all.end(), words.begin(), words.end());
    const auto outcome = kiln(all);
    EXPECT_EQ(outcome.status, 1) << words[0];
    EXPECT_TRUE(contains(outcome.error, absent + ": No such file")) << outcome.error;
  }
  const auto foreign = kiln({"record", "ls", text});
  EXPECT_EQ(foreign.status, 1);
  EXPECT_TRUE(contains(foreign.error, text + " cannot be used: it is not a record")) << foreign.error;
  const auto unwritable = kiln({"record", "merge", text, path_});
  EXPECT_EQ(unwritable.status, 1);
  EXPECT_EQ(contents(text), "some text of another program");
  const auto unknown = kiln({"record", "show", path_, "nobody"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_TRUE(contains(unknown.error, "no request")) << unknown.error;
  for (const Words& words : {Words{"record"}, Words{"record", "bake"}, Words{"record", "ls"},
                             Words{"record", "show", path_}, Words{"record", "merge", path_}})
    EXPECT_EQ(kiln(words).status, 2) << words.back();
}

TEST_F(Records, ThatAreDamagedAreReadAsFarAsPossible) {
  const std::string whole = contents(path_);
  const auto flip = [&](std::size_t place) {
    std::string bytes = whole;
    bytes[place] = static_cast<char>(bytes[place] ^ 1);
    write(path_, bytes);
  };
  // The first item is the source of "scale", the second one its request.
  const std::size_t source = key::record_begin_bytes;
  const std::size_t request = whole.find("KILNITEM", source + 1);
  for (const std::size_t place : {source + 40, request + 40, request + key::item_header_bytes + 8}) {
    flip(place);
    const auto listed = kiln({"record", "ls", path_, "--json"});
    EXPECT_EQ(listed.status, 1) << place;
    EXPECT_EQ(listed.json().size(), place < request ? 3U : 2U) << place;
    EXPECT_TRUE(contains(listed.error, "skipped 1 damaged item")) << listed.error;
    const auto shown = kiln({"record", "show", path_, "files"});
    EXPECT_EQ(shown.status, 1) << place;
    EXPECT_TRUE(contains(shown.out, "a.h")) << shown.out;
  }
  // Only the contents of a file.
  flip(source + key::item_header_bytes + 8);
  EXPECT_EQ(kiln({"record", "ls", path_}).status, 0);
  EXPECT_EQ(kiln({"record", "show", path_, "scale"}).status, 0);
  EXPECT_EQ(kiln({"record", "show", path_, "scale", "--source"}).status, 1);
  const auto merged = kiln({"record", "merge", (home_.path() / "all").string(), path_});
  EXPECT_EQ(merged.status, 1) << merged.out;
  EXPECT_TRUE(contains(merged.out, "added 2 of 3 ")) << merged.out;
  EXPECT_TRUE(contains(merged.error, "damaged")) << merged.error;
}

TEST_F(Records, AreMergedWithFewOpenFiles) {
  Words words = {"record", "merge", (home_.path() / "all.kilnreq").string()};
  for (int i = 0; i < 100; ++i) words.push_back(path_);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto merged = kiln(words);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(merged.status, 0) << merged.error;
  EXPECT_TRUE(contains(merged.out, "added 3 of 300 requests")) << merged.out;
}

TEST_F(Records, AreDocumentedAndCompleted) {
  for (const Words& words :
       {Words{"record"}, Words{"record", "ls"}, Words{"record", "show"}, Words{"record", "merge"}}) {
    Words asking = words;
    asking.push_back("--help");
    const auto help = command_.run(asking);
    EXPECT_EQ(help.status, 0) << words.back();
    EXPECT_LE(widest(help.out), 80U) << help.out;
  }
  for (const char* shell : {"bash", "zsh", "fish"})
    EXPECT_TRUE(contains(command_.run({"completions", shell}).out, "ls show merge")) << shell;
}

TEST_F(Records, AreShownByConfig) {
  const auto none = kiln({"config", "--json"}).json();
  EXPECT_TRUE(none["record"]["value"].is_null());
  const auto json = kiln({"config", "--json"}, {{"KILN_RECORD", path_}}).json();
  EXPECT_EQ(json["record"]["value"], path_);
  EXPECT_EQ(json["record"]["source"], "$KILN_RECORD");
}

}  // namespace
}  // namespace kiln::cli
