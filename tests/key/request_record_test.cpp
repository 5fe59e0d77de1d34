#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "fakes/child.hpp"
#include "fakes/faulty_file_system.hpp"
#include "key/record_fixture.hpp"
#include "key/record_items.hpp"

// The file of a record: many writers, damage, hostile files.
namespace kiln::key {
namespace {

namespace fs = std::filesystem;

class RequestRecordTest : public RecordTest {
 protected:
  bool add(int number, std::string_view api = "api") {
    RecordWriter writer(path_);
    return writer.add(request(number), api, {}).value();
  }
  /// Appends an item to the file, as a hostile writer could.
  void append(std::span<const std::byte> bytes) const {
    fakes::write_file(path_, fakes::read_file(path_) + fakes::text_of(bytes));
  }
  static std::vector<std::byte> item(const RecordedRequest& request) {
    const auto id = RecordedRequest::id(request.key.digest, request.api);
    return pack_item(ItemKind::request, id, request.to_bytes());
  }
  /// A request whose only file has this path.
  RecordedRequest with_tree(FileTree tree) const {
    RecordedRequest recorded = read().request(read().entries().at(0)).value();
    recorded.key.digest = base::sha256(std::string_view("hostile"));
    recorded.tree = std::move(tree);
    return recorded;
  }
};

TEST_F(RequestRecordTest, HasEachRequestOnceForEachApi) {
  RecordWriter one(path_);
  RecordWriter two(path_);
  EXPECT_TRUE(one.add(request(1), "cuda", std::chrono::milliseconds(7)).value());
  EXPECT_FALSE(one.add(request(1), "cuda", {}).value());
  EXPECT_FALSE(two.add(request(1), "cuda", {}).value());
  EXPECT_TRUE(two.add(request(1), "hip", {}).value());
  EXPECT_TRUE(one.add(request(2), "cuda", {}).value());
  const auto record = read();
  EXPECT_EQ(names(record), (std::vector<std::string>{"program_1", "program_1", "program_2"}));
  const auto& entry = record.entries()[0];
  EXPECT_EQ(entry.key.digest, request(1).key().digest);
  EXPECT_EQ(entry.api, "cuda");
  EXPECT_EQ(entry.language, Language::opencl);
  EXPECT_EQ(entry.compile_time, std::chrono::milliseconds(7));
  EXPECT_EQ(entry.source_bytes, request(1).source().size());
  EXPECT_EQ(record.entries()[1].api, "hip");
  EXPECT_EQ(record.damaged(), 0U);
}

TEST_F(RequestRecordTest, HasEachFileOnce) {
  std::mt19937 random(7);
  std::string noise;
  for (int i = 0; i < 20'000; ++i) noise += static_cast<char>('a' + random() % 26);
  write("lib/big.h", "/* " + noise + " */\n");
  RecordWriter writer(path_);
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(writer
                    .add(Request({.name = fakes::numbered("program", i),
                                  .source = "#include <big.h>\n",
                                  .language = Language::opencl,
                                  .include_folders = {files_ / "lib"}}),
                         "api", {})
                    .value());
  EXPECT_LT(fs::file_size(path_), 2 * noise.size());
  EXPECT_EQ(read().entries().size(), 10U);
}

TEST_F(RequestRecordTest, IsReadFromAPartOfAFile) {
  add(1);
  add(2);
  const std::string record = fakes::read_file(path_);
  const auto larger = folder_.path() / "larger";
  fakes::write_file(larger, "before" + record + record + "behind");
  const auto read_part = [&larger](std::uint64_t offset, std::uint64_t size) {
    return RequestRecord::read_part(base::FileHandle(::open(larger.c_str(), O_RDONLY | O_CLOEXEC)), larger, offset,
                                    size);
  };
  const auto part = read_part(6, record.size());
  ASSERT_TRUE(part) << part.error().message();
  EXPECT_EQ(names(*part), (std::vector<std::string>{"program_1", "program_2"}));
  EXPECT_EQ(part->damaged(), 0U) << "what follows is not looked at";
  for (const auto& entry : part->entries()) {
    const auto request = part->request(entry);
    ASSERT_TRUE(request) << request.error().message();
    EXPECT_TRUE(part->contents(request->source));
  }
  RecordWriter writer(folder_.path() / "copy");
  EXPECT_TRUE(writer.add(*part, part->entries()[1]).value());
  EXPECT_EQ(names(read_part(6, record.size() - 1).value()), std::vector<std::string>{"program_1"});
  const auto none = read_part(5, record.size());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message(), "the requests in " + larger.string() +
                                        " cannot be used: it is not a record of "
                                        "requests");
}

TEST_F(RequestRecordTest, DoesNotHaveARequestWhoseFilesChanged) {
  write("lib/a.h", "int a;\n");
  const Request made({.name = "program",
                      .source = "#include <a.h>\n",
                      .language = Language::opencl,
                      .include_folders = {files_ / "lib"}});
  write("lib/a.h", "int other;\n");
  RecordWriter writer(path_);
  const auto added = writer.add(made, "api", {});
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code(), ErrorCode::outdated);
  EXPECT_TRUE(writer.add(request(1), "api", {}).value()) << "others are recorded";
}

TEST_F(RequestRecordTest, IsPrivate) {
  add(1);
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(RequestRecordTest, IsNotWrittenIfOthersCouldChangeIt) {
  const auto refusal = [&] {
    RecordWriter writer(path_);
    const auto added = writer.add(request(2), "api", {});
    return added ? "it was written" : added.error().message();
  };
  add(1);
  chmod(path_.c_str(), 0666);
  EXPECT_NE(refusal().find("other users can write to it"), std::string::npos) << refusal();
  chmod(path_.c_str(), 0600);
  const auto target = folder_.path() / "target";
  fs::rename(path_, target);
  fs::create_symlink(target, path_);
  EXPECT_NE(refusal().find("symbolic link"), std::string::npos) << refusal();
  fs::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("not a regular file"), std::string::npos) << refusal();
  EXPECT_FALSE(RequestRecord::read(path_));
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_NE(refusal().find("cannot write"), std::string::npos) << refusal();
  fs::remove(path_);
  if (!fakes::is_root()) return;
  add(1);
  ASSERT_EQ(chown(path_.c_str(), fakes::other_user, fakes::other_user), 0);
  EXPECT_NE(refusal().find("belongs to another user"), std::string::npos) << refusal();
}

TEST_F(RequestRecordTest, IsNotWrittenInAFolderWithoutTheRight) {
  fs::create_directory(folder_.path() / "closed");
  const auto in_child = [&]() -> std::string {
    chmod((folder_.path() / "closed").c_str(), 0500);
    RecordWriter writer(folder_.path() / "closed" / "app.kilnreq");
    const auto added = writer.add(request(1), "api", {});
    return added ? "written" : added.error().message();
  };
  const auto said = fakes::in_ordinary_child(folder_.path(), in_child);
  EXPECT_NE(said.find("Permission denied"), std::string::npos) << said;
}

TEST_F(RequestRecordTest, IsLeftAloneIfItIsAnotherFile) {
  for (const std::string& text : {std::string("KILNREX"), std::string("a text of another program"),
                                  std::string("KILNREQ\n\x02\0\0\0\0\0\0\0", 16), std::string("\0", 1)}) {
    fakes::write_file(path_, text);
    chmod(path_.c_str(), 0600);
    RecordWriter writer(path_);
    const auto added = writer.add(request(1), "api", {});
    ASSERT_FALSE(added) << text;
    EXPECT_EQ(added.error().code(), ErrorCode::unsupported);
    EXPECT_NE(added.error().message().find(path_.string()), std::string::npos);
    EXPECT_EQ(fakes::read_file(path_), text);
    const auto record = RequestRecord::read(path_);
    ASSERT_FALSE(record) << text;
    EXPECT_EQ(record.error().code(), ErrorCode::unsupported);
  }
  EXPECT_EQ(RequestRecord::read(folder_.path() / "absent").error().code(), ErrorCode::io);
}

TEST_F(RequestRecordTest, IsWrittenAgainAfterItWasRemoved) {
  RecordWriter writer(path_);
  EXPECT_TRUE(writer.add(request(1), "api", {}).value());
  EXPECT_TRUE(writer.add(request(2), "api", {}).value());
  fs::remove(path_);
  EXPECT_TRUE(writer.add(request(1), "api", {}).value());
  EXPECT_EQ(names(read()), (std::vector<std::string>{"program_1"}));
}

TEST_F(RequestRecordTest, IsReadAgainAfterItWasReplacedByALongerOne) {
  const auto longer_path = folder_.path() / "longer.kilnreq";
  for (int i = 3; i < 10; ++i) EXPECT_TRUE(RecordWriter(longer_path).add(request(i), "api", {}).value());
  const std::string longer = fakes::read_file(longer_path);
  for (const bool in_place : {true, false}) {
    fs::remove(path_);
    RecordWriter writer(path_);
    EXPECT_TRUE(writer.add(request(1), "api", {}).value());
    EXPECT_TRUE(writer.add(request(2), "api", {}).value());
    EXPECT_FALSE(writer.add(request(1), "api", {}).value());
    ASSERT_LT(fs::file_size(path_), longer.size());
    if (!in_place) fs::remove(path_);
    fakes::write_file(path_, longer);
    chmod(path_.c_str(), 0600);
    EXPECT_FALSE(writer.add(request(3), "api", {}).value());
    EXPECT_TRUE(writer.add(request(1), "api", {}).value());
    const auto record = read();
    EXPECT_EQ(record.entries().size(), 8U);
    EXPECT_EQ(record.damaged(), 0U);
    EXPECT_EQ(record.entries().back().key.name, "program_1");
    for (const auto& entry : record.entries())
      EXPECT_TRUE(record.contents(record.request(entry).value().source)) << entry.key.name;
  }
}

TEST_F(RequestRecordTest, IsReadableAtEveryLengthAndWriteableAfterIt) {
  add(1);
  const std::size_t first = fs::file_size(path_);
  add(2);
  const std::string whole = fakes::read_file(path_);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    fakes::write_file(path_, whole.substr(0, size));
    chmod(path_.c_str(), 0600);
    const auto record = RequestRecord::read(path_);
    ASSERT_TRUE(record) << size << record.error().message();
    EXPECT_EQ(record->entries().size(), size < first ? 0U : 1U) << size;
    EXPECT_EQ(record->damaged(), 0U) << size;
    add(2);
    const auto again = read();
    ASSERT_EQ(again.entries().size(), size < first ? 1U : 2U) << size;
    EXPECT_TRUE(again.unpack(again.entries().back(), folder_.path() / std::to_string(size)));
    EXPECT_TRUE(size < first || fakes::read_file(path_) == whole) << size;
  }
}

