#pragma once

#include <cstddef>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "bake/part_folder.hpp"
#include "bake/working_folder.hpp"
#include "base/mutex.hpp"
#include "key/record_writer.hpp"
#include "key/request_record.hpp"

namespace kiln::baking {

/// The requests of several records, each once. Their files are unpacked while they are used.
class RecordedPrograms {
 public:
  /// Fails as RequestRecord::read() does.
  static Result<std::unique_ptr<RecordedPrograms>> read(const std::vector<std::filesystem::path>& paths);

  /// Sorted by API and key, so that their order in the records does not matter.
  std::size_t size() const noexcept { return programs_.size(); }
  const key::RequestRecord::Entry& operator[](std::size_t program) const noexcept {
    return programs_[program].entry;
  }
  const std::vector<key::RequestRecord>& records() const noexcept { return records_; }
  /// What a compiler is expected to need, in any unit: the recorded time, else in proportion to the source.
  double cost(std::size_t program) const;
  /// Their APIs and numbers, as in "opencl (3), vulkan (12)".
  std::string apis() const;
  /// Without the files.
  Result<key::RecordedRequest> request(std::size_t program) const;
  /// Adds the program to a record; fails as RecordWriter::add() does.
  Result<void> copy(std::size_t program, key::RecordWriter& to) const;

  /// Announces a Use. Not thread-safe.
  void add_user(std::size_t program) { ++programs_[program].users; }

  /// A request with its files, for the thread that compiles it. The first user unpacks the files, and the last one
  /// removes them. For OpenCL, the thread is in the right working folder meanwhile.
  class Use {
   public:
    Use(RecordedPrograms& of, std::size_t program, const PartFolder& part, const WorkingFolder& working_folder);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    /// Fails if this machine cannot make the recorded request.
    const Result<Request>& request() const noexcept { return *request_; }
    /// Request::describe_files(), and an error of the compiler, with relative paths of the unpacked files.
    std::string describe_files() const;
    Error with_relative_paths(const Error& error) const;

   private:
    RecordedPrograms& of_;
    const std::size_t program_;
    const WorkingFolder& working_folder_;
    const std::filesystem::path folder_;
    std::optional<Result<Request>> request_;
  };

 private:
  struct Program {
    Program(const key::RequestRecord& of, const key::RequestRecord::Entry& its_entry)
        : record(of), entry(its_entry) {}

    const key::RequestRecord& record;
    const key::RequestRecord::Entry entry;
    std::size_t users = 0;
    base::Mutex mutex = {};
    /// Nothing before the first use, and after the last one.
    std::optional<Result<Request>> request KILN_GUARDED_BY(mutex) = {};
    /// Nothing if no file was found through it.
    std::optional<std::filesystem::path> working_folder KILN_GUARDED_BY(mutex) = {};
    std::size_t used KILN_GUARDED_BY(mutex) = 0;
  };

  explicit RecordedPrograms(std::vector<key::RequestRecord> records);
  /// Unpacks the files of a request, and makes it.
  static Result<Request> make(Program& program, const std::filesystem::path& folder, const PartFolder& part,
                              const WorkingFolder& working_folder) KILN_REQUIRES(program.mutex);

  const std::vector<key::RequestRecord> records_;
  std::deque<Program> programs_;
  double cost_of_byte_ = 1;
};

}  // namespace kiln::baking
