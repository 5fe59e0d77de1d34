#include <kiln/cache.hpp>
#include <kiln/device.hpp>
#include <kiln/kernel.hpp>

#include "backend/source_text.hpp"
#include "cli_fixture.hpp"

namespace kiln::cli {
namespace {

/// The commands that open a device: on the best this machine has, which is Mesa's where there is no GPU.
class CliDevice : public Cli {
 protected:
  void SetUp() override {
    auto opened = open_device("", quiet);
    ASSERT_TRUE(opened) << opened.error().message();
    device_ = std::move(*opened);
    if (device_->identity().formats.empty()) GTEST_SKIP() << "the driver gives no binaries out";
  }

  /// Compiles the program for real and keeps it.
  void compile(const Request& wanted) const {
    Cache cache(device_, {.directory = this->cache(), .log = quiet});
    cache.get(wanted).value();
  }

  std::shared_ptr<Device> device_;
};

TEST_F(CliDevice, DevicesListsTheOneThatOpens) {
  const auto json = kiln({"devices", "--json"});
  ASSERT_EQ(json.status, 0) << json.error;
  const auto devices = json.json();
  const auto same = [this](const nlohmann::json& device) {
    return device["folder"] == device_->identity().folder();
  };
  EXPECT_TRUE(std::any_of(devices.begin(), devices.end(), same)) << json.out;
  const auto table = kiln({"devices"});
  EXPECT_TRUE(contains(table.out, device_->identity().device)) << table.out;
}

TEST_F(CliDevice, DevicesTellsTheTraitsOfTheOneThatOpens) {
  const auto known = [](std::uint64_t value) { return value != 0 ? nlohmann::json(value) : nlohmann::json(); };
  const DeviceTraits& traits = device_->info().traits;
  const auto listed = kiln({"devices", "--json"}).json();
  const auto same = std::find_if(listed.begin(), listed.end(), [this](const nlohmann::json& device) {
    return device["name"] == device_->info().name;
  });
  ASSERT_NE(same, listed.end()) << listed.dump(2);
  const nlohmann::json architecture =
      traits.architecture.empty() ? nlohmann::json() : nlohmann::json(traits.architecture);
  EXPECT_EQ((*same)["traits"], (nlohmann::json{{"vendor", traits.vendor},
                                               {"architecture", architecture},
                                               {"compute_units", known(traits.compute_units)},
                                               {"subgroup_width", known(traits.subgroup_width)},
                                               {"shared_bytes", known(device_->info().limits.shared_bytes)},
                                               {"fp16", traits.fp16},
                                               {"matrix_units", traits.matrix_units}}));
  const auto table = kiln({"devices"});
  for (const char* column : {"NAME", "VENDOR", "DEVICE", "RUNS ON", "BINARIES", traits.vendor.c_str()})
    EXPECT_TRUE(contains(table.out, column)) << table.out;
  const auto details = kiln({"devices", "--long"});
  for (const char* field : {"  api ", "  vendor ", "  architecture ", "  driver ", "  compute units ",
                            "  subgroup width ", "  shared memory ", "  fp16 ", "  matrix units ", "  folder "})
    EXPECT_TRUE(contains(details.out, field)) << details.out;
  EXPECT_TRUE(contains(details.out, device_->info().name + "\n")) << details.out;
  EXPECT_TRUE(contains(unwrapped(details.out), "driver " + device_->identity().driver)) << details.out;
  EXPECT_TRUE(contains(details.out, device_->identity().folder())) << details.out;
}

TEST_F(CliDevice, DevicesShowsWhyAnApiCannotBeUsedWithinEightyColumns) {
  // Without its driver files, OpenCL cannot be used on any machine.
  fs::create_directory(home_.path() / "none");
  const Environment without_opencl = {{"OCL_ICD_VENDORS", (home_.path() / "none").string()},
                                      {"OCL_ICD_FILENAMES", ""}};
  const auto listed = command_.run({"devices", "--json"}, without_opencl).json();
  std::vector<nlohmann::json> problems;
  for (const auto& device : listed)
    if (device["problem"].is_string()) problems.push_back(device);
  ASSERT_FALSE(problems.empty());
  for (const Words& words : {Words{"devices"}, Words{"devices", "--long"}}) {
    const auto shown = command_.run(words, without_opencl);
    EXPECT_EQ(shown.status, 0) << shown.error;
    const std::size_t section = shown.out.find("\nNot available:\n");
    ASSERT_NE(section, std::string::npos) << shown.out;
    EXPECT_LE(widest(shown.out), 80U) << shown.out;
    for (const auto& device : problems) {
      const std::string sentence = device["name"].get<std::string>() + " " + device["problem"].get<std::string>();
      EXPECT_TRUE(contains(unwrapped(shown.out.substr(section)), sentence)) << sentence << "\n" << shown.out;
    }
    EXPECT_LT(shown.out.find(device_->info().name), section) << "the usable devices come first";
  }
  auto narrow = command_.run_on_terminal({"devices", "--color", "never"}, "", without_opencl, 60).out;
  std::erase(narrow, '\r');
  EXPECT_LE(widest(narrow.substr(narrow.find("Not available:"))), 60U) << narrow;
}

TEST_F(CliDevice, DevicesTellsWhichCompilersAreMissingAndWhatStillWorks) {
  const Environment without_shaderc = {{"KILN_SHADERC", "/nowhere/libkiln_shaderc.so.0"}};
  const auto listed = command_.run({"devices", "--json"}, without_shaderc).json();
  const auto found = std::find_if(listed.begin(), listed.end(), [](const nlohmann::json& device) {
    return device["api"] == "vulkan" && device["compiler_problem"].is_string();
  });
  if (found == listed.end()) GTEST_SKIP() << "there is no Vulkan device, or shaderc was not built with Kiln";
  EXPECT_TRUE((*found)["problem"].is_null());
  EXPECT_TRUE((*found)["folder"].is_string());
  const std::string sentence =
      (*found)["name"].get<std::string>() + " " + (*found)["compiler_problem"].get<std::string>();
  for (const Words& words : {Words{"devices"}, Words{"devices", "--long"}}) {
    const auto shown = command_.run(words, without_shaderc).out;
    const std::size_t section = shown.find("\nNo compiler:\n");
    ASSERT_NE(section, std::string::npos) << shown;
    EXPECT_LE(widest(shown), 80U) << shown;
    EXPECT_TRUE(contains(unwrapped(shown.substr(section)), sentence)) << shown;
    EXPECT_TRUE(contains(unwrapped(shown.substr(section)), "Programs that are compiled already still run"))
        << shown;
  }
}

TEST_F(CliDevice, ADeviceThatIsNotThereIsOneClearSentence) {
  for (const Words& words :
       {Words{"warm", "--device", "steam"}, Words{"clear", "--yes", "--device", "opengl:99"}}) {
    const auto outcome = kiln(words);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_TRUE(outcome.error.starts_with("kiln: ")) << outcome.error;
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  }
}

TEST_F(CliDevice, WhyTellsAHitAndWhereItIs) {
  compile(request("double"));
  const auto outcome = kiln({"why", source_file("double.comp"), "--define", "TILE=8"});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  EXPECT_TRUE(outcome.out.starts_with("hit: double")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, store::entry_file_name(request("double").key()))) << outcome.out;
}

TEST_F(CliDevice, WhyFindsTheProgramsOfEveryApi) {
  const Kernel kernel{.name = "fill",
                      .buffers = {{"y", Type::f32, Access::write}},
                      .group_size = {8, 1, 1},
                      .source = "KERNEL { y[global_id_x] = 1.0f; }\n"};
  std::size_t asked = 0;
  for (const char* api : {"opengl", "opencl", "vulkan", "cuda", "hip"}) {
    const auto device = open_device(api, quiet);
    if (!device || (*device)->identity().formats.empty()) continue;
    ++asked;
    const Language language = (*device)->info().language;
    const Request made = kernel.request(language).value();
    const std::string text = backend::with_defines(made);
    const std::string entry = made.entries().at(0);
    {
      Cache cache(*device, {.directory = this->cache(), .log = quiet});
      cache.get(Request({.name = "kiln_fill", .source = text, .entries = {entry}, .language = language})).value();
    }
    const auto file = source_file("kiln_fill.txt", text);
    const std::string name(to_string(language));
    for (const Words& words : {Words{"--device", api}, Words{"--language", name}}) {
      const auto hit = kiln({"why", file, words[0], words[1], "--entry", entry, "--json"});
      EXPECT_EQ(hit.status, 0) << api << ": " << hit.out << hit.error;
      const auto json = hit.json();
      EXPECT_EQ(json["hit"], true) << api;
      EXPECT_EQ(json["api"], api);
      EXPECT_EQ(json["language"], name);
      EXPECT_EQ(json["entry"], entry);
    }
    const auto shown = kiln({"why", file, "--device", api, "--entry", entry});
    EXPECT_TRUE(contains(shown.out, "  api     " + std::string(api) + "\n")) << shown.out;
    const auto missed = kiln({"why", file, "--device", api, "--entry", "other", "--json"});
    EXPECT_EQ(missed.status, 1) << api;
    EXPECT_EQ(missed.json()["differences"][0]["field"], "entry point") << missed.out;
    EXPECT_EQ(missed.json()["nearest"]["api"], api) << missed.out;
    const auto missed_text = kiln({"why", file, "--device", api, "--entry", "other"});
    EXPECT_TRUE(contains(missed_text.out, "  api     " + std::string(api) + "\n")) << missed_text.out;
    EXPECT_TRUE(contains(missed_text.out, "  api       " + std::string(api) + "\n")) << missed_text.out;
  }
  EXPECT_GT(asked, 0U);
  EXPECT_EQ(kiln({"why", source_file("x.cu"), "--language", "cuda", "--device", "opengl"}).status, 2);
}

TEST_F(CliDevice, SaysThatAFolderCannotBeReadInsteadOfTakingItForEmpty) {
  const auto folder = store(device_->identity(), request("double")).parent_path();
  make_unreadable(folder);
  write(home_.path() / "file", "not a directory");
  for (const Words& words : {Words{"warm"}, Words{"why", source_file("double.comp"), "-D", "TILE=8"},
                             Words{"tune", "ls"}, Words{"clear", "--yes"}}) {
    const auto closed = kiln(words);
    EXPECT_EQ(closed.status, 1) << words[0];
    EXPECT_TRUE(contains(closed.out + closed.error, folder.string())) << words[0] << ": " << closed.error;
    Words below = words;
    below.insert(below.end(), {"--dir", (home_.path() / "file" / "cache").string()});
    const auto unreachable = command_.run(below);
    EXPECT_EQ(unreachable.status, 1) << words[0];
    EXPECT_TRUE(contains(unreachable.error, "file/cache")) << words[0] << ": " << unreachable.error;
    EXPECT_TRUE(contains(unreachable.error, "Not a directory")) << words[0] << ": " << unreachable.error;
  }
}

TEST_F(CliDevice, SaysThatADirectoryIsNotSafeAndMakesNothingInIt) {
  const auto open_to_all = home_.path() / "open_to_all";
  fs::create_directory(open_to_all);
  fs::permissions(open_to_all, fs::perms::all);
  for (const Words& words : {Words{"tune", "ls"}, Words{"tune", "export", (home_.path() / "records").string()},
                             Words{"tune", "softmax", "--shape", "8x8", "--budget", "1s"}}) {
    Words there = words;
    there.insert(there.end(), {"--dir", open_to_all.string()});
    const auto outcome = command_.run(there);
    EXPECT_EQ(outcome.status, 1) << words[1];
    EXPECT_TRUE(contains(outcome.error, open_to_all.string())) << words[1] << ": " << outcome.error;
    EXPECT_TRUE(fs::is_empty(open_to_all)) << words[1];
  }
}

TEST_F(CliDevice, WhyNamesEveryFieldOfTheKeyThatDiffers) {
  const std::string with_header =
      "#version 430\n#include \"two.glsl\"\n" + doubling.substr(doubling.find('\n') + 1);
  compile(Request({.name = "other", .source = "#version 430\nlayout(local_size_x = 1) in;\nvoid main() {}\n"}));
  compile(Request({.name = "double",
                   .source = with_header,
                   .defines = {{"TILE", "8"}, {"OLD", "1"}},
                   .headers = {{"two.glsl", "#define TWO 2\n"}}}));
  const auto file = source_file("double.comp", with_header + "// edited\n");
  fs::create_directory(home_.path() / "include");
  write(home_.path() / "include" / "two.glsl", "#define TWO 2.0\n");

  const auto outcome = kiln({"why", file, "-D", "TILE=16", "-D", "NEW", "--include",
                             (home_.path() / "include").string(), "--option", "-O2", "--json"});
  EXPECT_EQ(outcome.status, 1) << outcome.error;
  const auto json = outcome.json();
  EXPECT_EQ(json["hit"], false);
  EXPECT_EQ(json["nearest"]["name"], "double");
  std::map<std::string, std::pair<nlohmann::json, nlohmann::json>> differences;
  for (const auto& difference : json["differences"]) {
    EXPECT_EQ(difference["of"], "key");
    differences[difference["field"]] = {difference["stored"], difference["asked"]};
  }
  EXPECT_EQ(differences["define TILE"], std::pair(nlohmann::json("8"), nlohmann::json("16")));
  EXPECT_EQ(differences["define OLD"], std::pair(nlohmann::json("1"), nlohmann::json()));
  EXPECT_EQ(differences["define NEW"], std::pair(nlohmann::json(), nlohmann::json("1")));
  EXPECT_EQ(differences["option"], std::pair(nlohmann::json(), nlohmann::json("-O2")));
  EXPECT_TRUE(differences.contains("source"));
  EXPECT_TRUE(differences.contains("header " + (home_.path() / "include" / "two.glsl").string()));
  EXPECT_EQ(differences.size(), 6U) << json["differences"].dump(2);
}

TEST_F(CliDevice, WhyDoesNotMindWhereAHeaderIs) {
  const std::string source =
      "#version 430\n#define TILE 1\n#include \"two.glsl\"\n" + doubling.substr(doubling.find('\n'));
  compile(Request({.name = "double", .source = source, .headers = {{"two.glsl", "#define TWO 2\n"}}}));
  write(home_.path() / "two.glsl", "#define TWO 2\n");
  const auto outcome = kiln({"why", source_file("double.comp", source), "--include", home_.path().string()});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
}

TEST_F(CliDevice, WhyTellsWhichPartOfTheDriverHasChanged) {
  Identity before = device_->identity();
  before.driver = "the driver of last year";
  store(before, request("double"));
  const auto outcome = kiln_on_terminal({"why", source_file("double.comp"), "-D", "TILE=8"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.out, "the driver of last year")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, device_->identity().driver)) << outcome.out;
  EXPECT_FALSE(contains(outcome.out, "define TILE")) << outcome.out;
}

