#include "base/file.hpp"
#include "cli_fixture.hpp"

namespace kiln::cli {
namespace {

TEST_F(Cli, ListsNothingForADirectoryThatIsNotThereAndDoesNotMakeIt) {
  const auto listed = kiln({"ls"});
  EXPECT_EQ(listed.status, 0);
  EXPECT_EQ(listed.out, "");
  EXPECT_TRUE(contains(listed.error, "No programs are stored in " + cache().string())) << listed.error;
  for (const char* command : {"ls", "stats", "verify"}) {
    const auto outcome = kiln({command, "--json"});
    EXPECT_EQ(outcome.status, 0) << command;
    EXPECT_EQ(outcome.error, "") << command;
    EXPECT_NO_THROW(outcome.json()) << command << outcome.out;
  }
  EXPECT_FALSE(fs::exists(cache()));
}

TEST_F(Cli, WorksWithClosedStandardStreams) {
  const auto file = store(fire_gpu, request("double"));
  damage(file);
  EXPECT_EQ(kiln_without_streams({"ls"}), 0);
  EXPECT_EQ(kiln_without_streams({"verify", "--repair"}), 0);
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(Cli, SaysWhatIsWrongWithADirectoryThatIsAFile) {
  write(cache(), "not a directory");
  const auto outcome = kiln({"ls"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(outcome.error.starts_with("kiln: ") && contains(outcome.error, cache().string())) << outcome.error;
}

/// Everything that reads a cache directory and needs no device.
const std::vector<Words> readers = {{"ls"},
                                    {"stats"},
                                    {"verify"},
                                    {"show", "double"},
                                    {"prune", "--max-age", "30d"},
                                    {"clear", "--all-devices", "--yes"}};

TEST_F(Cli, SaysThatADirectoryCannotBeReachedInsteadOfTakingItForEmpty) {
  write(home_.path() / "file", "not a directory");
  const std::string below = home_.path() / "file" / "cache";
  for (const char* format : {"--color=never", "--json"})
    for (Words words : readers) {
      words.insert(words.end(), {"--dir", below, format});
      const auto outcome = command_.run(words);
      EXPECT_EQ(outcome.status, 1) << words[0];
      EXPECT_EQ(outcome.out, "") << words[0];
      EXPECT_TRUE(outcome.error.starts_with("kiln: ")) << words[0] << ": " << outcome.error;
      EXPECT_TRUE(contains(outcome.error, below + ": Not a directory")) << words[0] << ": " << outcome.error;
    }
}

TEST_F(Cli, NamesADeviceFolderThatCannotBeReadAndFails) {
  const auto closed = store(fire_gpu, request("double")).parent_path();
  make_unreadable(closed);
  for (const Words& words : readers) {
    store(water_gpu, request("double"));
    const auto outcome = kiln(words);
    EXPECT_EQ(outcome.status, 1) << words[0];
    EXPECT_TRUE(contains(outcome.error, closed.string())) << words[0] << ": " << outcome.error;
  }
  const auto shown = kiln({"show", "missing"});
  EXPECT_EQ(shown.status, 1);
  EXPECT_TRUE(contains(shown.error, closed.string())) << shown.error;
}

TEST_F(Cli, TakesTheDirectoryFromTheEnvironment) {
  store(fire_gpu, request("double"));
  const auto outcome = command_.run({"ls", "--json"}, {{"KILN_CACHE_DIR", cache().string()}});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.json().size(), 1U);
}

TEST_F(Cli, ListsTheProgramsOfAllDevicesOrOfOne) {
  store(fire_gpu, request("double"));
  store(water_gpu, request("triple"));
  const auto all = kiln({"ls"});
  EXPECT_EQ(all.status, 0);
  for (const std::string& part : {std::string("NAME"), std::string("double"), std::string("triple"),
                                  request("double").key().digest.hex(12), std::string("50.0 ms")})
    EXPECT_TRUE(contains(all.out, part)) << part << " is not in\n" << all.out;
  for (const char* flag : {"-l", "--long"}) {
    const auto details = kiln({"ls", flag});
    EXPECT_EQ(details.status, 0);
    for (const std::string& part :
         {std::string("double\n"), std::string("triple\n"), request("double").key().digest.hex(),
          std::string("50.0 ms"), std::string("12.5 GFLOP/s"), fire_gpu.folder(), water_gpu.folder(),
          std::string("Fire 9000"), std::string("driver 2.0")})
      EXPECT_TRUE(contains(details.out, part)) << part << " is not in\n" << details.out;
  }
  const auto one = kiln({"ls", "--device-folder", "WATER", "--json"}).json();
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0]["name"], "triple");
  EXPECT_EQ(one[0]["compile_ms"], 50.0);
}

TEST_F(Cli, ShowsTheApiOfEachProgramAndDevice) {
  store(fire_gpu, request("double"));
  store(pocl, request("triple"));
  // Only the manifest says what the API of a folder is.
  fs::remove(store(water_gpu, request("quadruple")).parent_path() / "manifest.json");
  const auto listed = kiln({"ls"});
  EXPECT_TRUE(contains(listed.out, "API")) << listed.out;
  EXPECT_TRUE(contains(line_with(listed.out, "double "), "  opengl  ")) << listed.out;
  EXPECT_TRUE(contains(line_with(listed.out, "triple "), "  opencl  ")) << listed.out;
  EXPECT_TRUE(contains(line_with(listed.out, "quadruple "), "  -  ")) << listed.out;
  const auto details = kiln({"ls", "--long"});
  EXPECT_TRUE(contains(details.out, "  api          opencl\n")) << details.out;
  std::map<std::string, nlohmann::json> apis;
  for (const auto& program : kiln({"ls", "--json"}).json()) apis[program["name"]] = program["api"];
  EXPECT_EQ(apis["double"], "opengl");
  EXPECT_EQ(apis["triple"], "opencl");
  EXPECT_EQ(apis["quadruple"], nlohmann::json());

  const auto stats = kiln({"stats"});
  EXPECT_TRUE(line_with(stats.out, "Fire 9000").starts_with("opengl  ")) << stats.out;
  EXPECT_TRUE(line_with(stats.out, "sapphirerapids").starts_with("opencl  ")) << stats.out;
  EXPECT_TRUE(contains(kiln({"stats", "--long"}).out, "  api       opencl\n"));
  std::map<std::string, nlohmann::json> of_devices;
  const auto stats_json = kiln({"stats", "--json"}).json();
  for (const auto& device : stats_json["devices"]) of_devices[device["folder"]] = device["api"];
  EXPECT_EQ(of_devices[fire_gpu.folder()], "opengl");
  EXPECT_EQ(of_devices[pocl.folder()], "opencl");
  EXPECT_EQ(of_devices[water_gpu.folder()], nlohmann::json());
}

TEST_F(Cli, TablesFitEightyColumnsWhateverTheyHold) {
  const std::string name = "flash_attention_causal_f16_b8_h32_q4096_k4096_d128_split_k";
  for (const Identity* identity : {&lavapipe, &pocl, &nvidia}) {
    store(*identity, request("conv2d_3x3_t16_bias_relu"), 999'900);
    store(*identity, request(name));
    set_age(store(*identity, request("größe_窯_🔥_" + name)), 24h * 365 * 40);
  }
  damage(store(pocl, request("bad_" + name)));
  // A folder whose manifest is lost is listed by its own name.
  fs::remove(store(fire_gpu, request("lost_" + name)).parent_path() / "manifest.json");
  for (const Words& words : {Words{"ls"}, Words{"stats"}}) {
    const auto piped = kiln(words);
    EXPECT_EQ(piped.status, 0) << piped.error;
    EXPECT_LE(widest(piped.out), 80U) << piped.out;
    EXPECT_TRUE(contains(piped.out, "…")) << "nothing was cut:\n" << piped.out;
    for (const unsigned columns : {72U, 80U, 100U}) {
      Words plain = words;
      plain.insert(plain.end(), {"--color", "never"});
      std::string shown = kiln_on_terminal(plain, "", {}, columns).out;
      std::erase(shown, '\r');
      for (const auto& line : lines_of(shown))
        EXPECT_TRUE(display_width(line) <= columns || contains(line, "kiln verify")) << line;
    }
  }
  EXPECT_TRUE(contains(kiln({"ls"}).out, "conv2d_3x3_t16_bias_relu ")) << "a name of the demo is not cut";
}

TEST_F(Cli, DetailsFitEightyColumnsExceptForWordsThatAreLonger) {
  const std::string name = "flash_attention_causal_f16_b8_h32_q4096_k4096_d128_split_k";
  for (const Identity* identity : {&lavapipe, &pocl, &nvidia}) store(*identity, request(name));
  damage(store(pocl, request("bad")));
  for (const Words& words : {Words{"ls", "--long"}, Words{"stats", "--long"}, Words{"show", name}}) {
    const auto outcome = kiln(words);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    for (const auto& line : lines_of(outcome.out)) {
      const bool is_path = line.starts_with("  folder  ") || line.starts_with("  file  ");
      EXPECT_TRUE(display_width(line) <= 80 || is_path) << line;
    }
    EXPECT_FALSE(contains(outcome.out, "…")) << outcome.out;
    // Wrapped or not, every text is there in full.
    for (const Identity* identity : {&lavapipe, &pocl, &nvidia}) {
      EXPECT_TRUE(contains(unwrapped(outcome.out), identity->driver)) << outcome.out;
      EXPECT_TRUE(contains(unwrapped(outcome.out), identity->device)) << outcome.out;
      EXPECT_TRUE(contains(outcome.out, identity->folder())) << outcome.out;
    }
  }
}

TEST_F(Cli, HelpFitsEightyColumns) {
  EXPECT_LE(widest(command_.run({"--help"}).out), 80U);
  for (const char* name : {"demo", "devices", "emit", "ls", "show", "stats", "why", "compile", "verify", "warm",
                           "tune", "prune", "clear", "push", "pull", "config", "completions"}) {
    const auto help = command_.run({name, "--help"});
    EXPECT_EQ(help.status, 0) << name;
    EXPECT_LE(widest(help.out), 80U) << help.out;
  }
}

TEST_F(Cli, SortsBySizeAndByAge) {
  set_age(store(fire_gpu, request("a"), 10), 24h);
  set_age(store(fire_gpu, request("b"), 3000), 48h);
  set_age(store(fire_gpu, request("c"), 200), 1h);
  const auto names = [this](const char* order) {
    std::string joined;
    for (const auto& program : kiln({"ls", "--sort", order, "--json"}).json()) joined += program["name"];
    return joined;
  };
  EXPECT_EQ(names("name"), "abc");
  EXPECT_EQ(names("size"), "bca");
  EXPECT_EQ(names("age"), "cab");
}

TEST_F(Cli, ListsADamagedEntryAsSuchBesideItsNeighbours) {
  store(fire_gpu, request("good"));
  damage(store(fire_gpu, request("bad")));
  const auto outcome = kiln({"ls"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(contains(outcome.out, "good") && contains(outcome.out, "damaged")) << outcome.out;
  const auto json = kiln({"ls", "--json"}).json();
  EXPECT_TRUE(json[0]["damage"].is_string());
  EXPECT_TRUE(json[1]["damage"].is_null());
}

TEST_F(Cli, NamesOnTheTerminalAreAlignedAndCannotSteerIt) {
  store(fire_gpu, request("größe"));
  store(fire_gpu, request("evil\x1b[31m"));
  const auto outcome = kiln({"ls"});
  EXPECT_FALSE(contains(outcome.out, "\x1b")) << outcome.out;
  const auto hex_column = [&](const std::string& name) {
    const std::size_t begin = outcome.out.find(name);
    const std::size_t key = outcome.out.find(request(name).key().digest.hex(12), begin);
    std::size_t column = 0;
    for (std::size_t i = begin; i < key; ++i) column += (outcome.out[i] & 0xC0) != 0x80 ? 1U : 0U;
    return column;
  };
  EXPECT_EQ(hex_column("größe"), outcome.out.find("KEY"));
}

TEST_F(Cli, ShowsAProgramByNameAndByTheFirstDigitsOfItsKey) {
  store(fire_gpu, request("double"));
  store(water_gpu, request("double", "16"));
  const auto by_name = kiln({"show", "double"});
  EXPECT_EQ(by_name.status, 0);
  for (const char* part :
       {"TILE=8", "TILE=16", "Fire 9000", "driver 2.0", "12.5 GFLOP/s", "50.0 ms", "main", "glsl"})
    EXPECT_TRUE(contains(by_name.out, part)) << part << " is not in\n" << by_name.out;
  const auto by_key = kiln({"show", request("double").key().digest.hex(6), "--json"}).json();
  ASSERT_EQ(by_key.size(), 1U);
  EXPECT_EQ(by_key[0]["request"]["defines"]["TILE"], "8");
  EXPECT_EQ(by_key[0]["identity"]["driver"], "driver 1.0");
  EXPECT_EQ(by_key[0]["binary_bytes"], 100);
}

TEST_F(Cli, ShowFailsForWhatIsNotStored) {
  store(fire_gpu, request("double"));
  for (const char* program : {"doub", "0000000000000000", "ls"}) {
    const auto outcome = kiln({"show", program});
    EXPECT_EQ(outcome.status, 1) << program;
    EXPECT_EQ(outcome.out, "") << program;
    EXPECT_TRUE(outcome.error.starts_with("kiln: no stored program")) << outcome.error;
  }
}

TEST_F(Cli, StatsBeginWithTheLineForPeople) {
  store(fire_gpu, request("double"));
  store(fire_gpu, request("triple"));
  const auto outcome = kiln({"stats"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(outcome.out.starts_with("2 programs on disk (")) << outcome.out;
  const auto json = kiln({"stats", "--json"}).json();
  EXPECT_EQ(json["devices"][0]["programs"], 2);
  EXPECT_EQ(json["devices"][0]["device"], "Fire 9000");
  EXPECT_EQ(json["lifetime"]["requests"], 0);
}

TEST_F(Cli, VerifyNamesTheDamagedEntryAndRepairRemovesIt) {
  const auto good = store(fire_gpu, request("good"));
  const auto bad = store(fire_gpu, request("bad"));
  EXPECT_EQ(kiln({"verify"}).status, 0);
  damage(bad);
  const auto found = kiln({"verify"});
  EXPECT_EQ(found.status, 1);
  EXPECT_TRUE(contains(found.out, bad.filename().string() + ": its checksum")) << found.out;
  EXPECT_FALSE(contains(found.out, good.filename().string())) << found.out;
  EXPECT_TRUE(fs::exists(bad));

  const auto repaired = kiln({"verify", "--repair", "--json"});
  EXPECT_EQ(repaired.status, 0) << repaired.error;
  EXPECT_EQ(repaired.json()["damaged"][0]["repaired"], true);
  EXPECT_FALSE(fs::exists(bad));
  EXPECT_FALSE(fs::exists(bad.parent_path() / store::meta_file_name(bad.filename().string())));
  EXPECT_TRUE(fs::exists(good));
  EXPECT_EQ(kiln({"verify"}).status, 0);
}

TEST_F(Cli, VerifyRewritesAMetaThatDoesNotFitItsEntry) {
  const auto entry = store(fire_gpu, request("double"));
  const auto meta = entry.parent_path() / store::meta_file_name(entry.filename().string());
  const std::string right = contents(meta);
  for (const std::string wrong : {"", "{\"name\": \"another\"}", "no JSON"}) {
    write(meta, wrong);
    EXPECT_EQ(kiln({"verify", "--json"}).json()["meta"].size(), 1U) << wrong;
    EXPECT_EQ(kiln({"verify", "--repair"}).status, 0);
    EXPECT_EQ(contents(meta), right) << wrong;
  }
}

TEST_F(Cli, VerifyRemovesTemporaryFilesOnlyOnceNobodyWritesThem) {
  const auto folder = store(fire_gpu, request("double")).parent_path();
  const std::string left = ".tmp-" + std::string(32, '1'), written = ".tmp-" + std::string(32, '2');
  write(folder / left, "left over");
  write(folder / ".tmp-mine", "somebody's");
  const base::FileHandle file = base::Folder::open(folder, false).value().open_lock_file(written).value();
  const auto lock = base::FileLock::acquire(file, 0, 0ms);
  EXPECT_EQ(kiln({"verify", "--json"}).json()["leftover"].size(), 2U);
  EXPECT_EQ(kiln({"verify", "--repair"}).status, 0);
  EXPECT_FALSE(fs::exists(folder / left));
  EXPECT_TRUE(fs::exists(folder / written));
  EXPECT_TRUE(fs::exists(folder / ".tmp-mine"));
}

TEST_F(Cli, PruneForetellsInADryRunWhatItThenDoes) {
  set_age(store(fire_gpu, request("old")), 24h * 40);
  set_age(store(fire_gpu, request("middle"), 5000), 24h * 10);
  const auto young = store(water_gpu, request("young"), 5000);
  const Words words = {"prune", "--max-age", "30d", "--max-size", "8kB", "--json"};
  Words dry = words;
  dry.push_back("--dry-run");
  auto foreseen = kiln(dry).json();
  EXPECT_EQ(kiln({"ls", "--json"}).json().size(), 3U);
  auto done = kiln(words).json();
  EXPECT_EQ(done["removed"], 2);
  foreseen.erase("dry_run");
  done.erase("dry_run");
  EXPECT_EQ(foreseen, done);
  EXPECT_TRUE(fs::exists(young));
}

TEST_F(Cli, ClearOfAllDevicesRemovesOnlyWhatKilnMade) {
  const auto entry = store(fire_gpu, request("double"));
  const auto other = store(water_gpu, request("double"));
  write(entry.parent_path() / "notes.txt", "mine");
  fs::create_directory(cache() / "photos-0123456789abcdef");
  write(cache() / "photos-0123456789abcdef" / "manifest.json", "{}");
  EXPECT_EQ(kiln({"clear", "--all-devices"}).status, 2);
  EXPECT_TRUE(fs::exists(entry));

  // No device could be opened under that name.
  const auto outcome = kiln({"clear", "--all-devices", "--yes", "--json"}, {{"KILN_DEVICE", "none"}});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.json()["removed"], 2);
  EXPECT_EQ(outcome.json()["left"].size(), 1U);
  EXPECT_TRUE(fs::exists(entry.parent_path() / "notes.txt"));
  EXPECT_FALSE(fs::exists(entry));
  EXPECT_FALSE(fs::exists(entry.parent_path() / "manifest.json"));
  EXPECT_FALSE(fs::exists(other.parent_path()));
  EXPECT_TRUE(fs::exists(cache() / "photos-0123456789abcdef" / "manifest.json"));
}

TEST_F(Cli, ClearAsksOnATerminalAndTakesNoForAnAnswer) {
  const auto entry = store(fire_gpu, request("double"));
  const auto refused = kiln_on_terminal({"clear", "--all-devices"}, "n\n");
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.out, "Remove 1 program (") && contains(refused.out, "Fire 9000")) << refused.out;
  EXPECT_TRUE(fs::exists(entry));
  EXPECT_EQ(kiln_on_terminal({"clear", "--all-devices"}, "y\n").status, 0);
  EXPECT_FALSE(fs::exists(cache()));
}

TEST_F(Cli, WritesColoursOnATerminalUnlessToldOtherwise) {
  store(fire_gpu, request("double"));
  EXPECT_TRUE(contains(kiln_on_terminal({"ls"}).out, "\x1b["));
  EXPECT_FALSE(contains(kiln_on_terminal({"ls"}, "", {{"NO_COLOR", "1"}}).out, "\x1b["));
  EXPECT_FALSE(contains(kiln_on_terminal({"ls", "--color", "never"}).out, "\x1b["));
  EXPECT_FALSE(contains(kiln({"ls"}).out, "\x1b["));
  EXPECT_TRUE(contains(kiln({"ls", "--color", "always"}).out, "\x1b["));
}

TEST_F(Cli, OutputThatCannotBeWrittenIsAFailure) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  store(fire_gpu, request("double"));
  damage(store(fire_gpu, request("bad")));
  for (const Words& words :
       {Words{"--help"}, Words{"--version"}, Words{"ls", "--help"}, Words{"completions", "bash"}, Words{"emit"},
        Words{"ls", "--dir", cache().string()}, Words{"stats", "--dir", cache().string()},
        Words{"ls", "--json", "--dir", cache().string()}}) {
    const auto outcome = command_.run_into("/dev/full", words);
    EXPECT_EQ(outcome.status, 1) << words[0];
    EXPECT_TRUE(contains(outcome.error, "kiln: cannot write the output")) << words[0] << ": " << outcome.error;
  }
}

TEST_F(Cli, TakesADeviceOnlyWhereOneIsOpened) {
  EXPECT_FALSE(contains(command_.run({"--help"}).out, "--device"));
  for (const char* name : {"demo", "why", "compile", "warm", "tune", "clear"})
    EXPECT_TRUE(contains(command_.run({name, "--help"}).out, "--device ")) << name;
  for (const char* name : {"devices", "emit", "ls", "stats", "verify", "completions"}) {
    EXPECT_FALSE(contains(command_.run({name, "--help"}).out, "--device ")) << name;
    const auto before = command_.run({"--device", "opengl", name});
    EXPECT_EQ(before.status, 2) << name;
    EXPECT_EQ(before.out, "") << name;
    EXPECT_TRUE(contains(before.error, "--device")) << before.error;
    EXPECT_EQ(command_.run({name, "--device", "opengl"}).status, 2) << name;
  }
  // For a command that takes one, it may come first.
  const auto early = command_.run({"--device", "steam", "warm"});
  EXPECT_EQ(early.status, 1);
  EXPECT_TRUE(contains(early.error, "\"steam\" is not a device name")) << early.error;
}

TEST_F(Cli, ClearOfAllDevicesTakesNone) {
  const auto entry = store(fire_gpu, request("double"));
  EXPECT_EQ(kiln({"clear", "--all-devices", "--yes", "--device", "opengl"}).status, 2);
  EXPECT_TRUE(fs::exists(entry));
}

/// Whether a terminal that shows the text obeys it: line ends and tabs are fine.
bool steers(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) return true;
    // The control characters U+0080 to U+009F.
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) return true;
  }
  return false;
}

