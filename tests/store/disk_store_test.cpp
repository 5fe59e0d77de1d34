#include "store/disk_store.hpp"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/samples.hpp"

namespace kiln::store {
namespace {

using namespace std::chrono_literals;

class DiskStoreTest : public testing::Test {
 protected:
  const std::filesystem::path& root() const { return root_.path(); }

  fakes::TemporaryFolder root_;
  std::unique_ptr<SampleStore> store_ = open_store(root_.path());
  const Key conv_ = sample_key("conv");
  const Key gemm_ = sample_key("gemm");
};

TEST_F(DiskStoreTest, GivesBackWhatWasPut) {
  const Entry entry = sample_entry("conv's binary");
  ASSERT_TRUE(store_->put(conv_, entry));
  const auto found = store_->get(conv_);
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->binary()->bytes, entry.binary()->bytes);
  EXPECT_EQ((*found)->binary()->format, entry.binary()->format);
  EXPECT_EQ((*found)->compile_time, entry.compile_time);
  EXPECT_EQ((*found)->created, entry.created);
  EXPECT_EQ((*found)->facts, entry.facts);
}

TEST_F(DiskStoreTest, HasNothingThatWasNotPut) {
  EXPECT_EQ(answer(*store_, conv_), "nothing");
  ASSERT_TRUE(store_->put(conv_, sample_entry("a")));
  EXPECT_EQ(answer(*store_, gemm_), "nothing");
}

TEST_F(DiskStoreTest, ReplacesAnEntryWhole) {
  ASSERT_TRUE(store_->put(conv_, sample_entry(incompressible(10'000))));
  ASSERT_TRUE(store_->put(conv_, sample_entry("second")));
  EXPECT_EQ(answer(*store_, conv_), "second");
  EXPECT_EQ(store_->list()->size(), 1U);
}

TEST_F(DiskStoreTest, KeepsEmptyAndLargeBinaries) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("")));
  EXPECT_EQ(answer(*store_, conv_), "");
  const std::string large = incompressible(5'000'000);
  ASSERT_TRUE(store_->put(gemm_, sample_entry(large)));
  EXPECT_TRUE(answer(*store_, gemm_) == large);
}

TEST_F(DiskStoreTest, FindsEverythingAgainWhenOpenedAnew) {
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(store_->put(sample_key(fakes::numbered("p", i)), sample_entry(std::to_string(i))));
  store_ = open_store(root());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(answer(*store_, sample_key(fakes::numbered("p", i))), std::to_string(i));
  EXPECT_EQ(store_->list()->size(), 20U);
}

TEST_F(DiskStoreTest, MakesItsFolderAtTheFirstPutForThisUserAlone) {
  EXPECT_FALSE(std::filesystem::exists(store_->path()));
  ASSERT_TRUE(store_->put(conv_, sample_entry("a")));
  struct stat status {};
  ASSERT_EQ(stat(store_->path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
  EXPECT_EQ(store_->path(), root() / sample_identity().folder());
}

TEST_F(DiskStoreTest, LeavesNoTemporaryFiles) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store_->put(conv_, sample_entry(std::to_string(i))));
  const std::vector<std::string> expected = {".lock", entry_file_name(conv_),
                                             meta_file_name(entry_file_name(conv_)), "manifest.json"};
  EXPECT_EQ(fakes::names_in(store_->path()), expected);
}

TEST_F(DiskStoreTest, RemovesAnEntryAndLeavesItsNeighbours) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("a")));
  ASSERT_TRUE(store_->put(gemm_, sample_entry("b")));
  ASSERT_TRUE(store_->remove(conv_));
  EXPECT_EQ(answer(*store_, conv_), "nothing");
  EXPECT_FALSE(std::filesystem::exists(meta_path(*store_, conv_)));
  EXPECT_EQ(answer(*store_, gemm_), "b");
  EXPECT_TRUE(store_->remove(conv_)) << "what is gone is gone";
}