TEST_F(CliDevice, WhyWrapsLongDifferencesToEightyColumns) {
  Identity before = device_->identity();
  before.driver = lavapipe.driver + " and a build of the distribution";
  before.compiler = pocl.compiler;
  store(before, request("double"));
  const auto outcome = kiln({"why", source_file("double.comp"), "-D", "TILE=8", "--define",
                             "A_DEFINE_WITH_A_LONG_NAME=" + std::string(100, '1')});
  EXPECT_EQ(outcome.status, 1);
  for (const auto& line : lines_of(outcome.out))
    EXPECT_TRUE(display_width(line) <= 80 || line.starts_with("  folder ")) << line;
  EXPECT_FALSE(contains(outcome.out, "…")) << outcome.out;
  for (const char* word : {"llvmpipe", "distribution", "POCL_DEBUG"})
    EXPECT_TRUE(contains(outcome.out, word)) << outcome.out;
  EXPECT_GE(std::count(outcome.out.begin(), outcome.out.end(), '1'), 100);
}

TEST_F(CliDevice, WhyTellsThatTheEntryIsDamaged) {
  damage(store(device_->identity(), request("double")));
  const auto outcome = kiln({"why", source_file("double.comp"), "-D", "TILE=8"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.out, "its entry is damaged")) << outcome.out;
}