TEST_F(RequestRecordTest, LosesOnlyTheItemWhoseBitsAreFlipped) {
  add(1);
  const std::size_t first = fs::file_size(path_);
  add(2);
  const std::size_t second = fs::file_size(path_);
  add(3);
  const std::string whole = fakes::read_file(path_);
  for (std::size_t place = record_begin_bytes; place < whole.size(); ++place) {
    const std::string hit = place < first ? "program_1" : place < second ? "program_2" : "program_3";
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[place] = static_cast<char>(changed[place] ^ (1 << bit));
      fakes::write_file(path_, changed);
      const auto record = RequestRecord::read(path_);
      ASSERT_TRUE(record) << place;
      for (const auto& entry : record->entries()) {
        if (entry.key.name == hit) continue;
        const auto details = record->request(entry);
        ASSERT_TRUE(details && record->contents(details->source)) << entry.key.name << " at " << place;
      }
      EXPECT_GE(record->entries().size(), 2U) << place;
    }
  }
}

TEST_F(RequestRecordTest, CountsWhatIsDamagedAndIsWrittenOn) {
  add(1);
  const std::size_t first = fs::file_size(path_);
  add(2);
  std::string text = fakes::read_file(path_);
  for (std::size_t i = record_begin_bytes; i < first; ++i) text[i] = '\0';
  fakes::write_file(path_, text);
  EXPECT_EQ(read().damaged(), 1U);
  EXPECT_EQ(names(read()), std::vector<std::string>{"program_2"});
  EXPECT_TRUE(add(1));
  EXPECT_FALSE(add(2));
  EXPECT_EQ(names(read()), (std::vector<std::string>{"program_2", "program_1"}));
}