TEST_F(Cli, NothingFromOutsideCanSteerTheTerminal) {
  const std::string evil =
      "\x1b]0;owned\x07\x7f\xC2\x9B"
      "31m";
  const fs::path missing = home_.path() / ("missing" + evil), file = home_.path() / ("file" + evil);
  const fs::path stored = home_.path() / ("stored" + evil);
  write(file, "not a directory");
  fs::create_directory(stored);
  fs::rename(store(fire_gpu, request(evil)).parent_path(), stored / fire_gpu.folder());
  for (const fs::path& directory : {missing, file, stored})
    for (const char* format : {"--color=never", "--json"}) {
      std::vector<Words> all = readers;
      all.insert(all.end(),
                 {{"show", evil}, {"ls", "--device-folder", evil}, {"ls", evil}, {"ls", "--sort", evil}});
      all.insert(all.end(), {{"why", (home_.path() / evil).string()}, {"prune", "--max-age", evil}, {evil}});
      for (Words words : all) {
        words.insert(words.end(), {"--dir", directory.string(), format});
        const auto outcome = command_.run(words);
        EXPECT_FALSE(steers(outcome.out)) << words[0] << " " << directory.filename() << ": " << outcome.out;
        EXPECT_FALSE(steers(outcome.error)) << words[0] << " " << directory.filename() << ": " << outcome.error;
      }
    }
}

