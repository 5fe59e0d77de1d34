#include "store/directory.hpp"

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/samples.hpp"

namespace kiln::store {
namespace {

class Directory : public testing::Test {
 protected:
  const std::filesystem::path& root() const { return root_.path(); }
  std::filesystem::path manifest() const { return store_->path() / manifest_name; }
  std::string entry_name() const { return entry_file_name(conv_); }

  /// The one device folder of the directory.
  DeviceFolder device() const {
    auto folders = device_folders(root()).value();
    EXPECT_EQ(folders.size(), 1U);
    return folders.empty() ? DeviceFolder{} : folders.front();
  }

  fakes::TemporaryFolder root_;
  std::unique_ptr<SampleStore> store_ = open_store(root_.path());
  const Key conv_ = sample_key("conv");
};

TEST(EntryFileName, HoldsTheNameAndTheWholeDigest) {
  const Key key = sample_key("conv 3x3");
  EXPECT_EQ(entry_file_name(key), "conv_3x3-" + key.digest.hex() + ".bin");
  EXPECT_EQ(meta_file_name(entry_file_name(key)), "conv_3x3-" + key.digest.hex() + ".meta");
}

TEST(EntryFileName, GivesTheKeyBack) {
  for (const std::string& name : {std::string("conv"), std::string(), std::string("a-b-c"), std::string("../x"),
                                  std::string(300, 'n'), std::string("_"), std::string("x.bin")}) {
    const Key key = sample_key(name);
    const auto found = key_of_file(entry_file_name(key));
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->digest, key.digest);
    EXPECT_EQ(entry_file_name(*found), entry_file_name(key)) << "the name of the file names the file";
    EXPECT_LE(entry_file_name(key).size(), 255U) << "file systems take no more";
  }
}

TEST(EntryFileName, IsNoOtherFilesName) {
  const std::string digits = base::sha256("x").hex();
  for (const std::string& name :
       {std::string(), std::string(".bin"), digits + ".bin", std::string(1, '-') + digits + ".bin", "x-" + digits,
        "x-" + digits + ".meta", "x-" + digits + ".bin~", "x_" + digits + ".bin", "x-" + digits.substr(1) + ".bin",
        "x-" + std::string(64, 'G') + ".bin", std::string("manifest.json"), std::string(".tmp-1-2-3")})
    EXPECT_FALSE(key_of_file(name)) << name;
}

TEST_F(Directory, ThatIsMissingOrEmptyHasNoDevices) {
  EXPECT_TRUE(device_folders(root())->empty());
  EXPECT_TRUE(device_folders(root() / "missing")->empty());
  EXPECT_TRUE(device_folders("")->empty());
}

TEST_F(Directory, ThatIsAFileIsAnError) {
  fakes::write_file(root() / "file", "x");
  EXPECT_FALSE(device_folders(root() / "file").ok());
}

TEST_F(Directory, ThatCannotBeReachedIsAnError) {
  fakes::write_file(root() / "file", "x");
  const auto below = device_folders(root() / "file" / "cache");
  ASSERT_FALSE(below.ok());
  EXPECT_EQ(below.error().message(),
            "cannot examine " + (root() / "file" / "cache").string() + ": Not a directory");
  EXPECT_FALSE(device_folders(root() / std::string(300, 'n')).ok());
}

/// One in which files can be listed and not looked at, as in a folder without the permission to search it.
class Unsearchable final : public base::FileSystem {
 public:
  int status(int file, struct stat* status) const override { return FileSystem::status(file, status); }
  int status(int, const char*, struct stat*) const override { return errno = EACCES, -1; }
};

TEST_F(Directory, WhoseFoldersCannotBeExaminedIsAnError) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("x")));
  const auto folders = device_folders(root(), Unsearchable());
  ASSERT_FALSE(folders.ok());
  EXPECT_EQ(folders.error().message(), "cannot examine " + store_->path().string() + ": Permission denied");
}

TEST_F(Directory, ListsItsDevicesByNameWithTheirIdentities) {
  std::vector<std::string> expected;
  for (const int number : {2, 0, 1}) {
    ASSERT_TRUE(open_store(root(), sample_identity(number))->put(conv_, sample_entry("x")));
    expected.push_back(sample_identity(number).folder());
  }
  std::sort(expected.begin(), expected.end());
  const auto folders = device_folders(root());
  ASSERT_TRUE(folders);
  ASSERT_EQ(folders->size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*folders)[i].path, root() / expected[i]);
    ASSERT_TRUE((*folders)[i].identity);
    EXPECT_EQ((*folders)[i].identity->folder(), expected[i]);
  }
}

TEST_F(Directory, ManifestHoldsTheIdentityAndNothingThatGrows) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("x")));
  ASSERT_TRUE(store_->save_notes());
  EXPECT_EQ(device().identity, sample_identity());
  const auto json = nlohmann::json::parse(fakes::read_file(manifest()));
  EXPECT_EQ(json.at("version"), 2);
  EXPECT_EQ(json.at("identity").at("digest"), sample_identity().digest().hex());
  EXPECT_EQ(json.at("identity").at("target_digest"), sample_identity().target_digest().hex());
  EXPECT_EQ(json.size(), 2U);
}

