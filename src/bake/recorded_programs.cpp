#include "bake/recorded_programs.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/try.hpp"

namespace kiln::baking {
namespace {

using key::RequestRecord;

std::string without(std::string text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at))
    text.erase(at, part.size());
  return text;
}

Error not_here(const RequestRecord::Entry& entry, std::string_view why) {
  return Error(ErrorCode::outdated,
               fmt::format("{} is not the recorded program on this machine: {}", entry.key.name, why));
}

}  // namespace

Result<std::unique_ptr<RecordedPrograms>> RecordedPrograms::read(const std::vector<std::filesystem::path>& paths) {
  std::vector<RequestRecord> records;
  records.reserve(paths.size());
  for (const auto& path : paths) records.push_back(KILN_TRY(RequestRecord::read(path)));
  return std::unique_ptr<RecordedPrograms>(new RecordedPrograms(std::move(records)));
}

RecordedPrograms::RecordedPrograms(std::vector<RequestRecord> records) : records_(std::move(records)) {
  struct Place {
    const RequestRecord* record;
    const RequestRecord::Entry* entry;

    /// Of records of one request, that with the longest time comes first.
    auto order() const {
      return std::tuple(std::string_view(entry->api), entry->key.digest, -entry->compile_time.count());
    }
  };
  std::vector<Place> places;
  for (const RequestRecord& record : records_)
    for (const RequestRecord::Entry& entry : record.entries()) places.push_back({&record, &entry});
  std::ranges::stable_sort(places, {}, &Place::order);
  double known_time = 0;
  double known_bytes = 0;
  for (const Place& place : places) {
    if (!programs_.empty() && programs_.back().entry.item.id == place.entry->item.id) continue;
    programs_.emplace_back(*place.record, *place.entry);
    if (place.entry->compile_time.count() <= 0) continue;
    known_time += static_cast<double>(place.entry->compile_time.count());
    known_bytes += static_cast<double>(place.entry->source_bytes);
  }
  if (known_bytes > 0) cost_of_byte_ = known_time / known_bytes;
}

double RecordedPrograms::cost(std::size_t program) const {
  const RequestRecord::Entry& entry = programs_[program].entry;
  if (entry.compile_time.count() > 0) return static_cast<double>(entry.compile_time.count());
  return cost_of_byte_ * static_cast<double>(std::max<std::uint64_t>(entry.source_bytes, 1));
}

std::string RecordedPrograms::apis() const {
  std::map<std::string, std::size_t> counts;
  for (const Program& program : programs_) ++counts[program.entry.api];
  std::string text;
  for (const auto& [api, count] : counts) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", api, count);
  return text;
}

Result<key::RecordedRequest> RecordedPrograms::request(std::size_t program) const {
  return programs_[program].record.request(programs_[program].entry);
}

Result<void> RecordedPrograms::copy(std::size_t program, key::RecordWriter& to) const {
  KILN_TRY(to.add(programs_[program].record, programs_[program].entry));
  return {};
}

Result<Request> RecordedPrograms::make(Program& program, const std::filesystem::path& folder,
                                       const PartFolder& part, const WorkingFolder& working_folder) {
  const auto unpacked = KILN_TRY(program.record.unpack(program.entry, folder));
  program.working_folder = unpacked.working_folder;
  if (program.entry.language == Language::opencl) {
    // Without permission, the folder of the process does as well if it has no file with an included name.
    const auto entered = working_folder.enter(unpacked.working_folder.value_or(part.empty_folder()));
    if (!entered && unpacked.working_folder)
      return not_here(
          program.entry,
          fmt::format("it was made in a working folder with files that it includes, and a thread cannot "
                      "have one here: {}",
                      entered.error().message()));
  }
  auto rebuilt = KILN_TRY(program.record.rebuild(program.entry, unpacked));
  if (!rebuilt.difference.empty()) return not_here(program.entry, rebuilt.difference);
  return std::move(rebuilt.request);
}

RecordedPrograms::Use::Use(RecordedPrograms& of, std::size_t program, const PartFolder& part,
                           const WorkingFolder& working_folder)
    : of_(of),
      program_(program),
      working_folder_(working_folder),
      folder_(part.request_folder(of[program].item.id)) {
  Program& used = of_.programs_[program_];
  const base::MutexLock lock(used.mutex);
  if (!used.request)
    used.request = make(used, folder_, part, working_folder);
  else if (used.entry.language == Language::opencl)
    static_cast<void>(working_folder.enter(used.working_folder.value_or(part.empty_folder())));
  request_ = used.request;
}

RecordedPrograms::Use::~Use() {
  Program& used = of_.programs_[program_];
  if (used.entry.language == Language::opencl) working_folder_.leave();
  const base::MutexLock lock(used.mutex);
  if (++used.used < used.users) return;
  used.request.reset();
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

std::string RecordedPrograms::Use::describe_files() const {
  auto files = nlohmann::ordered_json::parse(request_->value().describe_files());
  const std::string folder = folder_.string() + '/';
  for (auto& file : files) {
    const auto& name = file["name"].get_ref<const std::string&>();
    if (name.starts_with(folder)) file["name"] = name.substr(folder.size());
  }
  return files.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Error RecordedPrograms::Use::with_relative_paths(const Error& error) const {
  const std::string folder = folder_.string() + '/';
  return Error(error.code(), without(error.message(), folder), without(error.log(), folder));
}

}  // namespace kiln::baking