TEST_F(Cli, JsonHoldsAStrangeNameWhole) {
  const std::string evil = "\x1b[31m\x7f\xC2\x9B\u202e";
  store(fire_gpu, request(evil));
  const auto listed = kiln({"ls", "--json"});
  EXPECT_FALSE(steers(listed.out)) << listed.out;
  EXPECT_EQ(listed.json()[0]["name"], evil);
}

TEST_F(Cli, ANameWithALineEndCannotPassForAMessage) {
  const auto outcome = command_.run({"ls", "--dir", (home_.path() / "a\nkiln: all is well").string()});
  EXPECT_FALSE(contains(outcome.error, "\nkiln: ")) << outcome.error;
  write(home_.path() / "a\nkiln: all is well", "not a directory");
  const auto failed = command_.run({"ls", "--dir", (home_.path() / "a\nkiln: all is well").string()});
  EXPECT_EQ(failed.status, 1);
  EXPECT_FALSE(contains(failed.error, "\nkiln: ")) << failed.error;
}

TEST_F(Cli, CommandLinesThatMakeNoSenseExitWithTwo) {
  for (const Words& words :
       {Words{"prune"}, Words{"prune", "--max-age", "30"}, Words{"prune", "--max-size", "much"},
        Words{"ls", "--sort", "colour"}, Words{"ls", "--nonsense"}, Words{"show"}, Words{"bake"},
        Words{"why", "x.comp", "--define", "=1"}, Words{"completions", "cmd"},
        Words{"emit", "abacus", "--language", "glsl"}, Words{"emit", "nbody_step", "--language", "fortran"},
        Words{"emit", "nbody_step"}, Words{"prune", "--max-age", std::string(400, '9') + "d"},
        Words{"prune", "--max-size", std::string(400, '9')}, Words{"demo", "--runs", std::string(40, '9')},
        Words{"why", "x.comp", "--language", "fortran"}}) {
    const auto outcome = command_.run(words);
    EXPECT_EQ(outcome.status, 2) << words[0];
    EXPECT_EQ(outcome.out, "") << words[0];
    EXPECT_TRUE(outcome.error.starts_with("kiln: ")) << words[0] << ": " << outcome.error;
  }
  EXPECT_EQ(command_.run({}).status, 2);
  EXPECT_EQ(command_.run({"--help"}).status, 0);
  EXPECT_TRUE(command_.run({"--version"}).out.starts_with("kiln "));
}