TEST_F(RequestRecordTest, GetsDamagedItemsAgainWithTheNextRequestThatNeedsThem) {
  write("lib/a.h", "int a;\n");
  const auto with_file = [&](int number) {
    return Request({.name = fakes::numbered("program", number),
                    .source = "#include <a.h>\nint x" + std::to_string(number) + ";\n",
                    .language = Language::opencl,
                    .include_folders = {files_ / "lib"}});
  };
  RecordWriter open_before(path_);
  EXPECT_TRUE(open_before.add(with_file(1), "api", {}).value());
  std::string text = fakes::read_file(path_);
  {
    const base::FileHandle file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    ItemFinder finder(file, record_begin_bytes);
    for (std::optional<Item> item; (item = finder.next().value());)
      text[item->end() - 1] = static_cast<char>(text[item->end() - 1] ^ 1);
  }
  for (const bool is_new : {true, false}) {
    fakes::write_file(path_, text);
    RecordWriter opened_now(path_);
    RecordWriter& writer = is_new ? opened_now : open_before;
    EXPECT_TRUE(writer.add(with_file(2), "api", {}).value());
    EXPECT_FALSE(writer.add(with_file(2), "api", {}).value());
    EXPECT_TRUE(writer.add(with_file(1), "api", {}).value());
    const auto record = read();
    EXPECT_EQ(names(record), (std::vector<std::string>{"program_2", "program_1"}));
    for (const auto& entry : record.entries()) {
      const auto place = folder_.path() / "unpacked" / std::to_string(is_new) / entry.key.name;
      EXPECT_EQ(record.rebuild(entry, place).value().difference, "");
    }
  }
}

