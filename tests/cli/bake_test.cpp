#include <kiln/bake.hpp>

#include <csignal>

#include "backend/offline.hpp"
#include "cli_fixture.hpp"
#include "key/record_writer.hpp"
#include "key/request_record.hpp"

namespace kiln::cli {
namespace {

/// `kiln bake`, and the commands that make records without a device.
class CliBake : public Cli {
 protected:
  static bool has(std::string_view target) { return static_cast<bool>(backend::open_offline(target, quiet)); }
  std::string path(const std::string& name) const { return (home_.path() / name).string(); }
  void add_shader(const std::string& name, const std::string& factor = "2.0") const {
    const Request request({.name = name,
                           .source = "#version 450\n"
                                     "layout(local_size_x = 8) in;\n"
                                     "layout(std430, set = 0, binding = 0) buffer Data { float data[]; };\n"
                                     "void main() { data[gl_GlobalInvocationID.x] *= FACTOR; }\n",
                           .language = Language::vulkan_glsl,
                           .defines = {{"FACTOR", factor}}});
    ASSERT_TRUE(key::RecordWriter(record_).add(request, "vulkan", {}).value());
  }

  const std::string record_ = path("app.kilnreq");
  const std::string bundle_ = path("app.kiln");
};

TEST_F(CliBake, WritesABundleAndASummaryForEachTarget) {
  if (!has("vulkan")) GTEST_SKIP() << "shaderc is missing";
  add_shader("one");
  add_shader("two");
  const auto text = kiln({"bake", record_, "--target", "vulkan", "-o", bundle_});
  ASSERT_EQ(text.status, 0) << text.error;
  EXPECT_TRUE(contains(line_with(text.out, "vulkan"), "2")) << text.out;
  EXPECT_TRUE(contains(text.out, bundle_ + ": 2 programs for 1 target")) << text.out;
  EXPECT_LE(widest(text.out), 120U) << text.out;
  const auto json = kiln({"bake", record_, "--target", "vulkan", "-o", bundle_, "--json"}).json();
  EXPECT_EQ(json["programs"], 2);
  EXPECT_EQ(json["compiled"], 2);
  EXPECT_EQ(json["resumed"], 0);
  EXPECT_EQ(json["interrupted"], false);
  EXPECT_EQ(json["bytes"], fs::file_size(bundle_));
  EXPECT_EQ(json["targets"][0]["name"], "vulkan");
  EXPECT_EQ(json["failures"].size(), 0U);
}

TEST_F(CliBake, ListsWhatDoesNotCompileAndExitsWithOne) {
  if (!has("vulkan")) GTEST_SKIP() << "shaderc is missing";
  add_shader("good");
  add_shader("wrong", "nonsense");
  const auto text = kiln({"bake", record_, "--target", "vulkan", "-o", bundle_});
  EXPECT_EQ(text.status, 1);
  EXPECT_TRUE(contains(text.error, "wrong for vulkan: ")) << text.error;
  EXPECT_TRUE(contains(text.error, "nonsense")) << text.error;
  EXPECT_TRUE(contains(text.out, "1 failed")) << text.out;
  EXPECT_TRUE(fs::exists(bundle_));
  const auto json = kiln({"bake", record_, "--target", "vulkan", "-o", bundle_, "--json"}).json();
  EXPECT_EQ(json["failures"][0]["name"], "wrong");
  EXPECT_EQ(json["failures"][0]["target"], "vulkan");
  EXPECT_EQ(json["failures"][0]["error"]["code"], "compile_failed");
}

TEST_F(CliBake, TakesListsOfArchitecturesOfOneApi) {
  if (!has("sm_90")) GTEST_SKIP() << "NVRTC is missing";
  ASSERT_EQ(kiln({"record", "add", record_,
                  source_file("twice.cu", "__global__ void twice(float* x) { *x *= 2; }\n"), "--entry", "twice"})
                .status,
            0);
  const auto baked = kiln({"bake", record_, "--target", "cuda:sm_80,sm_90", "-o", bundle_, "--json"});
  ASSERT_EQ(baked.status, 0) << baked.error;
  const auto targets = baked.json()["targets"];
  ASSERT_EQ(targets.size(), 3U) << targets;
  EXPECT_EQ(targets[1]["name"], "cuda:sm_90");
  EXPECT_EQ(targets[2]["name"], "cuda:compute_90");
}

TEST_F(CliBake, ExplainsWhatIsWrongWithItsOptions) {
  add_shader("one");
  for (const Words& words :
       std::vector<Words>{{"bake", record_, "-o", bundle_},
                          {"bake", record_, "--target", "vulkan"},
                          {"bake", "--target", "vulkan", "-o", bundle_},
                          {"bake", record_, "--target", "cuda:sm_80,", "-o", bundle_},
                          {"bake", record_, "--target", "vulkan", "-o", bundle_, "--jobs", "0"},
                          {"bake", record_, "--refresh", "--target", "vulkan"}}) {
    const auto refused = kiln(words);
    EXPECT_EQ(refused.status, 2) << refused.error;
    EXPECT_TRUE(contains(refused.error, "kiln bake --help")) << refused.error;
  }
  const auto unknown = kiln({"bake", record_, "--target", "metal", "-o", bundle_});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_TRUE(contains(unknown.error, "\"metal\" is not a target")) << unknown.error;
}

TEST_F(CliBake, SaysThatTheSameCommandTriesAProgramAgainWhoseCompilerWasKilled) {
  const auto bin = home_.path() / "bin";
  fs::create_directory(bin);
  write(bin / "hipcc",
        "#!/bin/sh\n"
        "case \"$*\" in\n"
        "  *--version*) echo 'HIP version: 5.2.0' ;;\n"
        "  *-###*) ;;\n"
        "  *) kill -9 $$ ;;\n"
        "esac\n");
  fs::permissions(bin / "hipcc", fs::perms::owner_all);
  const Request request({.name = "twice", .source = "__global__ void twice() {}\n", .language = Language::hip});
  ASSERT_TRUE(key::RecordWriter(record_).add(request, "hip", {}).value());
  const Words bake = {"bake", record_, "--target", "hip:gfx906", "-o", bundle_};
  const auto ended = Command::Running(command_, bake, {{"PATH", bin.string() + ":" + std::getenv("PATH")}}).wait();
  EXPECT_EQ(ended.status, 1);
  EXPECT_TRUE(contains(ended.error, "hipcc was killed while it compiled twice")) << ended.error;
  EXPECT_TRUE(contains(ended.error, "the same command tries these programs again")) << ended.error;
  EXPECT_TRUE(contains(ended.error, "app.kiln.baking")) << ended.error;
  EXPECT_TRUE(fs::exists(bundle_));
}

TEST_F(CliBake, EndsInOrderAtCtrlC) {
  // A compiler that says when it begins, and waits until it may end.
  const auto bin = home_.path() / "bin";
  fs::create_directory(bin);
  write(bin / "hipcc",
        "#!/bin/sh\n"
        "case \"$*\" in\n"
        "  *--version*) echo 'HIP version: 5.2.0' ;;\n"
        "  *-###*) ;;\n"
        "  *) echo begun > \"$HOME/begun\"; read -r word < \"$HOME/go\"; exit 1 ;;\n"
        "esac\n");
  fs::permissions(bin / "hipcc", fs::perms::owner_all);
  for (const char* name : {"begun", "go"}) ASSERT_EQ(mkfifo(path(name).c_str(), 0600), 0);
  const Request request({.name = "twice", .source = "__global__ void twice() {}\n", .language = Language::hip});
  ASSERT_TRUE(key::RecordWriter(record_).add(request, "hip", {}).value());

  const std::string search = bin.string() + ":" + std::getenv("PATH");
  const Command::Running running(command_, {"bake", record_, "--target", "hip:gfx906", "-o", bundle_},
                                 {{"PATH", search}});
  EXPECT_EQ(contents(path("begun")), "begun\n");
  running.send(SIGINT);
  write(path("go"), "go\n");
  const auto ended = running.wait();
  EXPECT_EQ(ended.status, 130) << ended.error;
  EXPECT_TRUE(contains(ended.error, "run the same command to go on")) << ended.error;
  EXPECT_TRUE(contains(ended.error, "app.kiln.baking")) << ended.error;
  EXPECT_TRUE(fs::exists(bundle_ + ".baking"));
  EXPECT_FALSE(fs::exists(bundle_));
}

TEST_F(CliBake, RecordsSourceFilesWithoutADevice) {
  write(home_.path() / "factor.h", "#define FACTOR 2\n");
  const auto cuda =
      source_file("scale.cu", "#include \"factor.h\"\n__global__ void scale(int* x) { *x *= FACTOR; }\n");
  const auto added = kiln({"record", "add", record_, cuda, "--entry", "scale", "-D", "TILE=8"});
  ASSERT_EQ(added.status, 0) << added.error;
  EXPECT_EQ(added.out, "added 1 of 1 request to " + record_ + "\n");
  const auto listed = kiln({"record", "ls", record_, "--json"}).json();
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["name"], "scale");
  EXPECT_EQ(listed[0]["language"], "cuda");
  EXPECT_EQ(listed[0]["api"], "cuda");
  EXPECT_EQ(listed[0]["headers"], 1);
  EXPECT_EQ(kiln({"record", "add", record_, cuda, "--entry", "scale", "-D", "TILE=8", "--json"}).json()["added"],
            0);