TEST_F(DiskStoreTest, RemovesWhatItListsByTheNamesOfTheFiles) {
  const Key strange{base::sha256("strange"), "../ a strange/name "};
  ASSERT_TRUE(store_->put(strange, sample_entry("a")));
  const auto items = store_->list();
  ASSERT_TRUE(items);
  ASSERT_EQ(items->size(), 1U);
  EXPECT_EQ(items->front().key.digest, strange.digest);
  EXPECT_EQ(answer(*store_, items->front().key), "a");
  ASSERT_TRUE(store_->remove(items->front().key));
  EXPECT_EQ(answer(*store_, strange), "nothing");
}

TEST_F(DiskStoreTest, ListsSizesAndTimesOfLastUse) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("a")));
  fakes::set_age(entry_path(*store_, conv_), 2h);
  const auto items = store_->list();
  ASSERT_TRUE(items);
  ASSERT_EQ(items->size(), 1U);
  EXPECT_EQ(items->front().key.name, "conv");
  EXPECT_EQ(items->front().stored_bytes, std::filesystem::file_size(entry_path(*store_, conv_)));
  const auto age = std::chrono::system_clock::now() - items->front().last_use;
  EXPECT_TRUE(age > 119min && age < 180min);
}

TEST_F(DiskStoreTest, ListsNothingBeforeTheFirstPutAndNothingButEntries) {
  EXPECT_TRUE(store_->list()->empty());
  ASSERT_TRUE(store_->put(conv_, sample_entry("a")));
  fakes::write_file(store_->path() / "notes.txt", "mine");
  fakes::write_file(store_->path() / "conv.bin", "short");
  fakes::write_file(store_->path() / ("conv-" + std::string(64, 'x') + ".bin"), "not hexadecimal");
  EXPECT_EQ(store_->list()->size(), 1U);
}

TEST_F(DiskStoreTest, KeepsEveryNameInsideItsFolder) {
  const std::vector<std::string> names = {"",
                                          ".",
                                          "..",
                                          "../../x",
                                          "/etc/passwd",
                                          "a/b/c",
                                          "-rf",
                                          "a\nb",
                                          std::string("a\0b", 3),
                                          "\xF0\x9F\x94\xA5",
                                          "\xff\xfe",
                                          ".tmp-1-2-3",
                                          ".lock",
                                          "manifest.json",
                                          std::string(300, 'n'),
                                          std::string(4096, '/')};
  const auto before = fakes::names_in(root());
  for (const std::string& name : names) {
    ASSERT_TRUE(store_->put(sample_key(name), sample_entry(name))) << name;
    EXPECT_EQ(answer(*store_, sample_key(name)), name);
  }
  EXPECT_EQ(store_->list()->size(), names.size());
  std::size_t files = 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(root())) {
    if (!item.is_regular_file()) continue;
    EXPECT_EQ(item.path().parent_path(), store_->path());
    ++files;
  }
  // Two files an entry, the lock and the manifest.
  EXPECT_EQ(files, 2 * names.size() + 2);
  auto after = fakes::names_in(root());
  std::erase(after, store_->path().filename().string());
  EXPECT_EQ(after, before);
}

TEST_F(DiskStoreTest, KeepsEqualFileNamesApartByTheirDigests) {
  const Key slash = sample_key("a/b");
  const Key colon = sample_key("a:b");
  ASSERT_TRUE(store_->put(slash, sample_entry("slash")));
  ASSERT_TRUE(store_->put(colon, sample_entry("colon")));
  EXPECT_EQ(answer(*store_, slash), "slash");
  EXPECT_EQ(answer(*store_, colon), "colon");
}

TEST_F(DiskStoreTest, KeepsIdentitiesApart) {
  const auto other = open_store(root(), sample_identity(1));
  ASSERT_TRUE(store_->put(conv_, sample_entry("mine")));
  ASSERT_TRUE(other->put(conv_, sample_entry("other's")));
  EXPECT_EQ(answer(*store_, conv_), "mine");
  EXPECT_EQ(answer(*other, conv_), "other's");
}