TEST_F(Directory, AManifestThatIsMissingOrWrongDoesNoHarmAndIsWrittenAnew) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("x")));
  const std::string good = fakes::read_file(manifest());
  std::string other = good;
  other.replace(other.find("device_0"), 8, "device_9");
  for (const std::string& text :
       {std::string(), std::string("garbage"), good.substr(0, good.size() / 2), std::string("[]"),
        std::string("{}"), std::string(R"({"identity": 5})"), std::string(R"({"identity": {"api": 1}})"),
        std::string(100'000, '['), std::string(1'000'000, '{'), std::string("{\"identity\":").append(100'000, '['),
        std::string("\xff\0\xfe", 3), other}) {
    fakes::write_file(manifest(), text);
    EXPECT_FALSE(device().identity);
    EXPECT_EQ(answer(*open_store(root()), conv_), "x");
    ASSERT_TRUE(store_->save_notes());
    EXPECT_EQ(device().identity, sample_identity());
  }
  std::filesystem::remove(manifest());
  EXPECT_FALSE(device().identity);
  EXPECT_EQ(stored_files(store_->path())->size(), 1U);
}

TEST_F(Directory, AManifestWithFormatsThatAreNoWholeNumbersIsWrong) {
  const auto identity_with = [](const std::string& formats) {
    auto manifest = manifest_of(sample_identity());
    manifest["identity"]["formats"] = nlohmann::ordered_json::parse(formats);
    return identity_in(manifest);
  };
  for (const std::string formats : {"[1e300]", "[-1]", "[1.5]", "[4294967296]", "[true]", "7", "{\"a\": 7}"})
    EXPECT_FALSE(identity_with(formats)) << formats;
  EXPECT_EQ(identity_with("[7]"), sample_identity());
}

TEST_F(Directory, AManifestOfATerabyteOrAFifoDoesNoHarm) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("x")));
  if (truncate(manifest().c_str(), off_t{1} << 40) == 0) {
    EXPECT_FALSE(device().identity);
  }
  std::filesystem::remove(manifest());
  ASSERT_EQ(mkfifo(manifest().c_str(), 0600), 0);
  EXPECT_FALSE(device().identity);
  EXPECT_EQ(answer(*open_store(root()), conv_), "x");
}

TEST_F(Directory, AnIdentityThatIsNoUtf8IsStillKept) {
  Identity strange = sample_identity();
  strange.vendor = "\xff\xfe";
  const auto store = open_store(root(), strange);
  ASSERT_TRUE(store->put(conv_, sample_entry("x")));
  ASSERT_TRUE(store->save_notes());
  EXPECT_EQ(answer(*open_store(root(), strange), conv_), "x");
  EXPECT_FALSE(device().identity) << "JSON cannot hold it, and half of it would be another's";
}

TEST_F(Directory, StrangeIdentitiesStayInsideTheDirectory) {
  const auto above = fakes::names_in(root().parent_path());
  for (const std::string& text : {std::string(), std::string(".."), std::string("../../x"), std::string("/etc"),
                                  std::string("a\0b", 3), std::string("\xF0\x9F\x94\xA5"), std::string(300, 'd')}) {
    Identity identity = sample_identity();
    identity.vendor = identity.device = text;
    const auto store = open_store(root(), identity);
    ASSERT_TRUE(store->put(conv_, sample_entry(text)));
    EXPECT_EQ(answer(*store, conv_), text);
    EXPECT_EQ(store->path().parent_path(), root());
    EXPECT_TRUE(std::filesystem::is_directory(store->path()));
  }
  EXPECT_EQ(device_folders(root())->size(), 7U);
}

TEST_F(Directory, StoredFilesAreListedByNameWithSizeAndTime) {
  for (const char* name : {"b", "a", "c"}) ASSERT_TRUE(store_->put(sample_key(name), sample_entry(name)));
  fakes::set_age(entry_path(*store_, sample_key("b")), std::chrono::hours(3));
  const auto files = stored_files(store_->path());
  ASSERT_TRUE(files);
  ASSERT_EQ(files->size(), 3U);
  const char* names[] = {"a", "b", "c"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*files)[i].key.name, names[i]);
    EXPECT_EQ((*files)[i].bytes, std::filesystem::file_size(store_->path() / (*files)[i].name));
    const auto age = std::chrono::system_clock::now() - (*files)[i].last_use;
    EXPECT_EQ(age > std::chrono::hours(2), i == 1);
  }
  EXPECT_FALSE(stored_files(root() / "missing").ok());
}

TEST_F(Directory, AnEntryIsReadAndCheckedAgainstItsNameAndItsFolder) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("x")));
  const auto found = read_entry(store_->path(), entry_name());
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->label.key, conv_.digest);
  EXPECT_EQ(fakes::text_of(found->entry.binary()->bytes), "x");

  const auto code = [](const std::filesystem::path& folder, const std::string& name) {
    const auto entry = read_entry(folder, name);
    return entry ? ErrorCode::invalid_request : entry.error().code();
  };
  const std::string wrong_name = entry_file_name(sample_key("gemm"));
  std::filesystem::copy_file(store_->path() / entry_name(), store_->path() / wrong_name);
  EXPECT_EQ(code(store_->path(), wrong_name), ErrorCode::damaged);
  std::filesystem::copy_file(store_->path() / entry_name(), store_->path() / "x.bin");
  EXPECT_EQ(code(store_->path(), "x.bin"), ErrorCode::damaged);
  const auto other = root() / sample_identity(1).folder();
  std::filesystem::copy(store_->path(), other);
  EXPECT_EQ(code(other, entry_name()), ErrorCode::damaged);
  EXPECT_EQ(code(store_->path(), entry_file_name(sample_key("missing"))), ErrorCode::io);
  fakes::write_file(store_->path() / entry_name(), "garbage");
  EXPECT_EQ(code(store_->path(), entry_name()), ErrorCode::damaged);
}

}  // namespace
}  // namespace kiln::store