  const auto shader = source_file("double.comp");
  EXPECT_EQ(kiln({"record", "add", record_, shader}).status, 2);
  EXPECT_EQ(kiln({"record", "add", record_, shader, "--language", "vulkan", "--api", "opengl"}).status, 2);
  EXPECT_EQ(kiln({"record", "add", record_, shader, "--language", "vulkan"}).status, 0);
  const auto absent = kiln({"record", "add", record_, path("absent.cu"), cuda, "--entry", "scale"});
  EXPECT_EQ(absent.status, 1);
  EXPECT_TRUE(contains(absent.error, "absent.cu")) << absent.error;
  EXPECT_TRUE(contains(absent.out, "added 1 of 2")) << absent.out;
}

TEST_F(CliBake, RecordsTheKernelsOfTheDemoInEveryLanguage) {
  const auto names = command_.run({"emit", "--json"}).json();
  for (const auto& [language, api] : std::map<std::string, std::string>{
           {"glsl", "opengl"}, {"vulkan", "vulkan"}, {"opencl", "opencl"}, {"cuda", "cuda"}, {"hip", "hip"}}) {
    const auto record = path(language + ".kilnreq");
    const auto added = command_.run({"emit", "--language", language, "--record", record, "--json"});
    ASSERT_EQ(added.status, 0) << added.error;
    EXPECT_EQ(added.json()["added"], names.size());
    const auto read = key::RequestRecord::read(record).value();
    ASSERT_EQ(read.entries().size(), names.size());
    EXPECT_EQ(read.entries()[0].api, api);
  }
  ASSERT_EQ(command_.run({"emit", "nbody_step", "--language", "cuda", "--record", record_}).status, 0);
  EXPECT_EQ(key::RequestRecord::read(record_).value().entries().size(), 1U);
  EXPECT_EQ(command_.run({"emit", "--record", record_}).status, 2);
}

}  // namespace
}  // namespace kiln::cli