TEST_F(Cli, CompletionScriptsKnowEverySubcommandAndOption) {
  const std::map<std::string, Words> commands = {
      {"demo", {}},
      {"devices", {"long"}},
      {"emit", {"language"}},
      {"ls", {"device-folder", "sort", "long"}},
      {"show", {}},
      {"stats", {"long"}},
      {"why", {"name", "define", "include", "option", "entry", "language", "arch"}},
      {"compile", {"name", "define", "include", "option", "entry", "language", "arch"}},
      {"verify", {"repair"}},
      {"warm", {"device"}},
      {"tune", {"shape", "budget", "seed", "report", "from-profile"}},
      {"prune", {"max-age", "max-size", "dry-run"}},
      {"clear", {"yes", "all-devices"}},
      {"push", {"min-compile-time", "rare", "dry-run", "jobs"}},
      {"pull", {"min-compile-time", "dry-run", "jobs"}},
      {"config", {"shared"}},
      {"completions", {}}};
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = command_.run({"completions", shell});
    EXPECT_EQ(script.status, 0);
    for (const auto& [name, options] : commands) {
      const auto help = command_.run({name, "--help"});
      EXPECT_EQ(help.status, 0) << name;
      EXPECT_TRUE(contains(script.out, name)) << shell << " does not know " << name;
      for (const auto& option : options) {
        EXPECT_TRUE(contains(help.out, "--" + option)) << name << " has no " << option;
        EXPECT_TRUE(contains(script.out, option)) << shell << " does not know " << option;
      }
    }
  }
}

}  // namespace
}  // namespace kiln::cli