TEST_F(DiskStoreTest, MetaMirrorsTheEntryForPeople) {
  Entry entry = sample_entry("binary");
  entry.facts = R"({"name":"conv","options":["-O2"]})";
  ASSERT_TRUE(store_->put(conv_, entry));
  const auto meta = nlohmann::json::parse(fakes::read_file(meta_path(*store_, conv_)));
  EXPECT_EQ(meta.at("name"), "conv");
  EXPECT_EQ(meta.at("options")[0], "-O2");
  EXPECT_EQ(meta.at("key"), conv_.digest.hex());
  EXPECT_EQ(meta.at("identity"), sample_identity().digest().hex());
  EXPECT_EQ(meta.at("target"), sample_identity().target_digest().hex());
  ASSERT_EQ(meta.at("parts").size(), 1U);
  EXPECT_EQ(meta.at("parts")[0].at("name"), "binary");
  EXPECT_EQ(meta.at("parts")[0].at("format"), 7);
  EXPECT_EQ(meta.at("parts")[0].at("bytes"), 6);
  EXPECT_EQ(meta.at("stored_bytes"), std::filesystem::file_size(entry_path(*store_, conv_)));
  EXPECT_DOUBLE_EQ(meta.at("compile_ms").get<double>(), 123.456789);
  EXPECT_EQ(meta.at("created"), "2023-11-14T22:13:20Z");
}

TEST_F(DiskStoreTest, MetaIsWrittenWhateverTheFactsAre) {
  for (const std::string& facts :
       {std::string(), std::string("not json"), std::string("[1]"), std::string("\xff\0", 2)}) {
    Entry entry = sample_entry("binary");
    entry.facts = facts;
    ASSERT_TRUE(store_->put(conv_, entry));
    EXPECT_EQ(nlohmann::json::parse(fakes::read_file(meta_path(*store_, conv_))).at("key"), conv_.digest.hex());
    EXPECT_EQ((*store_->get(conv_))->facts, facts);
  }
}

TEST_F(DiskStoreTest, MetaDecidesNothing) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("a")));
  fakes::write_file(meta_path(*store_, conv_), "{\"key\": 12, \"format\": null");
  EXPECT_EQ(answer(*store_, conv_), "a");
  std::filesystem::remove(meta_path(*store_, conv_));
  EXPECT_EQ(answer(*store_, conv_), "a");
  std::filesystem::create_directory(meta_path(*store_, conv_));
  EXPECT_TRUE(store_->put(conv_, sample_entry("b")));
  EXPECT_EQ(answer(*store_, conv_), "b");
}

TEST_F(DiskStoreTest, NotesAUseAtMostOnceAnHour) {
  ASSERT_TRUE(store_->put(conv_, sample_entry("a")));
  for (const auto& [age, touched] :
       {std::pair{30min, false}, {59min, false}, {61min, true}, {60min * 24 * 30, true}}) {
    fakes::set_age(entry_path(*store_, conv_), age);
    EXPECT_EQ(answer(*store_, conv_), "a");
    EXPECT_EQ(fakes::age_of(entry_path(*store_, conv_)) < 20min, touched)
        << "get() after " << age.count() << " min";
    fakes::set_age(entry_path(*store_, conv_), age);
    EXPECT_TRUE(store_->touch(conv_));
    EXPECT_EQ(fakes::age_of(entry_path(*store_, conv_)) < 20min, touched)
        << "touch() after " << age.count() << " min";
  }
}

TEST_F(DiskStoreTest, TouchesWhatIsNotThereWithoutMakingIt) {
  EXPECT_TRUE(store_->touch(conv_));
  ASSERT_TRUE(store_->put(conv_, sample_entry("a")));
  EXPECT_TRUE(store_->touch(gemm_));
  EXPECT_EQ(store_->list()->size(), 1U);
}

TEST_F(DiskStoreTest, ServesManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 40; ++i) {
        const Key key = sample_key(fakes::numbered("p", (t + i) % 5));
        EXPECT_TRUE(store_->put(key, sample_entry(key.name)));
        const std::string found = answer(*store_, sample_key(fakes::numbered("p", i % 5)));
        EXPECT_TRUE(found == "nothing" || found == fakes::numbered("p", i % 5)) << found;
        if (i % 10 == 0) {
          EXPECT_TRUE(store_->save_notes());
          EXPECT_TRUE(store_->list());
          EXPECT_TRUE(store_->remove(key));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace kiln::store