TEST_F(CliDevice, WhyFailsForASourceThatCannotBe) {
  for (const std::string& file :
       {(home_.path() / "absent.comp").string(), home_.path().string(), source_file("empty.comp", ""),
        source_file("lost.comp", "#include \"lost.glsl\"\n")}) {
    const auto outcome = kiln({"why", file});
    EXPECT_EQ(outcome.status, 1) << file;
    EXPECT_EQ(outcome.out, "") << file;
    EXPECT_TRUE(outcome.error.starts_with("kiln: ")) << outcome.error;
  }
}

TEST_F(CliDevice, WarmLoadsWhatTheDriverTakesAndNamesWhatItRefuses) {
  compile(request("double"));
  compile(request("double", "16"));
  const auto sound = kiln({"warm", "--json"});
  EXPECT_EQ(sound.status, 0) << sound.error;
  EXPECT_EQ(sound.json()["ready"], 2);
  EXPECT_EQ(sound.json()["api"], device_->identity().api);
  const auto text = kiln({"warm"});
  EXPECT_TRUE(contains(text.out, device_->identity().device + " (" + device_->identity().api + ")")) << text.out;

  const auto nonsense = store(device_->identity(), request("nonsense"));
  const auto refused = kiln({"warm", "--json"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(refused.json()["ready"], 2);
  EXPECT_EQ(refused.json()["failed"][0]["name"], "nonsense");
  EXPECT_FALSE(fs::exists(nonsense)) << "it is removed, to be compiled when it is next asked for";
  EXPECT_EQ(kiln({"warm"}).status, 0);
}

TEST_F(CliDevice, WarmIsNeitherAHitNorTimeSaved) {
  compile(request("double"));
  const auto saved = [this] {
    const auto lifetime = kiln({"stats", "--json"}).json();
    return lifetime.dump();
  };
  const std::string before = saved();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(kiln({"warm"}).status, 0);
  EXPECT_EQ(saved(), before);
}

TEST_F(CliDevice, WarmOfAnEmptyDirectoryIsNoErrorAndMakesNone) {
  const auto outcome = kiln({"warm"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.error, "No programs are stored")) << outcome.error;
  EXPECT_TRUE(contains(outcome.error, "(" + device_->identity().api + ")")) << outcome.error;
  EXPECT_FALSE(fs::exists(cache()));
}

TEST_F(CliDevice, ClearRemovesTheProgramsOfThatDeviceOnly) {
  const auto mine = store(device_->identity(), request("double"));
  const auto other = store(fire_gpu, request("double"));
  const auto outcome = kiln({"clear", "--yes"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_FALSE(fs::exists(mine.parent_path()));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(CliDevice, StatsAddUpWhatProcessesHaveDone) {
  compile(request("double"));
  compile(request("double"));
  const auto json = kiln({"stats", "--json"}).json();
  EXPECT_EQ(json["sessions"], 2);
  EXPECT_EQ(json["lifetime"]["compiles"], 1);
  EXPECT_EQ(json["lifetime"]["disk_hits"], 1);
  const auto text = kiln({"stats"});
  EXPECT_TRUE(contains(text.out, "50% hit rate")) << text.out;
}

TEST_F(CliDevice, VerifyWritesALostManifestAnewForADeviceThatIsHere) {
  compile(request("double"));
  const auto manifest = cache() / device_->identity().folder() / "manifest.json";
  fs::remove(manifest);
  EXPECT_EQ(kiln({"verify", "--json"}).json()["manifest"].size(), 1U);
  EXPECT_EQ(kiln({"verify", "--repair"}).status, 0);
  EXPECT_TRUE(contains(contents(manifest), device_->identity().device));
}

}  // namespace
}  // namespace kiln::cli