TEST_F(RequestRecordTest, SkipsItemsOfLaterVersions) {
  add(1);
  append(pack_item(static_cast<ItemKind>(77), {}, fakes::bytes_of("what is this?")));
  EXPECT_TRUE(add(2));
  EXPECT_EQ(read().entries().size(), 2U);
  EXPECT_EQ(read().damaged(), 0U);
}

TEST_F(RequestRecordTest, DoesNotBelieveSizes) {
  add(1);
  const std::string whole = fakes::read_file(path_);
  const auto with_sizes = [&](std::uint64_t packed, std::uint64_t bytes, std::string_view contents) {
    base::ByteWriter writer;
    writer.raw(std::as_bytes(std::span("KILNITEM", 8)));
    writer.number(std::uint32_t{1});
    writer.number(std::uint32_t{0});
    writer.number(packed);
    writer.number(bytes);
    writer.raw(Digest().bytes);
    writer.raw(base::sha256(contents).bytes);
    writer.number(base::sha256(std::span(writer.bytes())).word(0));
    return fakes::text_of(writer.bytes()) + std::string(contents);
  };
  const std::uint64_t huge = 10'000'000'000;
  for (const auto& [packed, bytes] :
       {std::pair(huge, huge), std::pair(~std::uint64_t{0}, std::uint64_t{1}), std::pair(std::uint64_t{4}, huge),
        std::pair(std::uint64_t{4}, std::uint64_t{200} << 20)}) {
    fakes::write_file(path_, whole + with_sizes(packed, bytes, "none"));
    const auto record = read();
    EXPECT_EQ(record.entries().size(), 1U);
    EXPECT_FALSE(record.contents(Digest()));
  }
}

TEST_F(RequestRecordTest, DoesNotReadRequestsThatAreTooLarge) {
  add(1);
  RecordedRequest large = with_tree({});
  large.options = {std::string(max_request_bytes, ' ')};
  append(item(large));
  EXPECT_EQ(read().entries().size(), 1U);
  EXPECT_EQ(read().damaged(), 1U);
}

TEST_F(RequestRecordTest, IsNotReadNorWrittenIfItHasTooManyDamagedItems) {
  add(1);
  std::string text = fakes::read_file(path_);
  for (std::size_t i = 0; i < ItemFinder::max_damaged + 20; ++i) text += "KILNITEM";
  text += std::string(item_header_bytes, ' ');
  fakes::write_file(path_, text);
  const auto record = RequestRecord::read(path_);
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code(), ErrorCode::unsupported);
  EXPECT_NE(record.error().message().find("damaged items"), std::string::npos) << record.error().message();
  const auto added = RecordWriter(path_).add(request(2), "api", {});
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code(), ErrorCode::unsupported);
  EXPECT_EQ(fakes::read_file(path_), text);
}

TEST_F(RequestRecordTest, DoesNotUnpackTooManyFiles) {
  add(1);
  append(item(with_tree({.folders = std::vector<std::string>(500'000)})));
  const auto record = read();
  const auto unpacked = record.unpack(record.entries().at(1), folder_.path() / "a");
  ASSERT_FALSE(unpacked);
  EXPECT_EQ(unpacked.error().code(), ErrorCode::damaged);
  EXPECT_FALSE(fs::exists(folder_.path() / "a"));
}

TEST_F(RequestRecordTest, DoesNotUnpackFilesOutsideOfTheFolder) {
  add(1);
  const std::string clean = fakes::read_file(path_);
  const auto recorded = read().request(read().entries().at(0)).value();
  const auto folder = folder_.path() / "a" / "b";
  const auto try_tree = [&](const FileTree& tree) {
    fakes::write_file(path_, clean);
    append(item(with_tree(tree)));
    fs::remove_all(folder_.path() / "a");
    const auto record = read();
    const auto unpacked = record.unpack(record.entries().at(1), folder);
    EXPECT_FALSE(unpacked);
    return unpacked ? ErrorCode::cancelled : unpacked.error().code();
  };
  for (const std::string& path :
       {std::string("../x"), std::string("/tmp/kiln-hostile-x"), std::string("c/../../x"), std::string(),
        std::string("c//x"), std::string("./x"), std::string("x\0y", 3), std::string("x/"), std::string("..")}) {
    EXPECT_EQ(try_tree({.files = {{.path = path, .digest = recorded.source}}}), ErrorCode::damaged) << path;
    EXPECT_EQ(try_tree({.links = {{path, "c"}}}), ErrorCode::damaged) << path;
    if (path.empty()) continue;
    EXPECT_EQ(try_tree({.folders = {path}}), ErrorCode::damaged) << path;
    EXPECT_EQ(try_tree({.links = {{"c", path}}}), ErrorCode::damaged) << path;
    EXPECT_EQ(try_tree({.include_folders = {{.path = path}}}), ErrorCode::damaged) << path;
    EXPECT_EQ(try_tree({.working_folder = path}), ErrorCode::damaged) << path;
  }
  // A link in the place of a folder.
  EXPECT_EQ(try_tree({.files = {{.path = "c/x", .digest = recorded.source}}, .links = {{"c", "d"}}}),
            ErrorCode::io);
  EXPECT_FALSE(fs::exists(folder_.path() / "x") || fs::exists("/tmp/kiln-hostile-x"));
}

TEST_F(RequestRecordTest, DoesNotTakeARequestUnderAnotherKey) {
  add(1);
  RecordedRequest recorded = read().request(read().entries().at(0)).value();
  recorded.key.digest = {};
  append(pack_item(ItemKind::request, base::sha256(std::string_view("x")), recorded.to_bytes()));
  EXPECT_EQ(read().entries().size(), 1U);
  EXPECT_EQ(read().damaged(), 1U);
}

TEST_F(RequestRecordTest, MergesOthers) {
  add(1);
  add(2);
  const auto other_path = folder_.path() / "other.kilnreq";
  write("lib/a.h", "#include \"b.h\"\n");
  write("lib/b.h", "int b;\n");
  const Request with_files({.name = "files",
                            .source = "#include <a.h>\n",
                            .language = Language::opencl,
                            .include_folders = {files_ / "lib"}});
  RecordWriter other(other_path);
  EXPECT_TRUE(other.add(request(2), "api", {}).value());
  EXPECT_TRUE(other.add(with_files, "api", {}).value());
  fs::remove_all(files_);
  const auto from = RequestRecord::read(other_path).value();
  RecordWriter to(path_);
  std::size_t added = 0;
  for (const auto& entry : from.entries()) added += to.add(from, entry).value() ? 1 : 0;
  EXPECT_EQ(added, 1U);
  const auto record = read();
  EXPECT_EQ(names(record), (std::vector<std::string>{"program_1", "program_2", "files"}));
  EXPECT_EQ(record.rebuild(record.entries()[2], folder_.path() / "x").value().difference, "");
}

TEST_F(RequestRecordTest, DoesNotMergeContentsUnderAnotherId) {
  add(1);
  const RecordedRequest recorded = read().request(read().entries().at(0)).value();
  const auto hostile_path = folder_.path() / "hostile.kilnreq";
  base::ByteWriter hostile;
  hostile.raw(record_begin());
  hostile.raw(pack_item(ItemKind::file, recorded.source, fakes::bytes_of("another source")));
  hostile.raw(item(recorded));
  fakes::write_file(hostile_path, hostile.bytes());
  const auto from = RequestRecord::read(hostile_path).value();
  fs::remove(path_);
  RecordWriter writer(path_);
  const auto added = writer.add(from, from.entries().at(0));
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code(), ErrorCode::damaged);
  EXPECT_TRUE(add(1));
  EXPECT_TRUE(read().contents(recorded.source));
}

TEST_F(RequestRecordTest, IsCompleteAfterManyProcesses) {
  constexpr int processes = 8;
  constexpr int each = 50;
  std::vector<std::unique_ptr<fakes::Child>> children;
  for (int child = 0; child < processes; ++child)
    children.push_back(std::make_unique<fakes::Child>([&, child](const auto& report) {
      RecordWriter writer(path_);
      // A half is of this process alone, the other one of all.
      for (int i = 0; i < each; ++i)
        if (!writer.add(request(i % 2 == 0 ? i : 1000 * child + i), "api", {})) return report("failed");
      report("done");
    }));
  for (const auto& child : children) EXPECT_EQ(child->report(), "done");
  const auto record = read();
  EXPECT_EQ(record.damaged(), 0U);
  EXPECT_EQ(record.entries().size(), static_cast<std::size_t>(each / 2 + processes * each / 2));
  std::set<Digest> keys;
  for (const auto& entry : record.entries()) {
    keys.insert(entry.key.digest);
    EXPECT_TRUE(record.contents(record.request(entry).value().source));
  }
  EXPECT_EQ(keys.size(), record.entries().size());
}

TEST_F(RequestRecordTest, HasWhatWritersWroteBeforeTheyWereKilled) {
  std::mt19937 random(11);
  std::set<std::string> written;
  for (int round = 0; round < 10; ++round) {
    std::vector<std::unique_ptr<fakes::Child>> children;
    for (int child = 0; child < 3; ++child)
      children.push_back(std::make_unique<fakes::Child>([&, child](const auto& report) {
        RecordWriter writer(path_);
        for (int i = 0;; ++i) {
          const Request made = request(round * 100'000 + child * 10'000 + i);
          if (writer.add(made, "api", {})) report(made.name());
        }
      }));
    for (const auto& child : children)
      for (int reports = static_cast<int>(random() % 10); reports >= 0; --reports) written.insert(child->report());
    for (const auto& child : children) child->kill();
  }
  const auto record = read();
  EXPECT_EQ(record.damaged(), 0U);
  std::set<std::string> recorded;
  for (const auto& entry : record.entries()) {
    EXPECT_TRUE(record.contents(record.request(entry).value().source));
    EXPECT_TRUE(recorded.insert(entry.key.name).second) << entry.key.name << " is there twice";
  }
  EXPECT_TRUE(std::ranges::includes(recorded, written));
}

TEST_F(RequestRecordTest, SurvivesEveryFaultOfTheFileSystem) {
  using Fault = fakes::FaultyFileSystem::Fault;
  add(1);
  const std::string before = fakes::read_file(path_);
  std::size_t failures = 0;
  for (const auto& [fault, error] :
       {std::pair(Fault::fails, ENOSPC), std::pair(Fault::fails, EIO), std::pair(Fault::is_short, 0)})
    for (std::uint64_t at = 0;; ++at) {
      fakes::write_file(path_, before);
      fakes::FaultyFileSystem system({.at = at, .fault = fault, .error = error});
      RecordWriter writer(path_, system);
      const auto added = writer.add(request(2), "api", {});
      failures += added ? 0 : 1;
      EXPECT_TRUE(fakes::read_file(path_).starts_with(before)) << at;
      EXPECT_EQ(read().damaged(), 0U);
      EXPECT_EQ(read().entries().size(), added ? 2U : 1U) << at;
      // What a failed write left does not matter to the next one.
      EXPECT_EQ(add(2), !added) << at;
      EXPECT_FALSE(add(1)) << at;
      EXPECT_EQ(names(read()), (std::vector<std::string>{"program_1", "program_2"})) << at;
      EXPECT_EQ(read().damaged(), 0U);
      if (!system.went_wrong()) break;
    }
  EXPECT_GT(failures, 4U);
}

TEST_F(RequestRecordTest, IsWholeAfterAKillBetweenAnyTwoCalls) {
  using Fault = fakes::FaultyFileSystem::Fault;
  for (const Fault fault : {Fault::kills, Fault::kills_after})
    for (std::uint64_t at = 0;; ++at) {
      fs::remove(path_);
      const auto end = fakes::in_child([&]() -> std::string {
        fakes::FaultyFileSystem system({.at = at, .fault = fault});
        RecordWriter writer(path_, system);
        return writer.add(request(1), "api", {}) && writer.add(request(2), "api", {}) ? "done" : "failed";
      });
      EXPECT_TRUE(add(3));
      EXPECT_EQ(read().damaged(), 0U) << at;
      EXPECT_EQ(read().entries().back().key.name, "program_3");
      if (end == "done") break;
    }
}

TEST_F(RequestRecordTest, IsNotWaitedForForeverIfItIsLocked) {
  add(1);
  const base::FileHandle file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  const auto lock = base::FileLock::acquire(file, 0, {});
  ASSERT_TRUE(lock);
  RecordWriter writer(path_, base::FileSystem::system(), std::chrono::milliseconds(20));
  const auto added = writer.add(request(2), "api", {});
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code(), ErrorCode::timed_out);
  EXPECT_EQ(read().entries().size(), 1U) << "readers take no lock";
}

TEST_F(RequestRecordTest, MayBeReadWhileItIsWritten) {
  std::atomic<bool> is_done = false;
  std::thread writer([&] {
    RecordWriter one(path_);
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(one.add(request(i), "api", {}));
    is_done = true;
  });
  std::size_t before = 0;
  while (!is_done) {
    const auto record = RequestRecord::read(path_);
    if (!record) continue;
    EXPECT_EQ(record->damaged(), 0U);
    EXPECT_GE(record->entries().size(), before);
    before = record->entries().size();
  }
  writer.join();
  EXPECT_EQ(read().entries().size(), 200U);
}

}  // namespace
}  // namespace kiln::key
